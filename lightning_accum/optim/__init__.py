"""Optimizers: the adaptive ones, and the one that applies accumulated updates."""

from importlib import import_module
from typing import TYPE_CHECKING

from lightning_accum.optim._options import AdamOptions, MomentOptions
from lightning_accum.optim.update_optimizer import UpdateOptimizer, updates_as_gradients
from lightning_accum.optim.weight_decay import WeightDecay

# The adaptive ones are imported when they are used: LightningCLI rejects a short name, such as
# `--optimizer=Adam`, of which torch and another imported module have a class each.
if TYPE_CHECKING:
    from lightning_accum.optim.adam import AdaBelief, Adam, AMSGrad, RAdam
    from lightning_accum.optim.base import GenericAdaptiveOptimizer
    from lightning_accum.optim.scheduled_adam import AdamWarmup, AdamWarmupCosineDecay, Noam
else:

    def __getattr__(name):
        for file in ("scheduled_adam", "base", "adam") if name in __all__ else ():
            module = import_module(f"{__name__}.{file}")
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *__all__})


__all__ = [
    "AMSGrad",
    "AdaBelief",
    "Adam",
    "AdamOptions",
    "AdamWarmup",
    "AdamWarmupCosineDecay",
    "GenericAdaptiveOptimizer",
    "MomentOptions",
    "Noam",
    "RAdam",
    "UpdateOptimizer",
    "WeightDecay",
    "updates_as_gradients",
]

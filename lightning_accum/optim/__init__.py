"""Optimizers: the adaptive ones, and the one that applies accumulated updates."""

from importlib import import_module
from typing import TYPE_CHECKING

from lightning_accum.optim._options import AdamOptions, MomentOptions
from lightning_accum.optim.update import UpdateOptimizer, updates_as_gradients
from lightning_accum.optim.weight_decay import WeightDecay

# The adaptive ones are imported when they are used: LightningCLI rejects a short name, such as
# `--optimizer=Adam`, of which torch and another imported module have a class each.
if TYPE_CHECKING:
    from lightning_accum.optim.adam import AdaBelief, Adam, AMSGrad, RAdam
    from lightning_accum.optim.base import GenericAdaptiveOptimizer
    from lightning_accum.optim.schedules import AdamWarmup, AdamWarmupCosineDecay, Noam
else:
    _FILES = {
        "AMSGrad": "adam",
        "AdaBelief": "adam",
        "Adam": "adam",
        "AdamWarmup": "schedules",
        "AdamWarmupCosineDecay": "schedules",
        "GenericAdaptiveOptimizer": "base",
        "Noam": "schedules",
        "RAdam": "adam",
    }

    def __getattr__(name):
        if name not in _FILES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)

    def __dir__():
        return sorted({*globals(), *_FILES})


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

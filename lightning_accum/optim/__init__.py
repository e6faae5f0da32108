"""Optimizers: the adaptive ones, and the one that applies accumulated updates."""

from importlib import import_module
from typing import TYPE_CHECKING

from lightning_accum.optim._options import AdamOptions, MomentOptions
from lightning_accum.optim.gradients import updates_as_gradients
from lightning_accum.optim.update import UpdateOptimizer
from lightning_accum.optim.weight_decay import WeightDecay

# The adaptive ones are imported when they are used: LightningCLI rejects a short name, such as
# `--optimizer=Adam`, of which torch and another imported module have a class each.
if TYPE_CHECKING:
    from lightning_accum.optim.adabelief import AdaBelief
    from lightning_accum.optim.adam import Adam
    from lightning_accum.optim.amsgrad import AMSGrad
    from lightning_accum.optim.base import GenericAdaptiveOptimizer
    from lightning_accum.optim.cosine import AdamWarmupCosineDecay
    from lightning_accum.optim.noam import Noam
    from lightning_accum.optim.radam import RAdam
    from lightning_accum.optim.warmup import AdamWarmup
else:
    _FILES = {
        "AMSGrad": "amsgrad",
        "AdaBelief": "adabelief",
        "Adam": "adam",
        "AdamWarmup": "warmup",
        "AdamWarmupCosineDecay": "cosine",
        "GenericAdaptiveOptimizer": "base",
        "Noam": "noam",
        "RAdam": "radam",
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

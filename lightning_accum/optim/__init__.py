"""Optimizers: the adaptive ones, and the one that applies accumulated updates."""

from lightning_accum.optim._options import AdamOptions, MomentOptions
from lightning_accum.optim.adabelief import AdaBelief
from lightning_accum.optim.adam import Adam
from lightning_accum.optim.amsgrad import AMSGrad
from lightning_accum.optim.base import GenericAdaptiveOptimizer
from lightning_accum.optim.cosine import AdamWarmupCosineDecay
from lightning_accum.optim.gradients import updates_as_gradients
from lightning_accum.optim.noam import Noam
from lightning_accum.optim.radam import RAdam
from lightning_accum.optim.update import UpdateOptimizer
from lightning_accum.optim.warmup import AdamWarmup
from lightning_accum.optim.weight_decay import WeightDecay

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

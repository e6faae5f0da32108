"""Layers of connections and neurons, so that the package works without another library."""

from lightning_accum.nn.competition import Competition, Inhibition, LateralInhibition, WinnerTakeAll
from lightning_accum.nn.conv import Conv1d, Conv2d, Conv3d
from lightning_accum.nn.encoder import PoissonEncoder
from lightning_accum.nn.initial_weights import init_from_data_
from lightning_accum.nn.leaky_integrator import LeakyIntegrator
from lightning_accum.nn.linear import DelayedLinear, Linear, RecurrentLinear
from lightning_accum.nn.neuron import LIF, AdaptiveLIF
from lightning_accum.nn.reward_baseline import RewardBaseline
from lightning_accum.nn.rewire import Rewire
from lightning_accum.nn.short_term import ShortTermPlasticity
from lightning_accum.nn.sparse_linear import SparseLinear
from lightning_accum.nn.surrogate_lif import SurrogateLIF

__all__ = [
    "LIF",
    "AdaptiveLIF",
    "Competition",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "DelayedLinear",
    "Inhibition",
    "LateralInhibition",
    "LeakyIntegrator",
    "Linear",
    "PoissonEncoder",
    "RecurrentLinear",
    "RewardBaseline",
    "Rewire",
    "ShortTermPlasticity",
    "SparseLinear",
    "SurrogateLIF",
    "WinnerTakeAll",
    "init_from_data_",
]

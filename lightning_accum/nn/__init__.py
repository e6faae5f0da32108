"""Small native layers, so that the package runs alone."""

from lightning_accum.nn.conv import Conv1d, Conv2d, Conv3d
from lightning_accum.nn.encoder import PoissonEncoder
from lightning_accum.nn.inhibition import Inhibition, LateralInhibition, WinnerTakeAll
from lightning_accum.nn.linear import Linear
from lightning_accum.nn.neuron import LIF, AdaptiveLIF

__all__ = [
    "LIF",
    "AdaptiveLIF",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Inhibition",
    "LateralInhibition",
    "Linear",
    "PoissonEncoder",
    "WinnerTakeAll",
]

"""Small native layers, so that the package runs alone."""

from lightning_accum.nn.encoder import PoissonEncoder
from lightning_accum.nn.inhibition import Inhibition, LateralInhibition, WinnerTakeAll
from lightning_accum.nn.linear import Linear
from lightning_accum.nn.neuron import LIF, AdaptiveLIF

__all__ = [
    "LIF",
    "AdaptiveLIF",
    "Inhibition",
    "LateralInhibition",
    "Linear",
    "PoissonEncoder",
    "WinnerTakeAll",
]

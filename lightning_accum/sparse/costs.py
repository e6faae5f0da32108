"""What computing with spikes costs, one way and the other."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum.sparse.events import density

# Nanoseconds, measured on one core with AVX-512; their ratios decide.
MULTIPLY = 0.02
"""A multiply-add of a dense product."""
CONVERT = 0.06
"""An entry of a raster made floating."""
SEARCH = 0.1
"""An entry searched for events."""
EVENT = 8.0
"""An event found and put in order."""
ADD = 0.04
"""An element that an event adds."""
TRACE = 1.6
"""An element that a trace passes."""
TRANSPOSE = 0.4
"""An element of a matrix transposed."""
CALLS = 60_000.0
"""The calls of torch that events take beyond those of a dense product."""


def events_pay(raster: Tensor, width: int) -> bool:
    """Whether a product with a matrix is cheaper by the events of a raster than dense.

    On other devices than the CPU it is never looked, for that would be to wait.

    Args:
        raster: ``[K, E]`` spikes.
        width: columns of the matrix.
    """
    if raster.dtype != torch.bool or not raster.is_cpu:
        return False
    rows, inputs = raster.shape
    dense = rows * inputs * (width * MULTIPLY + CONVERT)
    fixed = inputs * width * TRANSPOSE + CALLS
    search = rows * inputs * SEARCH
    if dense <= fixed + search:
        return False
    return dense > fixed + search + density(raster) * rows * inputs * (EVENT + width * ADD)

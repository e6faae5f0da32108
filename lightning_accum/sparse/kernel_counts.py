"""The kernel's counts of the spikes of neurons."""

from __future__ import annotations

import ctypes
import math

import torch
from torch import Tensor

from lightning_accum.sparse.compiled import Int, is_plain, kernel_for, pointer


def count_neurons(spikes: Tensor) -> Tensor | None:
    """Returns ``[N]``, the number of spikes of each neuron; ``None`` if there is no kernel for it.

    Args:
        spikes: ``[T, B, ...]``.
    """
    fits = spikes.dtype == torch.bool and spikes.ndim > 2 and is_plain(spikes)
    kernel = kernel_for(torch.float32) if fits else None
    if kernel is None:
        return None
    steps, batch, *neurons = spikes.shape
    counts = torch.empty(math.prod(neurons), dtype=torch.float32, device="cpu")
    kernel.count_neurons(pointer(spikes), Int(steps * batch), Int(len(counts)), pointer(counts))
    return counts


def sum_counts(counts: Tensor) -> tuple[float, float] | None:
    """Returns the sum of counts, and how many of them are 0; ``None`` if there is no kernel.

    Args:
        counts: ``[N]`` in float32.
    """
    fits = counts.dtype == torch.float32 and is_plain(counts)
    kernel = kernel_for(torch.float32) if fits else None
    if kernel is None:
        return None
    found = (ctypes.c_double * 2)()
    kernel.sum_counts(pointer(counts), Int(counts.numel()), found)
    return found[0], found[1]

"""The kernel's loop over the steps of neurons with a surrogate gradient."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from lightning_accum.sparse.buffers import Scratch
from lightning_accum.sparse.compiled import (
    At,
    Int,
    Real,
    are_values,
    is_plain,
    kernel_for,
    pointer,
    threads_among,
    work_memory,
)

_NEURONS = 4096  # neurons that a thread works on at a time
_WEIGHTS = 1 << 22  # bytes of recurrent weights that stay in the cache, where spikes visit them


class _Neurons(ctypes.Structure):
    _fields_ = (
        *((name, Int) for name in ("steps", "batch", "size", "is_bytes")),
        *((name, Real) for name in ("decay", "threshold", "beta", "decay_adaptation")),
        *((name, At) for name in ("current", "weights", "v", "adaptation", "spikes")),
        *((name, At) for name in ("membrane", "limits", "raster")),
    )


def integrate_surrogate_neurons(
    current: Tensor,
    weights: Tensor | None,
    state: tuple[Tensor, Tensor, Tensor],
    membrane: Tensor,
    limits: Tensor | None,
    raster: Tensor,
    constants: tuple[float, float, float, float],
) -> bool:
    """Integrates a sequence without a graph, if there is a kernel for it.

    Args:
        current: ``[T, B, N]`` input current.
        weights: ``[N, N]`` what a spike of each neuron adds to all neurons, a row for each neuron
            that spikes; ``None`` if the neurons are not connected.
        state: potential, adaptation and spikes of the step before, each ``[B, N]`` and changed in
            place.
        membrane: ``[T, B, N]`` receives the potential.
        limits: ``[T, B, N]`` receives the threshold; ``None`` for neurons that do not adapt.
        raster: ``[T + 1, B, N]`` receives the spikes from its second row on, as booleans or in the
            dtype of ``current``.
        constants: decay of the potential, threshold, strength of the adaptation, and its decay.

    Returns:
        Whether it is done; if not, nothing has changed.
    """
    dtype, shape = current.dtype, current.shape
    if len(shape) != 3 or not current.numel():
        return False
    (steps, batch, size), one = shape, current[0].shape
    values: list[tuple[Tensor, torch.Size]] = [(current, shape), (membrane, shape)]
    values += [(each, one) for each in state]
    values += [] if limits is None else [(limits, shape)]
    values += [] if weights is None else [(weights, torch.Size((size, size)))]
    spikes = raster.dtype in (torch.bool, dtype) and is_plain(raster)
    fits = spikes and raster.shape == (steps + 1, batch, size)
    if not fits or not all(are_values(tensor, of, dtype) for tensor, of in values):
        return False
    if weights is not None and weights.nbytes > _WEIGHTS:
        return False
    kernel = kernel_for(dtype)
    if kernel is None:
        return False
    pieces = -(-batch * size // _NEURONS) if weights is None else batch
    threads = threads_among(pieces, current.numel())
    pointers = map(pointer, (current, weights, *state, membrane, limits, raster))
    sizes = (steps, batch, size, raster.dtype == torch.bool)
    neurons = _Neurons(*sizes, *constants, *pointers)
    with Scratch() as scratch:
        row = -(-size * (dtype.itemsize + 4) // 64) * 64
        memory = work_memory(scratch, 0 if weights is None else threads * row)
        kernel.integrate_surrogate(ctypes.byref(neurons), memory, threads)
    return True

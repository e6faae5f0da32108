"""The kernel's loop over the steps of neurons."""

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

_NEURONS = 1024  # neurons of which a thread keeps three values


class _Neurons(ctypes.Structure):
    _fields_ = (
        *((name, Int) for name in ("steps", "batch", "size", "is_bytes", "period")),
        *((name, Real) for name in ("decay", "rest", "threshold", "decay_theta", "rise")),
        *((name, At) for name in ("current", "v", "hold", "theta", "out")),
    )


def integrate_neurons(
    current: Tensor,
    out: Tensor,
    v: Tensor,
    hold: Tensor | None,
    theta: Tensor | None,
    constants: tuple[float, float, float, float, float],
    period: int,
) -> bool:
    """Integrates a sequence of integrate-and-fire neurons, if there is a kernel for it.

    Args:
        current: ``[T, B, N]`` input current.
        out: ``[T, B, N]`` receives the spikes, as booleans or in the dtype of ``current``.
        v: ``[B, N]`` potential above reset, changed in place.
        hold: ``[B, N]`` steps for which a neuron is held at reset, changed in place.
        theta: ``[N]`` rise of the threshold, changed in place; ``None`` if it does not adapt.
        constants: decay of the potential, what is added to every current, threshold above reset,
            decay of theta, and its rise if all samples spike.
        period: refractory steps.

    Returns:
        Whether it is done.
    """
    dtype, state = current.dtype, current.shape[1:]
    values = [(current, current.shape), (v, state)]
    values += [] if hold is None else [(hold, state)]
    values += [] if theta is None else [(theta, state[1:])]
    fits = all(are_values(tensor, shape, dtype) for tensor, shape in values)
    spikes = out.dtype in (torch.bool, dtype) and out.shape == current.shape and is_plain(out)
    kernel = kernel_for(dtype) if fits and spikes and current.ndim == 3 else None
    if kernel is None or not state.numel():
        return False
    columns = state.numel() if theta is None else state[1]
    pieces = -(-columns // _NEURONS)
    threads = threads_among(pieces, current.numel())
    sizes = (*current.shape, out.dtype == torch.bool, period)
    pointers = (pointer(each) for each in (current, v, hold, theta, out))
    neurons = _Neurons(*sizes, *constants, *pointers)
    with Scratch() as scratch:
        memory = work_memory(scratch, threads * 3 * _NEURONS * dtype.itemsize)
        kernel.integrate(ctypes.byref(neurons), memory, threads)
    return True

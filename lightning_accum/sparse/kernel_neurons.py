"""The kernel's loop over the steps of neurons."""

from __future__ import annotations

import ctypes
import math
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum._compat import is_traced
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
_WORK = 3 * _NEURONS  # values


class _Neurons(ctypes.Structure):
    _fields_ = (
        *((name, Int) for name in ("steps", "batch", "size", "is_bytes", "period")),
        *((name, Real) for name in ("decay", "rest", "threshold", "decay_theta", "rise")),
        *((name, At) for name in ("current", "v", "hold", "theta", "out")),
    )


class NeuronState(NamedTuple):
    """The state of a layer of neurons between two steps; a potential of zero is reset.

    Args:
        v: membrane potential, ``[B, N]``.
        hold: number of steps for which a neuron is still held at reset, ``[B, N]``.
        theta: rise of the threshold, ``[N]``, or a zero ``[]`` if the threshold does not adapt.
    """

    v: Tensor
    hold: Tensor
    theta: Tensor


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
        memory = work_memory(scratch, threads * _WORK * dtype.itemsize)
        kernel.integrate(ctypes.byref(neurons), memory, threads)
    return True


class NeuronSteps:
    """Takes single steps of neurons one after another, in the memory of their state.

    The plain form of a step is that of :func:`integrate_neurons`, on copies of the state.

    Args:
        since_reset: the number of steps since the neurons' last reset; infinite if it is not known.
    """

    def __init__(self, since_reset: float = math.inf) -> None:
        self.since_reset = since_reset
        self._settings: object = None
        self._v: Tensor | None = None

    def begin(
        self,
        v: Tensor,
        hold: Tensor,
        constants: tuple[float, float, float, float, float],
        period: int,
        spike_dtype: torch.dtype,
        settings: object,
    ) -> None:
        """Prepares the steps after one, if there is a kernel for them.

        Args:
            v: ``[B, N]`` potential above reset after the step, which the next ones change in place.
            hold: ``[B, N]`` steps for which a neuron is held at reset, likewise.
            constants: as those of :func:`integrate_neurons`.
            period: refractory steps.
            spike_dtype: the dtype of the spikes.
            settings: what has to be equal in the next steps.
        """
        self._v, dtype, elements = None, v.dtype, v.numel()
        kernel = kernel_for(dtype)
        fits = v.ndim == 2 and all(are_values(each, v.shape, dtype) for each in (v, hold))
        fits = fits and spike_dtype in (torch.bool, dtype)
        if kernel is None or not fits or not elements or threads_among(2, elements) > 1:
            return
        self._shape, self._dtype, self._spike_dtype = v.shape, dtype, spike_dtype
        self._v, self._hold, self._settings = v, hold, settings
        sizes = (1, *v.shape, spike_dtype == torch.bool, period)
        used = (None, v, hold if period else None, None, None)
        self._neurons = _Neurons(*sizes, *constants, *map(pointer, used))
        with torch.inference_mode(False):
            self._memory = torch.empty(_WORK, dtype=dtype, device="cpu")
        self._arguments = ctypes.byref(self._neurons), pointer(self._memory), 1
        self._integrate = kernel.integrate

    def step(
        self, current: Tensor, state: dict[str, Tensor | None], settings: object
    ) -> Tensor | None:
        """Takes one more step.

        Args:
            current: ``[B, N]`` input current.
            state: the potential and the holds, as ``"voltage"`` and ``"hold"``.
            settings: those of the neurons now.

        Returns:
            The spikes; ``None`` if it is not such a step, and then nothing has changed.
        """
        v = self._v
        if v is None or is_traced() or settings != self._settings:
            return None
        if state["voltage"] is not v or state["hold"] is not self._hold:
            return None
        if type(current) is not Tensor or not is_plain(current):
            return None
        if current.dtype is not self._dtype or current.shape != self._shape:
            return None
        out = torch.empty_like(current, dtype=self._spike_dtype)
        neurons = self._neurons
        neurons.current, neurons.out = current.data_ptr(), out.data_ptr()
        self._integrate(*self._arguments)
        self.since_reset += 1
        return out

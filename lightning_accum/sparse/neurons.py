"""The kernel's loops over the steps of neurons, of which one also learns by pair STDP.

The plain forms are each neuron's own step, and :func:`lightning_accum.rules.online.learn_online`.
"""

from __future__ import annotations

import ctypes
import math
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum._compat import is_traced
from lightning_accum.sparse.library import (
    At,
    Int,
    Real,
    Scratch,
    are_values,
    is_plain,
    kernel_for,
    pointer,
    pointers,
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
    """The state of a layer of neurons between two steps; a potential of zero is reset."""

    v: Tensor  # membrane potential, [B, N]
    hold: Tensor  # number of steps for which a neuron is still held at reset, [B, N]
    theta: Tensor  # rise of the threshold, [N], or a zero [] if the threshold does not adapt


def integrate_neurons(
    current: Tensor,  # [T, B, N] input current
    out: Tensor,  # [T, B, N] receives the spikes, as booleans or in the dtype of current
    v: Tensor,  # [B, N] potential above reset, changed in place
    hold: Tensor | None,  # [B, N] steps for which a neuron is held at reset, changed in place
    theta: Tensor | None,  # [N] rise of the threshold, changed in place; None if it does not adapt
    # decay of the potential, what is added to every current, threshold above reset, decay of theta,
    # and its rise if all samples spike
    constants: tuple[float, float, float, float, float],
    period: int,  # refractory steps
) -> bool:
    """Integrates a sequence, if there is a kernel for it; returns whether."""
    dtype, state = current.dtype, current.shape[1:]
    values = (current, current.shape), (v, state), (hold, state), (theta, state[1:])
    spikes = out.dtype in (torch.bool, dtype) and out.shape == current.shape and is_plain(out)
    fits = spikes and current.ndim == 3 and are_values(dtype, *values)
    kernel = kernel_for(dtype) if fits else None
    if kernel is None or not state.numel():
        return False
    columns = state.numel() if theta is None else state[1]
    pieces = -(-columns // _NEURONS)
    threads = threads_among(pieces, current.numel())
    sizes = (*current.shape, out.dtype == torch.bool, period)
    neurons = _Neurons(*sizes, *constants, *pointers(current, v, hold, theta, out))
    with Scratch() as scratch:
        memory = work_memory(scratch, threads * _WORK * dtype.itemsize)
        kernel.integrate(ctypes.byref(neurons), memory, threads)
    return True


class NeuronSteps:
    """Takes single steps of neurons one after another, in the memory of their state.

    The plain form of a step is that of :func:`integrate_neurons`, on copies of the state.
    """

    def __init__(self, since_reset: float = math.inf) -> None:
        self.since_reset = since_reset
        self._settings: object = None
        self._v: Tensor | None = None

    def begin(
        self,
        v: Tensor,  # [B, N] potential above reset after the step
        hold: Tensor,  # [B, N] steps for which a neuron is held at reset, likewise
        constants: tuple[float, float, float, float, float],  # as those of integrate_neurons
        period: int,  # refractory steps
        spike_dtype: torch.dtype,  # the dtype of the spikes
        settings: object,  # what has to be equal in the next steps
    ) -> None:
        """Prepares the steps after one, if there is a kernel for them."""
        self._v, dtype, elements = None, v.dtype, v.numel()
        kernel = kernel_for(dtype)
        fits = v.ndim == 2 and are_values(dtype, (v, v.shape), (hold, v.shape))
        fits = fits and spike_dtype in (torch.bool, dtype)
        if kernel is None or not fits or not elements or threads_among(2, elements) > 1:
            return
        self._shape, self._dtype, self._spike_dtype = v.shape, dtype, spike_dtype
        self._v, self._hold, self._settings = v, hold, settings
        sizes = (1, *v.shape, spike_dtype == torch.bool, period)
        places = pointers(None, v, hold if period else None, None, None)
        self._neurons = _Neurons(*sizes, *constants, *places)
        with torch.inference_mode(False):
            self._memory = torch.empty(_WORK, dtype=dtype, device="cpu")
        self._arguments = ctypes.byref(self._neurons), pointer(self._memory), 1
        self._integrate = kernel.integrate

    def step(
        self, current: Tensor, state: dict[str, Tensor | None], settings: object
    ) -> Tensor | None:
        """Returns the spikes of one more step; ``None``, with no change, if it is another."""
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


_TOGETHER = 4096  # neurons that a thread works on at a time
_WEIGHTS = 1 << 22  # bytes of recurrent weights that stay in the cache, where spikes visit them


class _Surrogate(ctypes.Structure):
    _fields_ = (
        *((name, Int) for name in ("steps", "batch", "size", "is_bytes")),
        *((name, Real) for name in ("decay", "threshold", "beta", "decay_adaptation")),
        *((name, At) for name in ("current", "weights", "v", "adaptation", "spikes")),
        *((name, At) for name in ("membrane", "limits", "raster")),
    )


def integrate_surrogate_neurons(
    current: Tensor,  # [T, B, N] input current
    weights: Tensor | None,  # [N, N] what a spike adds, a row for each neuron that spikes
    state: tuple[Tensor, Tensor, Tensor],  # [B, N] potential, adaptation, spikes; in place
    membrane: Tensor,  # [T, B, N] receives the potential
    limits: Tensor | None,  # [T, B, N] receives the threshold; None for neurons that do not adapt
    raster: Tensor,  # [T + 1, B, N] receives the spikes from its second row on
    constants: tuple[float, float, float, float],  # decay, threshold, beta, decay of adaptation
) -> bool:
    """Integrates a sequence without a graph, if there is a kernel for it; returns whether."""
    dtype, shape = current.dtype, current.shape
    if len(shape) != 3 or not current.numel():
        return False
    (steps, batch, size), one = shape, current[0].shape
    values = (current, shape), (membrane, shape), (limits, shape), (weights, (size, size))
    spikes = raster.dtype in (torch.bool, dtype) and is_plain(raster)
    fits = spikes and raster.shape == (steps + 1, batch, size)
    if not fits or not are_values(dtype, *values, *((each, one) for each in state)):
        return False
    if weights is not None and weights.nbytes > _WEIGHTS:
        return False
    kernel = kernel_for(dtype)
    if kernel is None:
        return False
    pieces = -(-batch * size // _TOGETHER) if weights is None else batch
    threads = threads_among(pieces, current.numel())
    places = pointers(current, weights, *state, membrane, limits, raster)
    sizes = (steps, batch, size, raster.dtype == torch.bool)
    neurons = _Surrogate(*sizes, *constants, *places)
    with Scratch() as scratch:
        row = -(-size * (dtype.itemsize + 4) // 64) * 64
        memory = work_memory(scratch, 0 if weights is None else threads * row)
        kernel.integrate_surrogate(ctypes.byref(neurons), memory, threads)
    return True


# Postsynaptic spikes that may wait until the weights of an input are read.
_ROOM = 1 << 16


class PairSTDP(NamedTuple):
    """The constants of pair-based STDP, for one step and the whole batch."""

    rate_post: float  # factor of the presynaptic traces on a postsynaptic spike
    rate_pre: float  # factor of the postsynaptic traces on a presynaptic spike
    decay_pre: float  # factor by which presynaptic traces shrink in a step
    decay_post: float  # factor by which postsynaptic traces shrink in a step
    nearest: bool  # whether a spike sets its trace to one, instead of adding one


class SpikingNeurons(NamedTuple):
    """The constants of integrate-and-fire neurons; potentials are relative to reset."""

    decay: float  # factor by which the distance of a membrane potential to rest shrinks in a step
    rest: float  # resting potential
    threshold: float  # threshold without its adaptation
    period: int  # refractory period, in steps
    decay_theta: float = 1.0  # factor by which the rise of the threshold shrinks in a step
    theta_plus: float = 0.0  # rise of the threshold if all samples of the batch spike
    losers: int | None = None  # steps for which a spike silences all other neurons

    @property
    def adapts(self) -> bool:
        """Whether the threshold changes."""
        return self.theta_plus != 0.0 or self.decay_theta != 1.0


class OnlineState(NamedTuple):
    """What passes from one sequence to the next."""

    v: Tensor  # membrane potentials, [B, N]
    hold: Tensor  # steps for which neurons are still held at reset, [B, N]
    theta: Tensor  # the rise of the threshold, [N]
    pre: Tensor  # presynaptic traces, [B, E]
    post: Tensor  # postsynaptic traces, [B, N]


def run_online(
    raster: Tensor,  # input spikes as booleans, [T, B, E], on the CPU
    weight: Tensor,  # [N, E]
    bias: Tensor | None,  # [N], or None
    neurons: SpikingNeurons,  # the constants of the neurons
    rule: PairSTDP,  # the constants of the rule
    state: OnlineState,  # the state before the first step
    limits: tuple[float, float] | None = None,  # between which all weights are
) -> tuple[Tensor, Tensor, OnlineState] | None:
    """Returns spikes, the new weight as ``[E, N]`` and the state; changes none of its arguments.

    ``None`` if there is no kernel for them.
    """
    steps, batch, inputs = raster.shape
    size, dtype = len(weight), weight.dtype
    most = max(steps * batch * max(inputs, size), inputs * size)
    kernel = kernel_for(dtype)
    if kernel is None or not 0 < most < 2**31:
        return None
    room = max(_ROOM, batch * size)
    transposed = weight.detach().t().clone(memory_format=torch.contiguous_format)
    v, hold, theta, pre, post = (
        _copy(value, shape, dtype)
        for value, shape in zip(
            (state.v, state.hold, state.theta, state.pre.t(), state.post),
            ((batch, size), (batch, size), (size,), (inputs, batch), (batch, size)),
            strict=True,
        )
    )
    powers = (rule.decay_pre ** torch.arange(steps + 1, dtype=torch.float64)).to(dtype)
    spikes = torch.empty(steps, batch, size, dtype=torch.bool)
    low, high = limits or (0.0, 0.0)
    tensors = {
        "raster": _copy(raster, (steps, batch, inputs), torch.bool),
        "spikes": spikes,
        "weight": transposed,
        "bias": None if bias is None else _copy(bias.detach(), (size,), dtype),
        **{"v": v, "hold": hold, "theta": theta, "pre": pre, "post": post, "powers": powers},
        "current": torch.empty(size, dtype=dtype),
        "last": torch.empty(inputs, dtype=torch.int32),
        **{name: torch.empty(room, dtype=torch.int32) for name in ("samples", "columns", "times")},
        "starts": torch.empty(steps + 1, dtype=torch.int32),
        "ins": torch.empty(batch * inputs, dtype=torch.int32),
        "read": torch.empty(inputs, dtype=torch.bool),
    }
    task = _Online(
        **{"steps": steps, "batch": batch, "inputs": inputs, "neurons": size, "room": room},
        **dict(zip(tensors, pointers(*tensors.values()), strict=True)),
        drive=(1 - neurons.decay) * neurons.rest,
        **{name: getattr(neurons, name) for name in _OF_NEURONS},
        **{name: getattr(rule, name) for name in _OF_RULE},
        low=low,
        high=high,
        bounded=limits is not None,
        losers=-1 if neurons.losers is None else neurons.losers,
    )
    kernel.run_online(ctypes.byref(task))
    hold.clamp_(min=0)
    after = OnlineState(v, hold, theta, pre.t().contiguous(), post)
    return spikes, transposed, after


_OF_NEURONS = ("decay", "threshold", "period", "decay_theta", "theta_plus")
_OF_RULE = ("rate_post", "rate_pre", "decay_post", "nearest")


class _Online(ctypes.Structure):
    """The arguments of the C function, in its order."""

    _fields_ = (
        *((n, Int) for n in ("steps", "batch", "inputs", "neurons", "room")),
        *((n, At) for n in ("raster", "spikes", "weight", "bias", "v", "hold")),
        *((n, At) for n in ("theta", "pre", "post", "powers", "current", "last")),
        *((n, At) for n in ("samples", "columns", "times", "starts", "ins", "read")),
        *((n, Real) for n in ("decay", "drive", "threshold", "period", "decay_theta")),
        *((n, Real) for n in ("theta_plus", "decay_post", "rate_post", "rate_pre")),
        *((n, Real) for n in ("low", "high")),
        *((n, ctypes.c_int32) for n in ("nearest", "bounded", "losers")),
    )


def _copy(value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Returns a contiguous copy on the CPU, whose shape is checked before C reads it."""
    if value.shape != shape:
        raise ValueError(
            f"Argument of the compiled loop should have shape {shape}. Found {tuple(value.shape)}."
        )
    return value.detach().to("cpu", dtype, copy=True).contiguous()

"""The kernel's loops over the steps of neurons, of which one also learns by pairs of spikes.

The plain forms are each step of a neuron, and :func:`lightning_accum.rules.learn_online`.
"""

from __future__ import annotations

import ctypes
import math
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor

from lightning_accum._checks import check_value
from lightning_accum._compat.torch import is_traced
from lightning_accum.functional.bounds import Room
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.event_sums import EventProduct
from lightning_accum.sparse.kernel_library import At, Int, Real, Scratch, arguments

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
    current: Tensor | EventProduct,  # [T, B, N] input current
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
    product = current if isinstance(current, EventProduct) else None
    currents = current if isinstance(current, Tensor) else None
    values = (currents, current.shape), (v, state), (hold, state), (theta, state[1:])
    fits = out.dtype in (torch.bool, dtype) and out.shape == current.shape and out.ndim == 3
    fits = fits and library.is_plain(out) and library.are_values(dtype, *values)
    kernel = library.kernel_for(dtype) if fits else None
    if kernel is None or not state.numel():
        return False
    sizes = (*current.shape, out.dtype == torch.bool, period)
    neurons = _Neurons(*sizes, *constants, *arguments(currents, v, hold, theta, out))
    if product is not None:
        rows, inputs = product.events.shape
        same = product.weight.shape == (state[1], inputs) and rows == len(out) * state[0]
        return same and product.run(neurons)
    columns = state.numel() if theta is None else state[1]
    pieces = -(-columns // _NEURONS)
    threads = library.threads_among(pieces, out.numel())
    with Scratch() as scratch:
        memory = library.work_memory(scratch, threads * _WORK * dtype.itemsize)
        kernel.integrate(ctypes.byref(neurons), memory, threads)
    return True


class NeuronSteps:
    """Takes single steps of neurons one after another, in the memory of their state."""

    # The plain form of a step is that of `integrate_neurons`, on copies of the state.

    def __init__(self, since_reset: float = math.inf) -> None:
        self.since_reset = since_reset
        self._settings: object = None  # None if there are no steps to take

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
        self._settings, dtype, elements = None, v.dtype, v.numel()
        kernel = library.kernel_for(dtype)
        fits = v.ndim == 2 and library.are_values(dtype, (v, v.shape), (hold, v.shape))
        fits = fits and spike_dtype in (torch.bool, dtype)
        if kernel is None or not fits or not elements or library.threads_among(2, elements) > 1:
            return
        self._shape, self._dtype, self._spike_dtype = v.shape, dtype, spike_dtype
        self._settings, self._holds = settings, period > 0
        sizes = (1, *v.shape, spike_dtype == torch.bool, period)
        self._neurons = _Neurons(*sizes, *constants, *arguments(None, None, None, None, None))
        with torch.inference_mode(False):
            self._memory = torch.empty(_WORK, dtype=dtype, device="cpu")
        self._arguments = ctypes.byref(self._neurons), *arguments(self._memory), 1
        self._integrate = kernel.integrate

    def step(
        self, current: Tensor, state: dict[str, Tensor | None], settings: object
    ) -> Tensor | None:
        """Returns the spikes of one more step; ``None``, with no change, if it is another."""
        if self._settings is None or is_traced() or settings != self._settings:
            return None
        v, neurons = state["voltage"], self._neurons
        if type(current) is not Tensor or not self._fits(current) or not self._fits(v):
            return None
        if self._holds:
            hold = state["hold"]
            if not self._fits(hold):
                return None
            neurons.hold = hold.data_ptr()
        out = torch.empty_like(current, dtype=self._spike_dtype)
        neurons.current, neurons.v, neurons.out = current.data_ptr(), v.data_ptr(), out.data_ptr()
        self._integrate(*self._arguments)
        self.since_reset += 1
        return out

    def _fits(self, value: Tensor | None) -> TypeGuard[Tensor]:
        """Returns whether C may read or write a value of the state."""
        # `share_memory_`, `resize_` and `.data = ...` move the memory of the same object.
        if value is None or value.dtype is not self._dtype or value.shape != self._shape:
            return False
        return library.is_plain(value)


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
    spikes = raster.dtype in (torch.bool, dtype) and library.is_plain(raster)
    fits = spikes and raster.shape == (steps + 1, batch, size)
    if not fits or not library.are_values(dtype, *values, *((each, one) for each in state)):
        return False
    if weights is not None and weights.nbytes > _WEIGHTS:
        return False
    kernel = library.kernel_for(dtype)
    if kernel is None:
        return False
    pieces = -(-batch * size // _TOGETHER) if weights is None else batch
    threads = library.threads_among(pieces, current.numel())
    places = arguments(current, weights, *state, membrane, limits, raster)
    sizes = (steps, batch, size, raster.dtype == torch.bool)
    neurons = _Surrogate(*sizes, *constants, *places)
    with Scratch() as scratch:
        row = -(-size * (dtype.itemsize + 4) // 64) * 64
        memory = library.work_memory(scratch, 0 if weights is None else threads * row)
        kernel.integrate_surrogate(ctypes.byref(neurons), memory, threads)
    return True


# Postsynaptic spikes that may wait until the weights of an input are read.
_ROOM = 1 << 16


class PairSTDP(NamedTuple):
    """The constants of one step of STDP by pairs of spikes, and of rules that add factors to it."""

    rate_post: float  # factor of the presynaptic traces on a postsynaptic spike
    rate_pre: float  # factor of the postsynaptic traces on a presynaptic spike
    decay_pre: float  # factor by which presynaptic traces shrink in a step
    decay_post: float  # factor by which postsynaptic traces shrink in a step
    nearest: bool  # whether a spike sets its trace to one, instead of adding one
    # what else each spike is multiplied by: its own side's slow trace just before the step
    triplet_post: float = 0.0
    triplet_pre: float = 0.0
    slow_pre: float | None = None  # factor by which slow traces shrink; None if there are none
    slow_post: float | None = None
    rise: Room | None = None  # what potentiation is multiplied by
    fall: Room | None = None  # what depression is multiplied by
    reward: float | None = None  # factor of the reward; None if there is none
    tc_eligibility: float | None = None  # time constant of what waits for it, in ms
    eligibility: float = 1.0  # factor by which that shrinks in a step

    @property
    def is_plain(self) -> bool:
        """Whether there are pairs only, whose changes do not depend on the weight or a reward."""
        return self[5:] == PairSTDP(*self[:5])[5:]


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

    @property
    def numbers(self) -> tuple[float, float, float, float, float]:
        """The constants as :func:`integrate_neurons` takes them."""
        added = (1 - self.decay) * self.rest
        return self.decay, added, self.threshold, self.decay_theta, self.theta_plus


class OnlineState(NamedTuple):
    """What passes from one sequence to the next."""

    v: Tensor  # membrane potentials, [B, N]
    hold: Tensor  # steps for which neurons are still held at reset, [B, N]
    theta: Tensor  # the rise of the threshold, [N]
    pre: Tensor  # presynaptic traces, [B, E]
    post: Tensor  # postsynaptic traces, [B, N]
    pre_slow: Tensor | None = None  # slow traces, likewise
    post_slow: Tensor | None = None
    pos: Tensor | None = None  # both parts of the eligibility, [B, N, E]
    neg: Tensor | None = None


def run_online(
    raster: Tensor,  # input spikes as booleans, [T, B, E], on the CPU
    weight: Tensor,  # [N, E]
    bias: Tensor | None,  # [N], or None
    neurons: SpikingNeurons,  # the constants of the neurons
    rule: PairSTDP,  # the constants of the rule
    state: OnlineState,  # the state before the first step
    limits: tuple[float, float] | None = None,  # between which all weights are
    reward: Tensor | None = None,  # [T, B]
) -> tuple[Tensor, Tensor, OnlineState] | None:
    """Returns spikes, the new weight as ``[E, N]`` and the state; changes none of its arguments."""
    # `None` if there is no kernel for them.
    steps, batch, inputs = raster.shape
    size, dtype = len(weight), weight.dtype
    largest = max(steps * batch * max(inputs, size), inputs * size)
    kernel = library.kernel_for(dtype)
    if kernel is None or not size or not 0 < largest < 2**31:
        return None
    own = _copies(raster, weight, bias, state, reward)
    own["spikes"] = torch.empty(steps, batch, size, dtype=torch.bool)
    own["powers"] = _powers(rule.decay_pre, steps, dtype)
    if not rule.is_plain:
        own["powers_slow"] = _powers(rule.slow_pre or 1.0, steps, dtype)
        own["waits"] = _powers(rule.eligibility, steps, dtype)
    ends = {name: f"{name}_end" for name in own if name in ("pre", "pre_slow")}
    own |= {end: torch.empty_like(own[name]) for name, end in ends.items()}
    most = min(max(_ROOM, batch * size), steps * batch * size)
    task = _Online(steps, batch, inputs, size, most, *arguments(*map(own.get, _TENSORS)))
    _set_constants(task, neurons, rule, limits)
    work = steps * batch * size * (1 if rule.tc_eligibility is None else inputs)
    threads = 1 if neurons.losers is not None else library.threads_among(-(-size // 16), work)
    values = 2 * batch * inputs + 3 * size + 2 * most
    places = 3 * most + (3 + batch) * inputs + steps + 1
    room = values * dtype.itemsize + 4 * places + 15 * 64
    with Scratch() as scratch:
        memory = library.work_memory(scratch, threads * room)
        kernel.run_online(ctypes.byref(task), memory, Int(room), threads)
    own["hold"].clamp_(min=0)
    after = {name: own[ends.get(name, name)] for name in OnlineState._fields if name in own}
    for name in _BY_INPUT & after.keys():
        after[name] = after[name].movedim(0, -1).contiguous()
    return own["spikes"], own["weight"], OnlineState(**after)


def _powers(decay: float, steps: int, dtype: torch.dtype) -> Tensor:
    """Returns the powers of a decay, ``[T + 1]``."""
    return (decay ** torch.arange(steps + 1, dtype=torch.float64)).to(dtype)


def _copies(
    raster: Tensor, weight: Tensor, bias: Tensor | None, state: OnlineState, reward: Tensor | None
) -> dict[str, Tensor]:
    """Returns contiguous copies on the CPU, whose shapes are checked before C reads them."""
    (steps, batch, inputs), size = raster.shape, len(weight)
    shapes = {
        **{"raster": raster.shape, "weight": (size, inputs), "reward": (steps, batch)},
        **dict.fromkeys(("bias", "theta"), (size,)),
        **dict.fromkeys(("v", "hold", "post", "post_slow"), (batch, size)),
        **dict.fromkeys(("pre", "pre_slow"), (batch, inputs)),
        **dict.fromkeys(("pos", "neg"), (batch, size, inputs)),
    }
    given = {"raster": raster, "weight": weight, "bias": bias, "reward": reward}
    found = {}
    for name, value in {**given, **state._asdict()}.items():
        if value is None:
            continue
        shape = tuple(value.shape)
        check_value(shape == shapes[name], name, shape, f"of shape {shapes[name]}")
        value = value.detach().movedim(-1, 0) if name in _BY_INPUT else value.detach()
        dtype = torch.bool if name == "raster" else weight.dtype
        found[name] = value.to("cpu", dtype, memory_format=torch.contiguous_format, copy=True)
    return found


def _set_constants(
    task: _Online, neurons: SpikingNeurons, rule: PairSTDP, limits: tuple[float, float] | None
) -> None:
    """Sets the numbers of the loop in C."""
    for name in ("decay", "threshold", "period", "decay_theta", "theta_plus"):
        setattr(task, name, getattr(neurons, name))
    for name in ("decay_post", "rate_post", "rate_pre", "triplet_post", "triplet_pre"):
        setattr(task, name, getattr(rule, name))
    task.drive = (1 - neurons.decay) * neurons.rest
    task.slow_post = rule.slow_post or 0.0
    task.low, task.high = limits or (0.0, 0.0)
    rooms = rule.rise, rule.fall
    task.rise, task.fall = (_Room(*room or ()) for room in rooms)
    task.nearest, task.bounded = rule.nearest, limits is not None
    steady = rule.reward is None and rule.slow_pre is None  # all changes of a trace have one sign
    task.direct = rule.tc_eligibility is None and rooms == (None, None) and (steady or not limits)
    task.losers = -1 if neurons.losers is None else neurons.losers


_BY_INPUT = {"weight", "pre", "pre_slow", "pos", "neg"}  # whose inputs come first in C
_TENSORS = (
    *("raster", "spikes", "weight", "bias", "v", "hold", "theta", "pre", "pre_slow"),
    *("pre_end", "pre_slow_end", "post", "post_slow", "pos", "neg", "powers", "powers_slow"),
    *("waits", "reward"),
)


class _Room(ctypes.Structure):
    """The arguments of a `Room`; all are zero for none."""

    _fields_ = tuple((name, Real) for name in Room._fields)


class _Online(ctypes.Structure):
    """The arguments of the C function, in its order; its work memory is a thread's own."""

    _fields_ = (
        *((n, Int) for n in ("steps", "batch", "inputs", "neurons", "most")),
        *((n, At) for n in _TENSORS),
        *((n, Real) for n in ("decay", "drive", "threshold", "period", "decay_theta")),
        *((n, Real) for n in ("theta_plus", "decay_post", "slow_post")),
        *((n, Real) for n in ("rate_post", "rate_pre", "triplet_post", "triplet_pre")),
        *((n, Real) for n in ("low", "high")),
        *((n, _Room) for n in ("rise", "fall")),
        *((n, ctypes.c_int32) for n in ("nearest", "bounded", "direct", "losers")),
        ("memory", At * 14),
    )

"""The kernel's loop over the steps of a layer, which learns in each by a list of terms.

Its plain form is :func:`lightning_accum.rules.learn_online`, step by step.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lightning_accum._checks import check_tensors, check_value
from lightning_accum.functional.bounds import Room
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.kernel_library import At, Int, Real, arguments, fields
from lightning_accum.sparse.neurons import SpikingNeurons

# Neurons of all samples, times the steps for which their spikes may wait until the weights of an
# input are read. It is not a number of spikes, as a thread knows only its own.
_ROOM = 1 << 20
_TOTALS = 1 << 18  # numbers that stay in the cache: totals of one sample's spikes
_LONGEST_BLOCK = 64  # steps
_LOSS = 16.0  # factor by which rounding may grow within a block
_NUMBERS: dict[str, Any] = {"dtype": torch.float64, "device": "cpu"}


class LoopTrace(NamedTuple):
    """An exponential trace of the spikes of one side."""

    decay: float  # factor by which it shrinks in a step; 0: only the spikes of this step count
    nearest: bool = False  # whether a spike sets it to one, instead of adding one
    one: bool = False  # whether it is one in every step, whatever spikes
    passes: bool = True  # whether its values pass to the next sequence; else it begins anew


class LoopTerm(NamedTuple):
    """A product: a spike of one side, times a trace of the other, times a rate."""

    rate: float  # its sign says to which part the product goes; the batch's share is in it
    on_post: bool  # whether postsynaptic spikes make the change, or presynaptic ones
    other: int  # which trace of the other side it is, with the spikes of the step
    own: int | None = None  # which trace of the spike's own side is a factor, before the step


class LoopTerms(NamedTuple):
    """What the loop learns by: traces of both sides, and the terms whose factors they are."""

    pre: tuple[LoopTrace, ...]
    post: tuple[LoopTrace, ...]
    terms: tuple[LoopTerm, ...]
    rise: Room | None = None  # what potentiation is multiplied by
    fall: Room | None = None  # what depression is multiplied by
    reward: float | None = None  # factor of the reward; None if there is none
    tc_eligibility: float | None = None  # time constant of what waits for it, in ms
    eligibility: float = 1.0  # factor by which that shrinks in a step


class OnlineState(NamedTuple):
    """What passes from one sequence to the next."""

    v: Tensor  # membrane potentials, [B, N]
    hold: Tensor  # steps for which neurons are still held at reset, [B, N]
    theta: Tensor  # the rise of the threshold, [N]
    pre: Sequence[Tensor]  # presynaptic traces, each [B, E]; what is given for ones is not read
    post: Sequence[Tensor]  # postsynaptic traces, each [B, N]
    eligible: Sequence[Tensor] = ()  # both parts of the eligibility, each [B, N, E]


def run_online(
    raster: Tensor,  # input spikes as booleans, [T, B, E], on the CPU
    weight: Tensor,  # [N, E]
    bias: Tensor | None,  # [N], or None
    neurons: SpikingNeurons,  # the constants of the neurons
    rule: LoopTerms,  # what is learned
    state: OnlineState,  # the state before the first step
    limits: tuple[float, float] | None = None,  # between which all weights are
    reward: Tensor | None = None,  # [T, B], if the rule takes one
) -> tuple[Tensor, Tensor, OnlineState] | None:
    """Returns spikes, the new weight and the state; changes none of its arguments."""
    # `None` if there is no kernel for them.
    steps, batch, inputs = raster.shape
    size, dtype = len(weight), weight.dtype
    largest = max(steps * batch * max(inputs, size), inputs * size)
    kernel = library.kernel_for(dtype)
    if kernel is None or not size or not 0 < largest < 2**31:
        return None
    own = _copies(raster, weight, bias, rule, state, reward)
    in_c = pre, post, _ = _in_c(rule)
    own["spikes"] = torch.empty(steps, batch, size, dtype=torch.bool, device="cpu")
    own["pre_end"] = torch.empty_like(own["pre"])
    own["powers"] = _powers(rule, steps, dtype)
    own["waits"] = own["powers"][-1]
    sizes = steps, batch, inputs, size, len(pre), len(post)
    task = _Online(*sizes, *in_c, *arguments(*map(own.get, _TENSORS.split())))
    _set_constants(task, neurons, rule, limits)
    task.waits_for = min(steps, max(1, _ROOM // (batch * size)))
    # If rewards differ by magnitudes, differences of totals lose the digits of the smaller ones.
    if task.direct and batch == 1 and rule.reward is None:
        task.waits_for = task.kept = min(steps, max(_LONGEST_BLOCK, _TOTALS // size))
    work = steps * batch * size * (1 if rule.tc_eligibility is None else inputs)
    threads = 1 if neurons.losers != -1 else library.threads_among(-(-size // 16), work)
    width = -(-size // 16 // threads) * 16  # neurons of a thread
    most = task.most = task.waits_for * batch * min(width, size)
    copied = 1 if rule.tc_eligibility is None else 1 + 2 * batch
    values = own["pre"].numel() + 2 * (len(pre) * most + len(post) * batch)
    values += (5 + copied * inputs + len(pre) * task.kept) * width
    places = 3 * most + (3 + batch) * inputs + steps + 1
    # A multiple of 64, so that the memory of the next thread is aligned too.
    room = ((values * dtype.itemsize + 4 * places) // 64 + 23) * 64
    memory = library.work_memory(threads * room)
    kernel.run_online(ctypes.byref(task), memory, Int(room), threads)
    after = state._replace(
        **{name: own[name] for name in ("v", "hold", "theta")},
        pre=own["pre_end"].movedim(1, -1).contiguous().unbind(),
        post=own["post"].unbind(),
        eligible=[own[part] for part in ("pos", "neg") if part in own],
    )
    return own["spikes"], own["weight"], after


@lru_cache(64)
def _powers(rule: LoopTerms, steps: int, dtype: torch.dtype) -> Tensor:
    """Returns ``[pres + 1, T + 1]``, the powers of the presynaptic decays and the eligibility's."""
    pre, _, _ = _in_c(rule)
    decays = torch.tensor([*(trace.decay for trace in pre), rule.eligibility], **_NUMBERS)
    return (decays.unsqueeze(1) ** torch.arange(steps + 1, **_NUMBERS)).to(dtype)


@lru_cache(64)
def _in_c(rule: LoopTerms) -> tuple[ctypes.Array[_Trace], ctypes.Array[_Trace], Any]:
    """Returns the traces of both sides and the terms as C has them; each term names a trace."""
    sides = rule.post, rule.pre
    for term in rule.terms:
        own, others = map(len, sides[:: 1 if term.on_post else -1])
        fits = 0 <= term.other < others and (term.own is None or 0 <= term.own < own)
        should = f"a product with one of {others} traces of the other side, and of {own} of its own"
        check_value(fits, "terms", term, should)
    terms: list[_Term] = []
    pre, post = (
        (_Trace * len(traces))(
            *(_trace(trace, place, on_post, rule, terms) for place, trace in enumerate(traces))
        )
        for on_post, traces in ((True, rule.pre), (False, rule.post))
    )
    return pre, post, (_Term * len(terms))(*terms)


def _trace(
    trace: LoopTrace, place: int, on_post: bool, rule: LoopTerms, terms: list[_Term]
) -> _Trace:
    """Returns a trace as C has it, and adds the terms that have one more factor to a list."""
    own = [t for t in rule.terms if (t.on_post, t.other) == (on_post, place) and t.rate]
    rates, begin = [t.rate for t in own if t.own is None], len(terms)
    terms += [_Term(t.rate, t.own) for t in own if t.own is not None]
    up, down = (sum(max(sign * rate, 0.0) for rate in rates) for sign in (1, -1))
    # what is always one does not decay, and spikes set it to one
    decay, nearest = (1.0, True) if trace.one else trace[:2]
    block = steps_of_block(decay)
    return _Trace(decay, up, down, begin, len(terms), bool(own), nearest, block)


def steps_of_block(decay: float) -> int:
    """Returns for how many steps sums of powers of a decay have one anchor."""
    if decay * _LOSS ** (1 / _LONGEST_BLOCK) >= 1:
        return _LONGEST_BLOCK
    return max(1, int(math.log(_LOSS) / -math.log(decay))) if decay > 0 else 1


def _copies(
    raster: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    rule: LoopTerms,
    state: OnlineState,
    reward: Tensor | None,
) -> dict[str, Tensor]:
    """Returns contiguous copies on the CPU, whose shapes are checked before C reads them."""
    (steps, batch, inputs), size, dtype = raster.shape, len(weight), weight.dtype
    rewarded, waits = (each is not None for each in (rule.reward, rule.tc_eligibility))
    shapes = {
        **{"weight": (size, inputs), "v": (batch, size), "hold": (batch, size), "theta": (size,)},
        **({} if bias is None else {"bias": (size,)}),
        **({"reward": (steps, batch)} if rewarded or waits else {}),
        **(dict.fromkeys(("pos", "neg"), (batch, size, inputs)) if waits else {}),
    }
    given = {"weight": weight, "bias": bias, "reward": reward, **state._asdict()}
    given |= zip(("pos", "neg"), state.eligible, strict=False)
    found = {
        "raster": raster.detach().to("cpu", torch.bool).contiguous(),  # which is only read
        "pre": _stacked("pre", state.pre, rule.pre, (batch, inputs), dtype).mT.contiguous(),
        "post": _stacked("post", state.post, rule.post, (batch, size), dtype),
    }
    for name, shape in shapes.items():
        value = _detached(name, given.get(name), shape)
        found[name] = value.to("cpu", dtype, memory_format=torch.contiguous_format, copy=True)
    return found


def _stacked(
    side: str,
    values: Sequence[Tensor],
    traces: Sequence[LoopTrace],
    shape: tuple[int, int],
    dtype: torch.dtype,
) -> Tensor:
    """Returns a copy of the traces of a side, with ones for those that are always one."""
    check_value(len(values) == len(traces), side, len(values), f"{len(traces)} traces")
    each = [
        torch.ones(shape, **_NUMBERS) if trace.one else _detached(side, value, shape)
        for trace, value in zip(traces, values, strict=True)
    ]
    stacked = torch.stack(each) if each else torch.empty(0, *shape, **_NUMBERS)
    return stacked.to("cpu", dtype).contiguous()


def _detached(name: str, value: Any, shape: tuple[int, ...]) -> Tensor:
    """Returns a tensor without its graph; an error unless it has a shape."""
    if not isinstance(value, Tensor) or value.shape != shape:
        check_tensors(**{name: value})
        check_value(False, name, tuple(value.shape), f"of shape {shape}")
    detached: Tensor = value.detach()
    return detached


def _set_constants(
    task: _Online, neurons: SpikingNeurons, rule: LoopTerms, limits: tuple[float, float] | None
) -> None:
    """Sets the numbers of the loop in C."""
    for name in ("decay", "drive", "threshold", "period", "losers", "decay_theta", "theta_plus"):
        setattr(task, name, getattr(neurons, name))
    task.low, task.high = limits or (0.0, 0.0)
    rooms = rule.rise, rule.fall
    task.rise, task.fall = (_Room(*room or ()) for room in rooms)
    task.bounded = limits is not None
    # whether all changes by the spikes of a neuron have one sign, so that limits can wait
    signs = {term.rate > 0 for term in rule.terms if term.on_post and term.rate}
    steady = rule.reward is None and all(term.own is None for term in rule.terms) and len(signs) < 2
    task.direct = rule.tc_eligibility is None and rooms == (None, None) and (steady or not limits)


_TENSORS = "raster spikes weight bias v hold theta pre pre_end post pos neg powers waits reward"


class _Trace(ctypes.Structure):
    _fields_ = (
        *fields(Real, "decay up down"),
        *fields(ctypes.c_int32, "begin end read nearest block"),
    )


class _Term(ctypes.Structure):
    _fields_ = (("rate", Real), ("own", Int))


class _Room(ctypes.Structure):
    """The arguments of a `Room`; all are zero for none."""

    _fields_ = tuple((name, Real) for name in Room._fields)


class _Online(ctypes.Structure):
    """The arguments of the C function, in its order; its work memory is a thread's own."""

    _fields_ = (
        *fields(Int, "steps batch inputs neurons pres posts"),
        *fields(ctypes.POINTER(_Trace), "of_pre of_post"),
        ("terms", ctypes.POINTER(_Term)),
        *fields(At, _TENSORS),
        *fields(Real, "decay drive threshold period decay_theta theta_plus low high"),
        *fields(_Room, "rise fall"),
        *fields(ctypes.c_int32, "bounded direct losers kept"),
        *fields(Int, "waits_for most"),
        ("memory", At * 19),
    )

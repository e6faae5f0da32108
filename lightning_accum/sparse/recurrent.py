"""The kernel's loop over the steps of a recurrent network that learns by pair STDP.

The plain form is :class:`lightning_accum.cells.populations.Populations` and its rule, step by step.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.kernel_library import At, Int, Real, arguments, fields
from lightning_accum.sparse.neurons import NeuronState, SpikingNeurons
from lightning_accum.sparse.online_loop import LoopTerms, LoopTrace, steps_of_block

_FEWEST_STEPS = 192  # for which a row of weights may wait for a spike
_MOST_PLACES = 2**31 - 1  # of spikes that are exchanged, as int32


class SparseGroup(NamedTuple):
    """A population of neurons, and its state, which changes in place."""

    neurons: SpikingNeurons
    state: NeuronState  # [1, N]
    total: int  # neurons of all processes
    first: int = 0  # the first of the own among them


class PairSTDP(NamedTuple):
    """The constants of one step of STDP by pairs of spikes."""

    rate_post: float  # factor of the presynaptic traces on a postsynaptic spike
    rate_pre: float  # factor of the postsynaptic traces on a presynaptic spike
    decay_pre: float  # factor by which presynaptic traces shrink in a step
    decay_post: float  # factor by which postsynaptic traces shrink in a step
    nearest_pre: bool  # whether a spike sets its trace to one, instead of adding one
    nearest_post: bool


def pairs_of(rule: LoopTerms) -> PairSTDP | None:
    """Returns the constants of a list of terms on pairs of spikes; ``None`` of another list."""
    traces = [*(rule.pre or (LoopTrace(0.0),)), *(rule.post or (LoopTrace(0.0),))]
    plain = len(traces) == 2 and rule[3:] == LoopTerms((), (), ())[3:]
    plain = plain and not any(trace.one for trace in traces)
    if not plain or any(term.own is not None for term in rule.terms):
        return None
    up, down = (sum(t.rate for t in rule.terms if t.on_post == post) for post in (True, False))
    pre, post = traces
    return PairSTDP(up, down, pre.decay, post.decay, pre.nearest, post.nearest)


class SparseWeights(NamedTuple):
    """Weights from one population to another, which change in place if there is a rule."""

    source: int  # populations by number
    target: int
    delay: int  # steps
    starts: Tensor  # int64 [E + 1]
    outputs: Tensor  # int32 [synapses], ascending in the row of each input
    weight: Tensor  # [synapses]
    rule: PairSTDP | None = None
    pre: Tensor | None = None  # [E], the presynaptic traces
    post: Tensor | None = None  # [N], the postsynaptic traces
    limits: tuple[float, float] = (-math.inf, math.inf)

    def suits(self, inputs: int, outputs: int, longest: int) -> bool:
        """Returns whether C reads this as torch does, with delays of up to ``longest`` steps."""
        synapses = len(self.outputs)
        values = (self.weight, (synapses,)), (self.pre, (inputs,)), (self.post, (outputs,))
        kernel = library.kernel_for(self.weight.dtype, *values)
        index = library.are_places(self.outputs) and library.is_plain(self.starts)
        index = index and self.starts.dtype == torch.int64 and 1 <= self.delay <= longest
        if kernel is None or not index:
            return False
        found = arguments(self.starts, inputs, self.outputs, synapses, outputs)
        if len(self.starts) != inputs + 1 or not kernel.are_synapses(*found):
            raise IndexError("Synapses should lead to neurons of the population. Found others.")
        return True


def run_recurrent(
    inputs: Tensor,  # [T, N] current from outside
    past: Tensor,  # bool [D, M] spikes of the last steps, at least of the longest delay
    groups: Sequence[SparseGroup],
    each: Sequence[SparseWeights],
    exchange: Callable[[Tensor], None] | None = None,  # adds the others' spikes of some steps
) -> Tensor:
    """Returns the spikes ``[D + T, M]``, of which the first are those before."""
    # The arguments are those of which `can_run_recurrent` has said that it can.
    (steps, size), kernel = inputs.shape, library.kernel_for(inputs.dtype)
    assert kernel is not None
    work = sum(len(weights.weight) for weights in each)
    parts = library.threads_among(min(len(group.state.v[0]) for group in groups), work // 8)
    spikes = torch.cat((past, past.new_zeros(steps, past.shape[1])))
    kept: list[Tensor] = []
    populations = (_Population * len(groups))(*_populations(groups, kept))
    connections = (_Connection * len(each))(*(_connection(w, parts, kept) for w in each))
    sizes = (steps, size, parts, len(groups), len(each), len(past), past.shape[1])
    network = _Network(*sizes, *arguments(inputs, spikes), populations, connections)
    together = steps
    if exchange is not None:
        limits = max(1, _MOST_PLACES // past.shape[1]), *(weights.delay for weights in each)
        together = min(limits)
    for begin in range(0, steps, together):
        end = min(begin + together, steps)
        kernel.run_recurrent(ctypes.byref(network), Int(begin + 1), Int(end + 1))
        if exchange is not None:
            exchange(spikes[len(past) + begin : len(past) + end])
    for group in groups:
        group.state.hold.clamp_(min=0)
    for weights, made in zip(each, connections, strict=True):
        if weights.pre is not None:
            weights.pre.copy_(kept[made.kept][0])
    return spikes


def can_run_recurrent(
    inputs: Tensor, past: Tensor, groups: Sequence[SparseGroup], each: Sequence[SparseWeights]
) -> bool:
    """Returns whether there is a kernel, which reads the arguments as torch does."""
    dtype, sizes = inputs.dtype, [group.state.v.shape[1] for group in groups]
    totals = [group.total for group in groups]
    inside = all(0 <= g.first <= g.total - n for g, n in zip(groups, sizes, strict=True))
    values: list[tuple[Tensor, tuple[int, ...]]] = [(inputs, (len(inputs), sum(sizes)))]
    for group, n in zip(groups, sizes, strict=True):
        values += zip(group.state, ((1, n), (1, n), (n,)), strict=True)
    spikes = library.are_values(torch.bool, (past, (len(past), sum(totals))))
    some = bool(sizes) and all([len(inputs), *sizes])
    if not (some and inside and spikes) or library.kernel_for(dtype, *values) is None:
        return False
    same = all(w.weight.dtype == dtype for w in each)
    return same and all(w.suits(totals[w.source], sizes[w.target], len(past)) for w in each)


def _populations(groups: Sequence[SparseGroup], kept: list[Tensor]) -> list[_Population]:
    """Returns what C knows of populations."""
    made, first, of = [], 0, 0
    for constants, state, total, own in groups:
        size = state.v.shape[1]
        current = torch.empty(size, dtype=state.v.dtype)
        kept.append(current)
        decay, drive, threshold, decay_theta, theta_plus, period, *_ = constants
        numbers = decay, drive, threshold, period, decay_theta, theta_plus
        places = arguments(state.v, state.hold, state.theta, current)
        made.append(_Population(size, first, total, of, of + own, *places, *numbers))
        first, of = first + size, of + total
    return made


def _connection(w: SparseWeights, parts: int, kept: list[Tensor]) -> _Connection:
    """Returns what C knows of a connection."""
    places = torch.empty(len(w.starts) - 1, parts + 1, dtype=torch.int64)
    kept.append(places)
    known = w.source, w.target, w.delay, *arguments(w.starts, w.outputs, w.weight, places)
    if w.rule is None or w.pre is None or w.post is None:
        return _Connection(*known)
    rule, size, like = w.rule, len(w.post), w.weight.detach()
    block, (low, high) = steps_of_block(rule.decay_pre), w.limits
    blocks = 2 + _FEWEST_STEPS // block
    powers = rule.decay_pre ** torch.arange(blocks * block + 1, dtype=torch.float64)
    tensors = {
        "pre": w.pre.repeat(parts, 1),
        "last": torch.zeros(parts, len(w.pre), dtype=torch.int64),
        "sums": like.new_zeros(blocks, size),
        "history": like.new_zeros(blocks * block, size),
        "change": like.new_zeros(size, 2),
        "powers": powers.where(powers > 1e-30, 0.0).to(like.dtype),
    }
    own = dict(zip((*tensors, "post"), arguments(*tensors.values(), w.post), strict=True))
    numbers = {"block": block, "blocks": blocks, "low": low, "high": high, **rule._asdict()}
    made = _Connection(*known, learns=1, kept=len(kept), **own, **numbers)
    kept += tensors.values()
    return made


class _Population(ctypes.Structure):
    _fields_ = (
        *fields(Int, "size first sources of place"),
        *fields(At, "v hold theta current"),
        *fields(Real, "decay drive threshold period decay_theta theta_plus"),
    )


class _Connection(ctypes.Structure):
    _fields_ = (
        *fields(Int, "source target delay"),
        *fields(At, "starts outputs weight places"),
        *fields(Int, "learns nearest_pre nearest_post block blocks"),
        *fields(At, "pre last post sums history change powers"),
        *fields(Real, "decay_pre decay_post rate_post rate_pre low high"),
        ("kept", Int),  # where Python keeps its tensors
    )


class _Network(ctypes.Structure):
    _fields_ = (
        *fields(Int, "steps size parts populations connections longest width"),
        *fields(At, "input spikes"),
        ("groups", ctypes.POINTER(_Population)),
        ("each", ctypes.POINTER(_Connection)),
    )

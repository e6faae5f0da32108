"""Named terms in the form in which the compiled loops learn by them, after each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lightning_accum.engine.signal import Signal
from lightning_accum.engine.terms import Change, Term
from lightning_accum.functional.traces import decay_factor
from lightning_accum.rules.reward_modulation import Modulated
from lightning_accum.sparse.online_loop import LoopTerm, LoopTerms, LoopTrace

_OTHER = {"pre": "post", "post": "pre"}
_ONE = {"pre": ("one", "pre ones"), "post": ("post ones",)}  # names of constant signals


def loop_terms(
    changes: Sequence[Change] | None, share: float | None, dt: float
) -> LoopTerms | None:
    """Returns terms for a loop, multiplied by a sample's share of a batch; ``None`` if none is."""
    if not changes or share is None:
        return None
    scaled, rewards = _scaled(changes, share, dt)
    traces: dict[str, list[LoopTrace]] = {"pre": [], "post": []}
    placed = [_placed(change, rate, traces) for rate, change in scaled]
    found = tuple(each for each in placed if each is not None)
    if len(found) < len(scaled) or not any(rate for rate, _ in scaled):
        return None
    rooms = [{term.room for rate, term in scaled if (rate > 0) == up} for up in (True, False)]
    if max(map(len, rooms)) > 1:
        return None
    rise, fall = (next(iter(room), None) for room in rooms)
    return LoopTerms(tuple(traces["pre"]), tuple(traces["post"]), found, rise, fall, **rewards)


def terms_in(changes: Sequence[Change]) -> Sequence[Change]:
    """Returns the terms of changes, which a reward may multiply."""
    modulated = len(changes) == 1 and isinstance(changes[0], Modulated)
    return changes[0].terms if modulated else changes  # type: ignore[attr-defined]


def _scaled(
    changes: Sequence[Change], share: float, dt: float
) -> tuple[list[tuple[float, Any]], dict[str, float]]:
    """Returns changes, each with its rate in the loop, and what a reward multiplies them by."""
    first = changes[0]
    if len(changes) > 1 or not isinstance(first, Modulated) or first.modulator is not None:
        return [(share * each.rate, each) for each in changes if each.rate], {}
    if (tc := first.tc) is None:
        return [(share * each.rate, each) for each in first.terms if each.rate], {"reward": 1.0}
    # at a rate of 0 nothing is learned, but eligibility has its traces
    numbers = {"reward": share * dt, "tc_eligibility": tc, "eligibility": decay_factor(tc, dt)}
    return [(each.rate / tc, each) for each in first.terms], numbers


def _placed(term: Change, rate: float, traces: dict[str, list[LoopTrace]]) -> LoopTerm | None:
    """Returns a term by the places of its traces, which are added; ``None`` if it has no spike."""
    if not isinstance(term, Term) or term.transform is not None:
        return None
    for side, own, other in ("post", term.post, term.pre), ("pre", term.pre, term.post):
        factors, trace = _factors(own, side), _trace(other, _OTHER[side])
        if factors is not None and trace is not None:
            before = _place(factors[0], traces[side]) if factors else None
            return LoopTerm(rate, side == "post", _place(trace, traces[_OTHER[side]]), before)
    return None


def _factors(spike: Signal | Tensor, side: str) -> Sequence[LoopTrace] | None:
    """Returns the trace before the step by which a spike is multiplied; ``None`` for no spike."""
    if not isinstance(spike, Signal) or spike.source.side != side or spike.decay is not None:
        return None
    gate = spike.weights
    if gate is None:
        return ()
    if not isinstance(gate, Signal) or not gate.shifted or gate.weights is not None:
        return None
    same = gate.source.side == side
    return (LoopTrace(gate.decay or 0.0, gate.mode == "nearest"),) if same else None


def _trace(signal: Signal | Tensor, side: str) -> LoopTrace | None:
    """Returns the trace of a side that a signal is, with the spikes of the step."""
    if not isinstance(signal, Signal) or signal.weights is not None or signal.shifted:
        return None
    if signal.source.side in _ONE[side]:
        return LoopTrace(1.0, one=True, passes=False)
    if signal.source.side != side:
        return None
    if signal.decay is None:
        return LoopTrace(0.0, passes=False)
    return LoopTrace(signal.decay, signal.mode == "nearest")


def _place(trace: LoopTrace, known: list[LoopTrace]) -> int:
    """Returns the place of a trace among those of a side, to which it is added if it is new."""
    if trace not in known:
        known.append(trace)
    return known.index(trace)

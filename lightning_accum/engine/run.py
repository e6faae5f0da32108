"""Runs a rule over what one cell recorded: piece by piece, parameter by parameter."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lightning_accum.engine.accumulate import Backend, accumulate_terms, one_contribution
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.source import Source
from lightning_accum.engine.state import Carried, StateKey, of_neurons
from lightning_accum.engine.terms import Change, listed
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.engine.window import Window
from lightning_accum.functional.reductions import Reduction
from lightning_accum.sparse.events import Events
from lightning_accum.updates.accumulator import Accumulator

# Elements of both sides that are numbers at a time: 40 MB of a trace of both in float32.
_PIECE_ELEMENTS = 10 << 20


@dataclass(frozen=True)
class Recording:
    """What both sides of a cell recorded since the rule was last called.

    Args:
        pre: presynaptic activity, ``[T, B, ..., in]``.
        post: postsynaptic activity, ``[T, B, ..., out]``.
        dt: step, in ms.
        unit_dim: the dimension that counts neurons.
        events: spikes' indices of both sides, if they are known.
        tensors: other tensors of the connection that the rule reads, by name.
        inputs: what the caller passed to the rule, by name.
    """

    pre: Tensor
    post: Tensor
    dt: float
    unit_dim: int
    events: tuple[Events | None, Events | None] = (None, None)
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)


class Target(NamedTuple):
    """A parameter that a rule trains, and the accumulator of its change."""

    name: str
    param: Tensor
    vjp: WeightVJP
    accumulator: Accumulator


def run_rule(
    terms: Callable[[Window], object],
    giver: str,
    recording: Recording,
    targets: Sequence[Target],
    batch: Reduction,
    backend: Backend,
    carried: Carried,
    carries: bool,
    traces: int = 1,
) -> Generator[None, None, dict[StateKey, Tensor]]:
    """Accumulates what a rule changes, and returns what passes to the next window.

    It yields once, when the rule has returned its first terms and nothing has changed yet, so that
    a rule that refuses what it was given for one cell changes no other cell.

    A long window is evaluated in pieces of bounded memory, which makes no difference to the result.

    Args:
        terms: of the rule, for the signals of one parameter.
        giver: name of the rule, for messages.
        recording: what was recorded.
        targets: the parameters.
        batch: the reduction over the batch.
        backend: how terms are evaluated.
        carried: what the window before left.
        carries: whether what belongs to samples passes to the next window.
        traces: about how many traces of both sides the rule needs at a time, beyond one.
    """
    dtype = torch.float32
    for target in targets:
        dtype = torch.promote_types(dtype, target.param.dtype)
    total = recording.pre.shape[0]
    pieces = _pieces(recording, traces) if batch.adds else [slice(0, total)]
    with ExitStack() as stack:
        accumulators = [
            stack.enter_context(one_contribution(target.accumulator, len(pieces)))
            for target in targets
        ]
        for piece in pieces:
            pre, post = (
                _source(recording, side, piece, carried, dtype) for side in ("pre", "post")
            )
            sources = [pre, post]
            found: list[Sequence[Change]] = []
            for target in targets:
                incoming = pre
                if not target.vjp.reads_input:
                    ones = target.vjp.one(post.activity, pre.activity)
                    make = partial(Source, dt=recording.dt, carried=carried, dtype=dtype)
                    incoming = make(ones, side="bias")
                    sources.append(incoming)
                window = Window(
                    pre=Signal(incoming),
                    post=Signal(post),
                    name=target.name,
                    param=target.param,
                    dt=recording.dt,
                    inputs=recording.inputs,
                    start=piece.start,
                    total=total,
                    vjp=target.vjp,
                    tensors=recording.tensors,
                    carried=carried,
                )
                found.append(listed(terms(window), giver))
            if piece.start == 0:
                yield
            after: dict[StateKey, Tensor] = {}
            for target, accumulator, changes in zip(targets, accumulators, found, strict=True):
                accumulate_terms(accumulator, changes, batch, target.vjp, backend)
                if carries:
                    for change in changes:
                        after.update(change.carry(target.vjp))
            carried = of_neurons(carried)
            for source in sources:
                carried.update(source.carry(of_samples=carries or piece.stop < total))
            carried.update(after)
    return dict(carried)


def _source(
    recording: Recording, side: str, piece: slice, carried: Carried, dtype: torch.dtype
) -> Source:
    activity = recording.pre if side == "pre" else recording.post
    events = recording.events[0 if side == "pre" else 1]
    steps = len(activity)
    if (piece.start, piece.stop) != (0, steps):
        activity = activity[piece]
        if events is not None:
            rows = events.shape[0] // steps
            events = events.part(piece.start * rows, piece.stop * rows)
    return Source(activity, recording.dt, carried, side, dtype, recording.unit_dim, events)


def _pieces(recording: Recording, traces: int) -> list[slice]:
    """Spans of steps whose signals fit in bounded memory as numbers."""
    steps = len(recording.pre)
    if steps == 1:
        return [slice(0, 1)]
    elements = recording.pre[0].numel() + recording.post[0].numel()
    length = max(1, _PIECE_ELEMENTS // max(1, traces * elements))
    return [slice(at, min(at + length, steps)) for at in range(0, steps, length)]

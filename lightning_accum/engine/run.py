"""Runs a rule over what one cell recorded: piece by piece, parameter by parameter."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum.engine.accumulate import (
    Backend,
    accumulate_terms,
    begin_contribution,
    end_contribution,
)
from lightning_accum.engine.recording import BOTH_SIDES, Recording, Target
from lightning_accum.engine.signal import Signal, Source
from lightning_accum.engine.state import Carried, StateKey, of_neurons
from lightning_accum.engine.terms import Change
from lightning_accum.engine.window import Window
from lightning_accum.functional.reductions import Reduction

# Elements of all signals that are converted to numbers at a time: 40 MB in float32.
_PIECE_ELEMENTS = 10 << 20


class Evaluation(NamedTuple):
    """Says how the terms of a window are evaluated.

    Args:
        batch: the reduction over the batch.
        backend: how products are summed.
        carries: whether values that belong to samples pass to the next window.
        traces: about how many traces of each signal the rule needs at a time, beyond one.
    """

    batch: Reduction
    backend: Backend
    carries: bool
    traces: int


def run_rule(
    terms: Callable[[Window], Sequence[Change]],
    recording: Recording,
    targets: Sequence[Target],
    carried: Carried,
    how: Evaluation,
) -> Generator[None, None, dict[StateKey, Tensor]]:
    """Accumulates the changes that a rule makes, and returns what passes to the next window.

    The generator yields once, when the rule has returned its first terms and nothing has changed:
    if a rule rejects its inputs for one cell, no other cell has changed.

    A long window is evaluated in pieces of bounded memory, which does not change the result.

    Args:
        terms: returns the rule's terms for the window of one parameter.
        recording: what was recorded.
        targets: the parameters to train.
        carried: what the previous window left.
        how: how terms are evaluated.
    """
    dtype = torch.float32
    for target in targets:
        dtype = torch.promote_types(dtype, target.param.dtype)
    total = recording.steps
    pieces = _pieces(recording, how.traces) if how.batch.adds else [slice(0, total)]
    sums = [begin_contribution(target.accumulator, len(pieces)) for target in targets]
    for piece in pieces:
        sources = _sources(recording, targets, piece, carried, dtype)
        found = [terms(_window(recording, target, sources, piece, carried)) for target in targets]
        if piece.start == 0:
            yield
        after: dict[StateKey, Tensor] = {}
        for target, accumulator, changes in zip(targets, sums, found, strict=True):
            accumulate_terms(accumulator, changes, how.batch, target.vjp, how.backend)
            if how.carries:
                for change in changes:
                    after.update(change.carry(target.vjp))
        carried = of_neurons(carried)
        for source in sources.values():
            carried.update(source.carry(of_samples=how.carries or piece.stop < total))
        carried.update(after)
    for target, accumulator in zip(targets, sums, strict=True):
        end_contribution(target.accumulator, accumulator)
    return dict(carried)


def _sources(
    recording: Recording,
    targets: Sequence[Target],
    piece: slice,
    carried: Carried,
    dtype: torch.dtype,
) -> dict[str, Source]:
    """Returns the signals of a piece by name, and the constant input of a bias as ``"bias"``."""
    sources = {}
    for name, recorded in recording.signals.items():
        activity, events = recorded.part(piece)
        sources[name] = Source(
            activity, recording.dt, carried, name, dtype, recording.unit_dim, events
        )
    pre, post = sources["pre"].activity, sources["post"].activity
    for target in targets:
        if not target.vjp.reads_input:
            ones = target.vjp.constant_input(post, pre)
            sources["bias"] = Source(ones, recording.dt, carried, "bias", dtype)
    return sources


def _window(
    recording: Recording, target: Target, sources: dict[str, Source], piece: slice, carried: Carried
) -> Window:
    """Returns the window that the rule sees, for one piece and one parameter."""
    return Window(
        pre=Signal(sources["pre" if target.vjp.reads_input else "bias"]),
        post=Signal(sources["post"]),
        name=target.name,
        param=target.param,
        dt=recording.dt,
        inputs=recording.inputs,
        start=piece.start,
        total=recording.steps,
        vjp=target.vjp,
        tensors=recording.tensors,
        carried=carried,
        states={
            name: Signal(sources[name]) for name in recording.signals if name not in BOTH_SIDES
        },
        prepared=recording.prepared,
    )


def _pieces(recording: Recording, traces: int) -> list[slice]:
    """Returns spans of steps whose signals fit in bounded memory as numbers."""
    steps = recording.steps
    if steps == 1:
        return [slice(0, 1)]
    length = max(1, _PIECE_ELEMENTS // max(1, traces * recording.elements))
    return [slice(at, min(at + length, steps)) for at in range(0, steps, length)]

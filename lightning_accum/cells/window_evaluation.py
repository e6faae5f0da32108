"""The plan of a cell: what is the same in all calls of a rule, found once; and its windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import Tensor, nn

from lightning_accum._training_events import Observer
from lightning_accum.cells.cell import Cell, CellRegistry
from lightning_accum.cells.recorded_signals import delays_in
from lightning_accum.cells.single_steps import StepPlanner
from lightning_accum.cells.state import CellState
from lightning_accum.engine.activity_window import Outline
from lightning_accum.engine.neuromodulator import modulators_of
from lightning_accum.engine.rule import Rule
from lightning_accum.engine.rule_inputs import (
    BOTH_SIDES,
    Given,
    Prepared,
    Recorded,
    Recording,
    Target,
    with_levels,
)
from lightning_accum.engine.signal import NeedsData
from lightning_accum.engine.term_operands import check_sides
from lightning_accum.engine.terms import Change, listed
from lightning_accum.engine.vjp import PerSynapse, WeightVJP, kind_of_vjp, unit_dim_of
from lightning_accum.engine.window_changes import Evaluation, WindowChanges, dtype_of
from lightning_accum.observe import Monitor
from lightning_accum.updates import Updater

Signals: TypeAlias = dict[str, Recorded]  # recorded activity by name


def named_terms_of(connection: nn.Module, state: CellState) -> dict[str, Sequence[Change] | None]:
    """Returns the terms of each parameter; ``None`` if the rule has to see numbers for them."""
    found: dict[str, Sequence[Change] | None] = {}
    rule, of_cell = state.rule, (state.options.dt, unit_dim_of(connection))
    for param in state.options.params:
        changes = None
        # what raises an error is asked again with data, in a call of the trainer
        with suppress(NeedsData, Exception):
            outline = Outline(param, *of_cell, [*rule.states()])
            changes = listed(rule.terms(outline), type(rule).__name__)
        named = changes is not None and all(change.is_named for change in changes)
        found[param] = changes if named else None
    return found


class CellPlan:
    """Everything that is the same in all calls of a trainer for one cell."""

    # It follows from the rule and the options of the cell and the kinds of its modules, so
    # registering the cell drops it. It does not hold the modules, which belong to the model.

    def __init__(self, name: str, state: CellState, connection: nn.Module) -> None:
        self.name, self.state = name, state
        self._rule, self._options, self._reads = state.rule, state.options, state.rule.reads()
        self._signals = *BOTH_SIDES, *self._rule.states()
        self._prepares = type(self._rule).prepare is not Rule.prepare
        self._unit_dim = unit_dim_of(connection)
        self._modulators = modulators_of(self._rule)
        # at a rate of 0 nothing is learned, and no trace passes on: as in the compiled loop
        named = {
            param: [term for term in terms if term.rate] or terms if terms else terms
            for param, terms in named_terms_of(connection, state).items()
        }
        batch = state.reduction
        self._how = Evaluation(self._rule, named, batch, self._options.backend)
        plain = self._options.backend == "auto" and not self._modulators and not self._prepares
        self.steps = StepPlanner(batch, named, plain)
        self._vjps: dict[str, WeightVJP] = {}  # whose shapes fit the activity
        self._checked: dict[str, tuple[torch.Size, torch.dtype]] = {}
        self._has_checked_terms = False

    def window(
        self, cell: Cell, monitors: Mapping[str, Monitor], registry: CellRegistry
    ) -> CellWindow | None:
        """Reads and checks what was recorded of the cell; returns ``None`` if that is nothing."""
        signals = self._read(cell, monitors)
        if signals is None:
            return None
        updater = registry.updater_of(self.name, *self._options.params, cell=cell)
        return CellWindow(self, cell, monitors, signals, self._targets(cell, signals, updater))

    def _read(self, cell: Cell, monitors: Mapping[str, Monitor]) -> Signals | None:
        found, kinds = {}, {}
        for signal in self._signals:
            monitor = monitors.get(signal)
            if monitor is not None and (activity := monitor.reducer.window()) is not None:
                found[signal] = Recorded(activity, monitor.reducer.events())
                kinds[signal] = activity.shape, activity.dtype
        if not found:
            return None
        if kinds != self._checked:
            self._check(cell, found, monitors)
            self._checked = kinds
        return found if found["pre"].activity.shape[1] else None

    def _check(self, cell: Cell, found: Signals, monitors: Mapping[str, Monitor]) -> None:
        """Checks that real signals were recorded of the same steps and samples."""
        activity = {signal: recorded.activity for signal, recorded in found.items()}
        sides = activity.get("pre"), activity.get("post")
        _check_same_steps(self.name, cell, *sides, self._options.time_dim)
        pre, post = activity["pre"], activity["post"]
        if pre.is_complex() or post.is_complex():
            raise TypeError(
                f"Activity of cell `{self.name}` should be real. Found {pre.dtype} before and"
                f" {post.dtype} after the connection: record its magnitude or its real part."
            )
        for signal in self._signals:
            steps = None if signal not in activity else tuple(activity[signal].shape[:2])
            if steps != tuple(pre.shape[:2]):
                what = "nothing" if steps is None else f"steps and samples {steps}"
                monitor = monitors.get(signal)
                how = "register the cell again." if monitor is None else monitor.why_missing()
                raise ValueError(
                    f"Signal `{signal}` of cell `{self.name}` should be recorded as often as the"
                    f" neuron gives out spikes, [T, B, ...] with {tuple(pre.shape[:2])}. Found"
                    f" {what}: {how}"
                )

    def _targets(self, cell: Cell, signals: Signals, updater: Updater) -> list[Target]:
        """Returns the parameters to train, whose products are tried with the first activity."""
        found = []
        for param in self._options.params:
            vjp = self._vjps.get(param)
            if vjp is None:
                by_synapse = delays_in(self._rule) is not None
                kind = PerSynapse if by_synapse else kind_of_vjp(cell.connection, param)
                vjp = kind(cell.connection, param, f"`{param}` of cell `{self.name}`")
                vjp.check(*(signals[side].activity[0, :1] for side in ("post", "pre")))
                self._vjps[param] = vjp
            changes = updater.changes
            tensor, pending = changes.target(param).detach(), changes.pending[param]
            found.append(Target(param, tensor, vjp, pending))
        return found

    def evaluated(
        self, seen: CellWindow, inputs: Given, carry: bool | None
    ) -> tuple[Recording, WindowChanges]:
        """Returns all that the rule reads of a window, and its changes; none has been made yet."""
        state, options, signals = self.state, self._options, seen.signals
        carry = options.carry if carry is None else carry
        tensors = {}
        for name in self._reads:
            tensors[name] = getattr(seen.cell.connection, name).detach()
        of_time = signals, options.dt, self._unit_dim, len(signals["pre"].activity)
        recording = Recording(*of_time, tensors, inputs, carry)
        if self._modulators:
            dtype = dtype_of(seen.targets)
            recording = with_levels(recording, self._modulators, state.carried, dtype)
        if self._prepares:
            recording = replace(recording, prepared=self._rule.prepare(recording))
        changes = WindowChanges(self._how, recording, seen.targets, state.carried)
        if not self._has_checked_terms:
            for each in changes.first.changes:
                check_sides(type(self._rule).__name__, each.sides)
            self._has_checked_terms = True
        return recording, changes


@dataclass(eq=False)
class CellWindow:
    """What a cell has recorded since the last call, and the changes that the rule makes of it."""

    plan: CellPlan
    cell: Cell
    monitors: Mapping[str, Monitor]
    signals: Signals
    targets: list[Target]
    recording: Recording = field(init=False)
    changes: WindowChanges = field(init=False)

    def evaluate(self, inputs: Given, carry: bool | None) -> None:
        """Asks for the changes, which inputs may not fit; nothing has changed yet."""
        self.recording, self.changes = self.plan.evaluated(self, inputs, carry)

    def accumulate(self, events: Observer) -> None:
        """Accumulates the changes, and keeps what passes to the next window."""
        plan, recording, state = self.plan, self.recording, self.plan.state
        carried = self.changes.accumulate()
        pre, post = self.signals["pre"].activity, self.signals["post"].activity
        prepared = recording.prepared
        own = prepared.factors if isinstance(prepared, Prepared) else {}
        factors = {**recording.inputs.every, **recording.levels, **own}
        events.evaluated(plan.name, pre, post, factors)
        if state.loaded:
            state.check_loaded(carried, plan.name)
        state.carried = carried
        for target in self.targets:
            state.samples[target.name] = state.samples.get(target.name, 0) + pre.shape[1]
        if recording.steps == 1 and recording.carries and not recording.inputs.every:
            plan.steps.note(self.cell, state, self.targets, self.monitors)


def _check_same_steps(
    name: str, cell: Cell, pre: Tensor | None, post: Tensor | None, time_dim: int | None
) -> None:
    """Raises a ``ValueError`` if both sides differ in steps or samples."""
    if pre is None or post is None:
        side, module = ("connection", cell.connection) if pre is None else ("neuron", cell.neuron)
        seen = pre if post is None else post
        other = "neuron" if pre is None else "connection"
        raise ValueError(
            f"Cell `{name}` should see its connection and its neuron as often as each other. Found"
            f" {_steps(seen)} of the {other} and none of the {side}:"
            f" {_why_none(module, side)}"
        )
    if time_dim == 0 and post.ndim < 3:
        raise ValueError(
            f"Neurons of cell `{name}` should return `[T, B, ...]` for a rule with `time_dim=0`."
            f" Found {post.ndim} dimensions: if they are called once per step, with `[B, ...]`,"
            " give the trainer `time_dim=None`; else give them the missing dimension with"
            " `unsqueeze`."
        )
    if pre.shape[:2] != post.shape[:2]:
        raise ValueError(
            f"Cell `{name}` should see its connection and its neuron as often as each other, with"
            f" the same batch. Found {_steps(pre)} of the connection {tuple(pre.shape[1:])} and"
            f" {len(post)} of the neuron {tuple(post.shape[1:])}: {_why_apart(pre, post, time_dim)}"
        )


def _steps(window: Tensor | None) -> str:
    count = 0 if window is None else len(window)
    return f"{count} step{'' if count == 1 else 's'}"


def _why_none(module: nn.Module, side: str) -> str:
    """Returns why nothing was recorded of one module, and how to mend it."""
    kind = type(module).__name__
    if not module.training:
        return (
            f"the {side}, a {kind}, is in evaluation mode, in which nothing is recorded: call"
            " `train()` on it."
        )
    how = "`fc.forward(x)` or `F.linear(x, fc.weight)`" if side == "connection" else "`forward(x)`"
    return (
        f"the {side}, a {kind} in training mode, was not called, or raised an error: call it as a"
        f" module, for hooks do not see {how}, and do not replace it once its cell is registered."
    )


def _why_apart(pre: Tensor, post: Tensor, time_dim: int | None) -> str:
    """Returns why both sides were recorded differently, and how to mend it."""
    if len(pre) == len(post) and time_dim == 0:
        return (
            "with `time_dim=0`, modules should take and return `[T, B, ...]`: if they are called"
            " once per step, with `[B, ...]`, give the trainer `time_dim=None`."
        )
    if time_dim == 0 and len(pre) == math.prod(post.shape[:2]):
        return (
            "the connection takes time and batch as one dimension. Give it `[T, B, ...]`, which"
            " `nn.Linear` takes, and `lightning_accum.nn.Conv1d` to `Conv3d` do."
        )
    if len(pre) == len(post):
        batch = "give both a batch, as `x[None]`, or " if pre.ndim == post.ndim == 2 else ""
        return (
            f"{batch}let both see the same samples in each step, and the neuron return all"
            " dimensions of the connection's output."
        )
    return (
        "call each once per step (`time_dim=None`), or once per sequence (`time_dim=0`), and as"
        " often as the other."
    )

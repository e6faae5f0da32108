"""The plan of a cell: what is the same in all calls of a rule, found once."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from lightning_accum.cells.cell import Cell
from lightning_accum.cells.recorded import delays_in
from lightning_accum.cells.single_steps import StepPlanner
from lightning_accum.cells.state import CellState
from lightning_accum.engine.accumulate import Known, named_terms
from lightning_accum.engine.neuromodulator import modulators_of
from lightning_accum.engine.products import Changes, check_sides
from lightning_accum.engine.recording import Recorded, Target
from lightning_accum.engine.rule import Rule
from lightning_accum.engine.terms import Change, listed
from lightning_accum.engine.vjp import Synapses, WeightVJP, kind_of_vjp, unit_dim_of
from lightning_accum.engine.window import Window
from lightning_accum.functional.reductions import reduction
from lightning_accum.observe import Monitor
from lightning_accum.updates import Updater

Signals: TypeAlias = dict[str, Recorded]  # recorded activity by name
Observed: TypeAlias = "tuple[CellPlan, Cell, Signals, list[Target]]"  # of a cell, to evaluate


def named_terms_of(connection: nn.Module, state: CellState) -> dict[str, Sequence[Change] | None]:
    """Returns the terms of each parameter of a cell, ``None`` if they depend on data."""
    options = state.options
    return named_terms(state.rule, options.dt, unit_dim_of(connection), options.params)


class CellPlan:
    """Everything that is the same in all calls of a trainer for one cell."""

    # It follows from the rule and the options of the cell and the kinds of its modules, so
    # registering the cell drops it. It does not hold the modules, which belong to the model.

    def __init__(
        self, name: str, state: CellState, signals: Sequence[str], connection: nn.Module
    ) -> None:
        self.name, self.state = name, state
        self.rule, self.options = state.rule, state.options
        self.signals, self.reads = tuple(signals), self.rule.reads()  # those to read
        self.prepares = type(self.rule).prepare is not Rule.prepare
        self.unit_dim = unit_dim_of(connection)
        self.batch = reduction(self.options.batch_reduction)
        self.modulators = modulators_of(self.rule)
        # at a rate of 0 nothing is learned, and no trace passes on: as in the compiled loop
        self.named = {
            param: [term for term in terms if term.rate] or terms if terms else terms
            for param, terms in named_terms_of(connection, state).items()
        }
        named = None not in self.named.values()
        self.traces = 1 if named else 2
        self.forms: dict[str, Known] | None = {} if named else None
        plain = self.options.backend == "auto" and not self.modulators and not self.prepares
        self.steps = StepPlanner(self.batch, self.named, plain)
        self._kinds: dict[str, type[WeightVJP]] = {}  # those whose shapes fit the activity
        self._checked: dict[str, tuple[torch.Size, torch.dtype]] = {}
        self._has_checked_terms = False

    def terms(self, window: Window) -> Sequence[Change]:
        """Returns the changes of a parameter, which the rule is asked for if they need data."""
        named = self.named[window.name]
        return listed(self.rule.terms(window), type(self.rule).__name__) if named is None else named

    def read(self, cell: Cell, monitors: Mapping[str, Monitor]) -> Signals | None:
        """Reads and checks what was recorded of the cell; returns ``None`` if that is nothing."""
        found = {}
        for signal in self.signals:
            monitor = monitors.get(signal)
            if monitor is not None and (activity := monitor.reducer.window()) is not None:
                found[signal] = Recorded(activity, monitor.reducer.events())
        if not found:
            return None
        kinds = {signal: (each[0].shape, each[0].dtype) for signal, each in found.items()}
        if kinds != self._checked:
            self._check(cell, found, monitors)
            self._checked = kinds
        return found if found["pre"].activity.shape[1] else None

    def _check(self, cell: Cell, found: Signals, monitors: Mapping[str, Monitor]) -> None:
        """Checks that real signals were recorded of the same steps and samples."""
        activity = {signal: recorded.activity for signal, recorded in found.items()}
        sides = activity.get("pre"), activity.get("post")
        _check_same_steps(self.name, cell, *sides, self.options.time_dim)
        pre, post = activity["pre"], activity["post"]
        if pre.is_complex() or post.is_complex():
            raise TypeError(
                f"Activity of cell `{self.name}` should be real. Found {pre.dtype} before and"
                f" {post.dtype} after the connection: record its magnitude or its real part."
            )
        for signal in self.signals:
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

    def targets(self, cell: Cell, signals: Signals, updater: Updater) -> list[Target]:
        """Returns the parameters to train, whose products are tried with the first activity."""
        found = []
        for param in self.options.params:
            kind, place = self._kinds.get(param), f"`{param}` of cell `{self.name}`"
            if kind is None:
                by_synapse = delays_in(self.rule) is not None
                kind = Synapses if by_synapse else kind_of_vjp(cell.connection, param)
                sides = (signals[side].activity[0, :1] for side in ("post", "pre"))
                kind(cell.connection, param, place).check(*sides)
                self._kinds[param] = kind
            vjp = kind(cell.connection, param, place)
            changes = updater.changes
            tensor, pending = changes.target(param).detach(), changes.pending[param]
            found.append(Target(param, tensor, vjp, pending))
        return found

    def check_terms(self, changes: Sequence[Changes]) -> None:
        """Checks the sides of the terms that a rule returns first."""
        if not self._has_checked_terms:
            for each in changes:
                check_sides(type(self.rule).__name__, each)
            self._has_checked_terms = True


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

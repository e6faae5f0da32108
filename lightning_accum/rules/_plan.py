"""The plan of a cell: what is the same in all calls of a rule, found once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import nn

from lightning_accum.cells.cell import Cell
from lightning_accum.cells.mismatch import check_same_steps
from lightning_accum.cells.state import CellState
from lightning_accum.engine.accumulate import Terms
from lightning_accum.engine.recording import Recorded, Target
from lightning_accum.engine.terms import Change, check_sides
from lightning_accum.engine.vjp import WeightVJP, unit_dim_of
from lightning_accum.engine.window import Window
from lightning_accum.functional.reductions import reduction
from lightning_accum.observe import Monitor
from lightning_accum.rules._next_step import StepPlanner
from lightning_accum.rules.neuromodulator import modulators_of
from lightning_accum.sparse.costs import Forms
from lightning_accum.updates import Updater

Signals: TypeAlias = dict[str, Recorded]
"""Recorded activity by name."""


class CellPlan:
    """Everything that is the same in all calls of a rule for one cell."""

    # It follows from the hyperparameters of the cell and the kinds of its modules, so registering
    # the cell drops it. It does not hold the modules, which belong to the model.

    def __init__(
        self,
        name: str,
        state: CellState,
        signals: Sequence[str],  # those to read
        reads: Sequence[str],  # other tensors of the connection that the rule reads
        connection: nn.Module,
    ) -> None:
        self.name, self.state, self.h = name, state, state.hyperparameters
        self.signals, self.reads = tuple(signals), tuple(reads)
        self.unit_dim = unit_dim_of(connection)
        self.batch = reduction(self.h.batch_reduction)
        self.modulators = modulators_of(self.h)
        self.forms = {param: Forms() for param in self.h.params}
        self.steps = StepPlanner(self.batch)
        self._kinds: dict[str, type[WeightVJP]] = {}  # those whose shapes fit the activity
        self._checked: dict[str, tuple[torch.Size, torch.dtype]] = {}
        self._has_checked_terms = False

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
        check_same_steps(self.name, cell, *sides, self.h.time_dim)
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

    def targets(
        self,
        cell: Cell,
        signals: Signals,
        updater: Updater,
        kind_of: Callable[[nn.Module, str], type[WeightVJP]],
    ) -> list[Target]:
        """Returns the parameters to train, whose products are tried with the first activity."""
        found = []
        for param in self.h.params:
            kind, place = self._kinds.get(param), f"`{param}` of cell `{self.name}`"
            if kind is None:
                kind = kind_of(cell.connection, param)
                sides = (signals[side].activity[0, :1] for side in ("post", "pre"))
                kind(cell.connection, param, place).check(*sides)
                self._kinds[param] = kind
            vjp = kind(cell.connection, param, place)
            tensor, accumulator = updater.target(param).detach(), getattr(updater, param)
            found.append(Target(param, tensor, vjp, accumulator))
        return found

    def checking(self, terms: Terms, rule: str) -> Terms:
        """Wraps ``terms`` to check the sides of those that it returns first."""
        if self._has_checked_terms:
            return terms

        def checked(window: Window) -> Sequence[Change]:
            found = terms(window)
            check_sides(rule, found)
            self._has_checked_terms = True
            return found

        return checked


class Observed(NamedTuple):
    """What was recorded of a cell, and the parameters to train by it."""

    plan: CellPlan
    cell: Cell
    signals: Signals
    targets: list[Target]

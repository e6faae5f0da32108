"""Evaluates further steps of a cell whose rule is called and applied after each step."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

from torch import Tensor

from lightning_accum._events import Events
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.state import CellState
from lightning_accum.engine.fixed_terms import FixedStep, FixedTerms
from lightning_accum.observe import WindowRecorder
from lightning_accum.observe.reducers.base import Reducer
from lightning_accum.updates import Accumulator, Updater, get_updater

_AT_FIRST = 2  # steps in a row, evaluated by ordinary calls and applied, before one is planned


class NextStep:
    """Evaluates steps in which nothing but the activity changes, without making a window.

    The result, and what is counted, are those of the rule's ordinary call.

    Args:
        cell: the cell, whose modules are held weakly.
        state: the state of the cell.
        param: the name of the parameter.
        recorders: record the activity of both sides, by name.
        seen: the memory ``[B, ...]`` in which they keep a window of one step.
        fixed: evaluates the steps.
    """

    def __init__(
        self,
        cell: Cell,
        state: CellState,
        param: str,
        recorders: Mapping[str, WindowRecorder],
        seen: Mapping[str, Tensor],
        fixed: FixedStep,
    ) -> None:
        self._connection, self._neuron = weakref.ref(cell.connection), weakref.ref(cell.neuron)
        self._state, self._param, self._fixed = state, param, fixed
        self._pre, self._post = recorders["pre"], recorders["post"]
        self._seen_pre, self._seen_post = seen["pre"], seen["post"]
        self._snapshots = state.snapshots
        self._windows = self._seen_pre.unsqueeze(0), self._seen_post.unsqueeze(0)

    def suits(self, replacement: Updater | None) -> bool:
        """Returns whether this evaluates what was recorded; changes nothing.

        Args:
            replacement: the updater, unless it is that of the connection.
        """
        neuron = self._neuron()
        if neuron is None or not self._reads_same():
            return False
        updater = self._updater(replacement)
        if updater is None or self._param not in updater.names:
            return False
        accumulator: Accumulator = getattr(updater, self._param)
        if accumulator is not self._fixed.accumulator or not accumulator.is_free:
            return False
        param = updater.target(self._param)
        return param.is_cpu and param.dtype is self._fixed.dtype

    def apply(self, replacement: Updater | None) -> bool:
        """Applies the change, and returns whether it is done; otherwise nothing has changed.

        Args:
            replacement: the updater, unless it is that of the connection.
        """
        updater = self._updater(replacement)
        return updater is not None and updater.apply_stacked()

    def _updater(self, replacement: Updater | None) -> Updater | None:
        connection = self._connection()
        if connection is None or replacement is not None:
            return replacement
        return get_updater(connection)

    @property
    def accumulator(self) -> Accumulator:
        """The accumulator of the parameter."""
        return self._fixed.accumulator

    def stays(self, accumulator: Accumulator) -> bool:
        """Returns whether this may evaluate later steps, if it did not evaluate this one."""
        return accumulator is self._fixed.accumulator and self._reads_same()

    def _reads_same(self) -> bool:
        """Returns whether one step is recorded in the same memory, without a snapshot since."""
        return (
            self._pre.only_step() is self._seen_pre
            and self._post.only_step() is self._seen_post
            and self._state.snapshots == self._snapshots
        )

    def evaluate(self, cell: str, events: Events) -> None:
        """Accumulates the change.

        Args:
            cell: the name of the cell.
            events: is told of the window.
        """
        state = self._state
        carried = self._fixed.accumulate(state.carried)
        events.evaluated(cell, *self._windows, {})
        if carried is not state.carried:
            state.keep(carried, cell)
        state.samples[self._param] = state.samples.get(self._param, 0) + len(self._seen_pre)


class StepPlanner:
    """Finds out when a rule is called and applied after each step, and plans the next one."""

    def __init__(self) -> None:
        self.next: NextStep | None = None
        self._in_a_row = 0

    def note(
        self,
        cell: Cell,
        state: CellState,
        param: str,
        reducers: Mapping[str, Reducer],
        terms: FixedTerms | None,
        updater: Updater,
    ) -> None:
        """Notes a step that the rule's ordinary call has evaluated.

        Args:
            cell: the cell.
            state: the state of the cell.
            param: the name of the parameter.
            reducers: record the activity of both sides, by name.
            terms: the terms of the step, if they are known.
            updater: holds the accumulator of the parameter.
        """
        accumulator: Accumulator = getattr(updater, param)
        if self.next is not None and self.next.stays(accumulator):
            return
        counts = accumulator.contributions == 1 and terms is not None
        self.next, self._in_a_row = None, self._in_a_row + 1 if counts else 0
        if terms is None or self._in_a_row < _AT_FIRST:
            return
        recorders = {k: each for k, each in reducers.items() if isinstance(each, WindowRecorder)}
        found = {name: recorder.only_step() for name, recorder in recorders.items()}
        seen = {name: step for name, step in found.items() if step is not None}
        fixed = terms.in_memory(accumulator, seen) if len(seen) == 2 else None
        if fixed is not None:
            self.next = NextStep(cell, state, param, recorders, seen, fixed)

    def __reduce__(self) -> tuple[object, ...]:
        return StepPlanner, ()  # a copy plans its own steps

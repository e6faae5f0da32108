"""A trainer that records signals of its cells, and warns if they are never evaluated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from typing_extensions import Self

from lightning_accum._compat import in_dispatch_mode, is_traced
from lightning_accum._ending import delete_at_exit, has_ended
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.independent import RegisteredCell
from lightning_accum.cells.mismatch import warn_of_order, warn_of_reset
from lightning_accum.cells.state import same_settings
from lightning_accum.cells.tally import Tally
from lightning_accum.engine.recording import Given, Recorded
from lightning_accum.functional.reductions import Reduction, reduction
from lightning_accum.rules._cell_plan import CellPlan
from lightning_accum.rules._chain import (
    warn_of_break,
    warn_of_end,
    warn_of_still,
    warn_of_unapplied,
)
from lightning_accum.rules._link import Link
from lightning_accum.rules._options import RuleOptions
from lightning_accum.rules._recorded_signals import RecordedSignal, check_read, read
from lightning_accum.rules._silence import warn_of_late_rules, warn_of_silence
from lightning_accum.rules._warnings import CallsWithoutCells, warn_of_hand_update, warn_of_twin
from lightning_accum.sparse.kernel_online import PairSTDP


class RecordingTrainer(RuleOptions, ABC):
    """Records the signals of each cell that a subclass names in :meth:`_recorded`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._plans: dict[str, CellPlan] = {}
        self._without_cells = CallsWithoutCells(type(self).__name__)
        delete_at_exit(self)

    @abstractmethod
    def _recorded(self, cell: Cell, h: Self) -> Sequence[RecordedSignal]:
        """Returns the signals to record of a cell: those of both sides come first."""

    def reads(self, h: Self) -> tuple[str, ...]:
        """Returns names of the connection's other tensors that ``window.tensors`` should have."""
        return ()

    def register_cell(self, name: str, cell: Cell, /, **overrides: Any) -> RegisteredCell:
        """Adds a cell, an updater for its connection, and the monitors of its signals.

        Args:
            name: name of the cell, without dots.
            cell: the cell.
            **overrides: hyperparameters that differ from the rule's.

        Returns:
            The cell with its state and monitors.
        """
        super().register_cell(name, cell, **overrides)
        state = self.state_of(name)
        self._plans.pop(name, None)
        h = state.hyperparameters
        for other, (known, _) in self.named_cells:
            if other != name and known == cell and same_settings(state, self.state_of(other)):
                warn_of_twin(type(self).__name__, name, other)
                break
        for signal in self._recorded(cell, h):
            make = signal.constructor(name, h)
            self.add_monitor(name, signal.name, signal.attr, make, **signal.tags(h))
        told = partial(warn_of_end, self._link(name)._replace(updater=None))
        self.updater_of(name).call_at_end(self, told)
        return self.get_unit(name)

    def del_cell(self, name: str) -> None:
        """Deletes a cell from the trainer, with its state and its monitors; the model keeps it.

        Args:
            name: the name of the cell.
        """
        if name in self.cell_states:
            warn_of_late_rules(self._link(name))
        super().del_cell(name)
        self._plans.pop(name, None)

    def tally(self, name: str) -> Tally:
        """Returns the counts of a cell's windows."""
        return self.state_of(name).tally

    def loop_constants(self, h: Self, batch: int) -> PairSTDP | None:
        """Returns the constants for the loop in C that learns online, ``None`` for other rules."""
        return None

    def reduction_of(self, name: str) -> Reduction:
        """Returns how a cell reduces its batch."""
        return reduction(self.state_of(name).hyperparameters.batch_reduction)

    def take_samples(self, name: str, param: str) -> int:
        """Returns how many samples' changes of a parameter are pending, and resets the count."""
        return self.state_of(name).samples.pop(param, 0)

    def forget_samples(self) -> None:
        """Counts the samples of pending changes from zero again."""
        for state in self.cell_states.values():
            state.samples.clear()

    def finish_batch(self, carry: bool, **inputs: Any) -> None:
        """Evaluates the rest of a batch.

        Args:
            carry: whether traces pass to the next batch.
            **inputs: what the rule's terms need.
        """
        self(carry=carry, **inputs)

    def update(self, **kwargs: Any) -> None:
        """Applies all pending changes; warns, once, if nothing was evaluated or a callback applies.

        Args:
            **kwargs: passed to the updaters.
        """
        if not kwargs and len(self._plans) == 1 == len(self.registry):
            ((name, plan),) = self._plans.items()
            step = plan.steps.next
            if step is not None and step.apply(self.registry[name].replacement):
                return
        if not self.training:
            self._note_absent((), Given({}))
        planned = any(plan.state.tally.windows for plan in self._plans.values())
        if not planned and not any(self.tally(name).windows for name in self.registry):
            warn_of_break(self._links())
        if not kwargs:
            warn_of_hand_update(type(self).__name__, [self.tally(name) for name in self.registry])
        super().update(**kwargs)

    def _step_again(self, carry: bool | None) -> bool:
        """Evaluates one more step like those before, if there is one; otherwise changes nothing."""
        if not (self.carry if carry is None else carry) or self.backend != "auto" or is_traced():
            return False
        registry, ready = self.registry, [plan.steps.next for plan in self._plans.values()]
        if not ready or len(ready) != len(registry):
            return False
        for name, step in zip(self._plans, ready, strict=True):
            if step is None or not step.suits(registry[name].replacement):
                return False
        if len(ready) > 1 and len({step.accumulator for step in ready if step}) < len(ready):
            return False  # the accumulator of two cells is no longer free for the second one
        try:
            for name, step in zip(self._plans, ready, strict=True):
                if step is not None and step.evaluate(name, carry is not None):
                    warn_of_unapplied(self._link(name))
        finally:
            self.drop_window()
        return True

    def _note_absent(self, present: Sequence[str], given: Given) -> None:
        """Counts a call for the cells of which nothing was recorded; it may warn."""
        cells = {n: (c, self.tally(n)) for n, (c, _) in self.named_cells if n not in present}
        if self.recording or any(tally.watched for _, tally in cells.values()):
            warn_of_silence(type(self).__name__, cells, given, self.training, bool(present))

    def _plan(self, name: str, cell: Cell) -> CellPlan:
        """Returns the plan of a cell, which is made in the first call."""
        plan = self._plans.get(name)
        if plan is None:
            state = self.state_of(name)
            signals = [signal.name for signal in self._recorded(cell, state.hyperparameters)]
            plan = CellPlan(state, signals, cell.connection, self.reads(state.hyperparameters))
            self._plans[name] = plan
        return plan

    def _read(self, name: str, cell: Cell, plan: CellPlan) -> dict[str, Recorded] | None:
        """Reads and checks what was recorded of a cell; returns ``None`` if that is nothing."""
        known = self._pool.members(name)
        monitors = {signal: known.get(signal) for signal in plan.signals}
        found = read(monitors)
        if not found:
            return None
        if not plan.read_before(found):
            check_read(name, cell, found, monitors, plan.h.time_dim)
            same = (self.tally(n) for n, (c, _) in self.named_cells if c.neuron is cell.neuron)
            warn_of_reset(name, cell, len(found["post"].activity), same)
            plan.note_read(found)
        if found["pre"].activity.shape[1] == 0:
            return None
        if not plan.state.tally.windows:
            warn_of_order(name, known["pre"].reducer, known["post"].reducer)
        return found

    def clear(self, **kwargs: Any) -> None:
        """Drops recorded activity and carried traces; averages of neurons stay.

        Args:
            **kwargs: as those of the base class.
        """
        for name, monitor in self.monitors_named("post"):
            if steps := getattr(monitor.reducer, "length", 0):
                self.tally(name).drops.note(steps)
        super().clear(**kwargs)

    def recorded_steps(self, name: str) -> int:
        """Returns the number of recorded steps of a cell that no call has evaluated."""
        self.registry[name]  # raises
        monitor = self._pool.members(name).get("post")
        return 0 if monitor is None else int(getattr(monitor.reducer, "length", 0))

    def train(self, mode: bool = True) -> Self:
        """Sets training mode, in which activity is recorded, or evaluation mode.

        Args:
            mode: whether this is training mode.
        """
        try:
            if self.training and not mode and "registry" in vars(self):
                self._check_learning()
        finally:
            for plan in () if mode else vars(self).get("_plans", {}).values():
                plan.first.end()
            super().train(mode)
        return self

    def check_moved(self) -> None:
        """Warns, once, of cells that changes have not moved, or hardly could; waits."""
        warn_of_still(self._links())

    def _check_learning(self) -> None:
        """Warns, once, of each cell that learned nothing."""
        warn_of_break(self._links())
        if not self.registry.gone:
            self.check_moved()

    def _link(self, name: str, steps: int = 0) -> Link:
        """Returns what is known of a cell, and how many steps no call has evaluated."""
        state, cell = self.state_of(name), self.registry[name].get()
        updater = None if cell is None else self.registry.updater_of(name, cell)
        return Link(type(self).__name__, name, state.hyperparameters, state.tally, updater, steps)

    def _links(self) -> Iterator[Link]:
        """Yields what is known of each cell."""
        for name in self.cell_states:
            if not self.registry[name].loose:
                yield self._link(name, self.recorded_steps(name))

    def __del__(self) -> None:
        if "registry" in vars(self) and not has_ended() and not in_dispatch_mode():
            self._check_learning()

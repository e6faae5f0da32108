"""A trainer that records signals of its cells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from typing_extensions import Self

from lightning_accum._compat import is_traced
from lightning_accum._events import Events
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.independent import RegisteredCell
from lightning_accum.engine.recording import Recorded
from lightning_accum.functional.reductions import Reduction, reduction
from lightning_accum.rules._cell_plan import CellPlan
from lightning_accum.rules._options import RuleOptions
from lightning_accum.rules._recorded_signals import RecordedSignal, check_read, read
from lightning_accum.sparse.neurons import PairSTDP


class RecordingTrainer(RuleOptions, ABC):
    """Records the signals of each cell that a subclass names in :meth:`_recorded`."""

    default_events: ClassVar[Callable[[RecordingTrainer, str], Events] | None] = None
    """Returns what observes a rule that is used by hand, when it gets a cell of a name."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._plans: dict[str, CellPlan] = {}

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
        for signal in self._recorded(cell, h):
            make = signal.constructor(name, h)
            self.add_monitor(name, signal.name, signal.attr, make, **signal.tags(h))
        by_hand = type(self).default_events
        if by_hand is not None and not self.hosted:
            self.events = by_hand(self, name)
        return self.get_unit(name)

    def del_cell(self, name: str) -> None:
        """Deletes a cell from the trainer, with its state and its monitors; the model keeps it.

        Args:
            name: the name of the cell.
        """
        super().del_cell(name)
        self._plans.pop(name, None)
        self.events.dropped(name, 0)

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
        """Applies all pending changes.

        Args:
            **kwargs: passed to the updaters.
        """
        if not kwargs and len(self._plans) == 1 == len(self.registry):
            ((name, plan),) = self._plans.items()
            step = plan.steps.next
            if step is not None and step.apply(self.registry[name].replacement):
                return
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
                if step is not None:
                    step.evaluate(name, self.events)
        finally:
            self.drop_window()
        return True

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
            plan.note_read(found)
        if found["pre"].activity.shape[1] == 0:
            return None
        return found

    def clear(self, **kwargs: Any) -> None:
        """Drops recorded activity and carried traces; averages of neurons stay.

        Args:
            **kwargs: as those of the base class.
        """
        for name, monitor in self.monitors_named("post"):
            if steps := getattr(monitor.reducer, "length", 0):
                self.events.dropped(name, steps)
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
        if self.training and not mode and "events" in vars(self):
            self.events.ended("eval")
        return super().train(mode)

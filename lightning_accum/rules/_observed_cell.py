"""One cell in one call of a rule: what was recorded of it, and the checks of its windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from lightning_accum._compat import is_traced
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.mismatch import warn_of_drops, warn_of_streams
from lightning_accum.engine.fixed_terms import FixedTerms
from lightning_accum.engine.recording import Recorded, Recording, Target
from lightning_accum.engine.state import StateKey, has_samples
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.functional.numbers import is_narrowed
from lightning_accum.observe import Monitor
from lightning_accum.rules._cell_plan import CellPlan
from lightning_accum.rules._warnings import CallsWithoutCells
from lightning_accum.updates import Updater


class ObservedCell(NamedTuple):
    """A cell with the signals that were recorded of it.

    Args:
        name: the name of the cell.
        cell: the cell.
        plan: what is the same in all calls.
        signals: recorded activity, by name.
        vjps: the vector-Jacobian product of each parameter to train, by name.
    """

    name: str
    cell: Cell
    plan: CellPlan
    signals: dict[str, Recorded]
    vjps: dict[str, WeightVJP]

    @property
    def activity(self) -> dict[str, Tensor]:
        """Recorded activity, by name."""
        return {name: recorded.activity for name, recorded in self.signals.items()}

    def known_terms(self, targets: Sequence[Target]) -> FixedTerms | None:
        """Returns the terms of the window if they are known, otherwise ``None``.

        Args:
            targets: the parameters to train.
        """
        pre, post = self.signals["pre"].activity, self.signals["post"].activity
        if is_traced() or is_narrowed(pre.device.type):
            return None
        return self.plan.known_terms(pre, post, targets[0].param)

    def recording(self, inputs: dict[str, Any], carries: bool) -> Recording:
        """Returns everything that the rule reads.

        Args:
            inputs: the keyword arguments of the rule's call.
            carries: whether values that belong to samples pass to the next window.
        """
        plan, connection = self.plan, self.cell.connection
        tensors = {name: getattr(connection, name).detach() for name in plan.reads}
        return Recording(self.signals, plan.h.dt, plan.unit_dim, tensors, inputs, carries)

    def check_streams(self, carry: bool) -> None:
        """Warns, once, if traces are cleared in other windows than the neuron is reset.

        Args:
            carry: whether traces pass to the next window.
        """
        since = getattr(self.cell.neuron, "steps_since_reset", math.inf)
        steps, apart = self.signals["post"].activity.shape[0], False
        state = self.plan.state
        if carry:
            apart = since == steps
        elif 1 < steps < since < math.inf:  # the callback warns of windows of one step
            apart = not has_samples(state.carried)
        if not carry and self._was_reset_alone():
            self._warn_of_reset()
        elif state.tally.note_apart(apart) and self.plan.compares_steps:
            warn_of_streams(self.name, self.cell, carry)

    def check_cleared(self) -> None:
        """Warns, once, if traces pass on in windows before each of which the neuron was reset."""
        apart, tally = self._was_reset_alone(), self.plan.state.tally
        if apart and tally.clears:  # between batches; this is within one
            self._warn_of_reset()
        elif tally.note_apart(apart) and self.plan.compares_steps:
            warn_of_streams(self.name, self.cell, None)

    def _was_reset_alone(self) -> bool:
        """Returns whether the neuron was reset before this window, and traces pass into it."""
        steps = self.signals["post"].activity.shape[0]
        reset = getattr(self.cell.neuron, "steps_since_reset", None) == steps
        return reset and has_samples(self.plan.state.carried)

    def _warn_of_reset(self) -> None:
        """Warns, once, that traces pass from one part of a batch to the next, over a reset."""
        if self.plan.compares_steps and self.plan.state.tally.warns_of_resets():
            warn_of_streams(self.name, self.cell, None)

    def targets(self, updater: Updater) -> list[Target]:
        """Returns the parameters to train.

        Args:
            updater: holds their accumulators.
        """
        return [
            Target(name, updater.target(name).detach(), vjp, getattr(updater, name))
            for name, vjp in self.vjps.items()
        ]

    def plan_step(
        self, terms: FixedTerms | None, updater: Updater, monitors: Mapping[str, Monitor]
    ) -> None:
        """Plans the next step, if the rule is called and applied after each step.

        Args:
            terms: the terms of this step, if they were known.
            updater: holds the accumulator of the parameter.
            monitors: by the name of the signal.
        """
        reducers = {name: monitors[name].reducer for name in self.signals}
        param = self.plan.h.params[0]
        self.plan.steps.note(self.cell, self.plan.state, param, reducers, terms, updater)

    def note(self, carried: dict[StateKey, Tensor], carry: bool) -> bool:
        """Keeps what passes to the next window, and counts the window and its samples.

        Args:
            carried: what passes to the next window.
            carry: whether traces do.

        Returns:
            Whether the tally looked at the activity of this window.
        """
        state, pre, post = self.plan.state, self.signals["pre"], self.signals["post"]
        tally, steps, passed = state.tally, len(post.activity), has_samples(state.carried)
        if not tally.joined:
            tally.joined = passed or (carry and not has_samples(carried))
        batch = pre.activity.shape[1]
        tally.resized += passed and tally.batch not in (0, batch)
        tally.batch = batch
        if tally.drops.window() and tally.warns("drops"):
            warn_of_drops(self.name, tally.drops.steps)
        if carry and steps > 1 and self.plan.by_hand and self.plan.compares_steps:
            went_on = self._went_on(steps, passed)
            if tally.note_cleared(went_on and not passed and has_samples(carried)):
                warn_of_streams(self.name, self.cell, False, cleared=True)
        state.keep(carried, self.name)
        for name in self.vjps if state.tally.remembers else ():
            state.tally.remember(name, getattr(self.cell.connection, name).detach())
        for name in self.vjps:
            state.samples[name] = state.samples.get(name, 0) + batch
        return state.tally.note(pre.activity, post.activity)

    def _went_on(self, steps: int, passed: bool) -> bool:
        """Returns whether the neuron was not reset before this window, as far as is known."""
        plan, neuron = self.plan, self.cell.neuron
        since = getattr(neuron, "steps_since_reset", None)
        if since is None:
            return plan.first.went_on(neuron, plan.h.time_dim == 0, passed)
        before, plan.since = plan.since, since
        return bool(before + steps <= since < math.inf)


def check_windows(
    without: CallsWithoutCells, found: Sequence[ObservedCell | None], carry: bool | None, own: bool
) -> None:
    """Warns if traces and neurons start again at different windows, or there are no cells.

    Args:
        without: is told of a call without cells.
        found: what was recorded of each cell.
        carry: whether traces pass to the next window; ``None`` in a loop of the user's own.
        own: the same, as the rule is set.
    """
    for each in found:
        if each is not None:
            each.plan.by_hand = carry is None and not each.plan.state.tally.watched
    if carry is not None:  # a callback, or another caller, knows what a window is
        for seen in {id(each.cell.neuron): each for each in found if each}.values():
            seen.check_streams(carry)
        return
    if not found:
        without.note()
    for each in found if own else ():
        if each is not None:
            each.check_cleared()

"""One cell in one call of a rule: what was recorded of it, and the checks of its windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from lightning_accum._compat import is_traced
from lightning_accum.cells.cell import Cell
from lightning_accum.engine.fixed_terms import FixedTerms
from lightning_accum.engine.recording import Recorded, Recording, Target
from lightning_accum.engine.state import StateKey
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.functional.numbers import is_narrowed
from lightning_accum.observe import Monitor
from lightning_accum.rules._cell_plan import CellPlan
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

    def keep(self, carried: dict[StateKey, Tensor]) -> None:
        """Keeps what passes to the next window, and counts the samples of this one.

        Args:
            carried: what passes to the next window.
        """
        state, batch = self.plan.state, self.signals["pre"].activity.shape[1]
        state.keep(carried, self.name)
        for name in self.vjps:
            state.samples[name] = state.samples.get(name, 0) + batch

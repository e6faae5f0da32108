"""Everything that one call of a rule evaluates for one cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from lightning_accum.cells.cell import Cell
from lightning_accum.cells.mismatch import warn_of_streams
from lightning_accum.cells.state import CellState
from lightning_accum.engine.recording import Recorded, Recording, Target
from lightning_accum.engine.state import StateKey
from lightning_accum.engine.vjp import WeightVJP, unit_dim_of
from lightning_accum.updates import Updater


class ObservedCell(NamedTuple):
    """A cell with the signals that were recorded of it.

    Args:
        name: the name of the cell.
        cell: the cell.
        state: its hyperparameters, and what passes from window to window.
        signals: recorded activity, by name.
        vjps: the vector-Jacobian product of each parameter to train, by name.
    """

    name: str
    cell: Cell
    state: CellState
    signals: dict[str, Recorded]
    vjps: dict[str, WeightVJP]

    def recording(self, reads: Sequence[str], inputs: dict[str, Any], carries: bool) -> Recording:
        """Returns everything that the rule reads.

        Args:
            reads: names of the connection's other tensors.
            inputs: the keyword arguments of the rule's call.
            carries: whether values that belong to samples pass to the next window.
        """
        connection, dt = self.cell.connection, self.state.hyperparameters.dt
        tensors = {name: getattr(connection, name).detach() for name in reads}
        return Recording(self.signals, dt, unit_dim_of(connection), tensors, inputs, carries)

    def check_streams(self, carry: bool) -> None:
        """Warns, once, if its traces and its neuron do not begin anew at the same windows.

        Args:
            carry: whether traces pass to the next window.
        """
        since = getattr(self.cell.neuron, "steps_since_reset", math.inf)
        steps, apart = len(self.signals["post"].activity), False
        if carry:
            apart = since == steps
        elif 1 < steps < since < math.inf:  # windows of one step are told otherwise
            apart = all(key.scope != "sample" for key in self.state.carried)
        if self.state.tally.note_apart(apart) and self._has_traces:
            warn_of_streams(self.name, self.cell, carry)

    @property
    def _has_traces(self) -> bool:
        """Whether the rule has a time constant, so that it compares steps."""
        constants = vars(self.state.hyperparameters).items()
        return any(name.startswith("tc_") and value is not None for name, value in constants)

    def targets(self, updater: Updater) -> list[Target]:
        """Returns the parameters to train.

        Args:
            updater: holds their accumulators.
        """
        return [
            Target(name, updater.target(name).detach(), vjp, getattr(updater, name))
            for name, vjp in self.vjps.items()
        ]

    def note(self, carried: dict[StateKey, Tensor]) -> bool:
        """Keeps what passes to the next window, and counts the window and its samples.

        Args:
            carried: what passes to the next window.

        Returns:
            Whether the tally looked at the activity of this window.
        """
        state, pre, post = self.state, self.signals["pre"], self.signals["post"]
        state.keep(carried, self.name)
        for name in () if state.tally.windows else self.vjps:
            state.tally.remember(name, getattr(self.cell.connection, name).detach())
        for name in self.vjps:
            state.samples[name] = state.samples.get(name, 0) + pre.activity.shape[1]
        return state.tally.note(pre.activity, post.activity)

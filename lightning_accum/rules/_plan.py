"""What a rule finds out about a cell once, and needs in every call."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from lightning_accum.cells.state import CellState
from lightning_accum.engine.vjp import WeightVJP, unit_dim_of
from lightning_accum.functional.reductions import reduction


class CellPlan:
    """Everything that is the same in all calls of a rule for one cell.

    Registering the cell drops it, because all of it follows from the hyperparameters of the cell
    and the kinds of its modules. It does not hold the modules, which belong to the model.

    Args:
        state: the state of the cell.
        signals: the names of the signals to read.
        connection: the connection.
        reads: the names of the connection's other tensors that the rule reads.
    """

    def __init__(
        self, state: CellState, signals: Sequence[str], connection: nn.Module, reads: Sequence[str]
    ) -> None:
        self.state = state
        self.h = state.hyperparameters
        self.signals = tuple(signals)
        self.reads = tuple(reads)
        self.unit_dim = unit_dim_of(connection)
        self.batch = reduction(self.h.batch_reduction)
        self.vjps: dict[str, type[WeightVJP]] = {}
        """The kinds of the parameters' products, once their shapes fit the activity."""

    @property
    def compares_steps(self) -> bool:
        """Whether the rule has a time constant, so that it compares steps."""
        constants = vars(self.h).items()
        return any(name.startswith("tc_") and value is not None for name, value in constants)

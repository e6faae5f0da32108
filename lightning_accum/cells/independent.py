"""Trainers that treat each cell by itself, with hyperparameters of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch import nn

from lightning_accum._checks import check_mapping, nearest
from lightning_accum.cells.cell import Cell, CellSpec
from lightning_accum.cells.state import CellState, Hyperparameters, frozen
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.cells.unset import Unset
from lightning_accum.observe import Monitor


class RegisteredCell(NamedTuple):
    """One cell with all that a trainer has for it."""

    cell: Cell
    state: nn.Module | None
    monitors: dict[str, Monitor]


class IndependentCellTrainer(CellTrainer):
    """Base of trainers that treat each cell by itself, with hyperparameters of its own.

    Args:
        **hyperparameters: defaults, which a cell may override when it is registered.
    """

    defaults: Hyperparameters = Unset()  # type: ignore[assignment]

    def __init__(self, **hyperparameters: Any) -> None:
        super().__init__()
        self.defaults = Hyperparameters(**hyperparameters)
        self.check(self.defaults)

    def __setattr__(self, name: str, value: Any) -> None:
        defaults = self.__dict__.get("defaults")
        if defaults is not None and name in vars(defaults):
            raise frozen(name, f"`{type(self).__name__}`")
        super().__setattr__(name, value)

    def check(self, h: Hyperparameters) -> None:
        """Raises a ``ValueError`` if hyperparameters make no sense; a subclass says which do."""

    def check_cell(self, name: str, cell: Cell, h: Hyperparameters) -> None:
        """Raises a ``ValueError`` if a cell does not suit its hyperparameters."""

    def register_cell(self, name: str, cell: Cell, /, **overrides: Any) -> RegisteredCell:
        """Adds a cell with hyperparameters of its own.

        A hyperparameter ``params``, where there is one, names what the updater must have.

        Args:
            name: name of the cell; that of a loose cell of a copied trainer binds it anew.
            cell: the cell.
            **overrides: hyperparameters that differ from the trainer's.

        Returns:
            The cell with its state and monitors.

        Raises:
            TypeError: if an override is no hyperparameter of this trainer.
            ValueError: if a hyperparameter makes no sense, or the name is taken.
        """
        known = vars(self.defaults)
        unknown = sorted(set(overrides) - set(known))
        if unknown:
            raise TypeError(
                f"Overrides of cell `{name}` should be hyperparameters of"
                f" `{type(self).__name__}`, among {sorted(known)}. Found {unknown}"
                f"{nearest(unknown[0], known)}"
            )
        self._drop_dead()
        kept = self._states[name] if name in self._states else None
        if not isinstance(kept, CellState) or overrides:
            kept = CellState(Hyperparameters(**{**known, **overrides}))
        h = kept.hyperparameters
        self.check(h)
        if isinstance(cell, Cell):  # or else `add_cell` says so
            self.check_cell(name, cell, h)
        self.add_cell(name, cell, kept, getattr(h, "params", None))
        return self.get_unit(name)

    def get_unit(self, name: str) -> RegisteredCell:
        """A cell with its state and monitors.

        Raises:
            AttributeError: if there is no such cell.
        """
        return RegisteredCell(*self.get_cell(name), dict(self.named_monitors_of(name)))

    def state_of(self, name: str) -> CellState:
        """Returns the state of a cell, with the hyperparameters in force for it.

        Args:
            name: the name of the cell.

        Raises:
            AttributeError: if there is no such cell.
        """
        self.registry[name]  # raises
        state = self._state_of(name)
        assert isinstance(state, CellState)
        return state

    def params_of(self, name: str) -> tuple[str, ...]:
        """The parameters of a cell's connection that are trained."""
        h = getattr(self._state_of(name), "hyperparameters", None)
        params: tuple[str, ...] | None = getattr(h, "params", None)
        return super().params_of(name) if params is None else tuple(params)

    def __iter__(self) -> Iterator[RegisteredCell]:
        """The units, one for each cell."""
        return (self.get_unit(name) for name, _ in self.named_cells)

    def clear(self, **kwargs: Any) -> None:
        """Clears every monitor, and what would pass to the next window."""
        super().clear(**kwargs)
        for state in self._states.values():
            if isinstance(state, CellState):
                state.clear()

    def __repr__(self) -> str:
        known = {k: v for k, v in vars(self.defaults).items() if v is not None or k == "time_dim"}
        settings = ", ".join(f"{k}={v!r}" for k, v in known.items())
        return f"{type(self).__name__}({settings}\n  cells: {', '.join(self.registry) or 'none'})"


def cells_for(trainer: object, cells: object) -> dict[str, CellSpec] | None:
    """The cells that a trainer is to register by itself, where it does.

    Raises:
        TypeError: if it is not a trainer, or does not register cells, or these are not cells.
    """
    if not isinstance(trainer, CellTrainer):
        raise TypeError(
            "Argument `cell_trainer` should be a CellTrainer, such as `STDP(0.01, -0.01)`."
            f" Found `{trainer if isinstance(trainer, type) else type(trainer).__name__}`."
        )
    if cells is None:
        return None
    if not isinstance(trainer, IndependentCellTrainer):
        raise TypeError(
            "Argument `cells` should be None for a trainer that does not register cells by"
            f" itself. Found it given with `{type(trainer).__name__}`: add the cells with"
            " `add_cell`."
        )
    check_mapping("cells", cells)
    assert isinstance(cells, Mapping)
    return {name: CellSpec.of(name, spec) for name, spec in cells.items()}

"""The base class of trainers that have hyperparameters for each cell."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from torch import nn
from typing_extensions import Self, dataclass_transform

from lightning_accum._checks import check_mapping, nearest
from lightning_accum.cells.cell import Cell, CellSpec
from lightning_accum.cells.fields import Field, collect, constructor, field
from lightning_accum.cells.state import CellState, Hyperparameters, frozen
from lightning_accum.cells.trainer import CellTrainer, Unset
from lightning_accum.observe import Monitor


class RegisteredCell(NamedTuple):
    """A cell with its state and its monitors."""

    cell: Cell
    state: nn.Module | None
    monitors: dict[str, Monitor]


@dataclass_transform(field_specifiers=(field,), frozen_default=True)
class IndependentCellTrainer(CellTrainer):
    """Base class of trainers that treat cells separately and have hyperparameters for each.

    A subclass lists its hyperparameters as annotated attributes, as a dataclass does: they become
    arguments of its constructor, and a cell may override them when it is registered.
    """

    _fields: ClassVar[Mapping[str, Field]] = {}
    _signature: ClassVar[inspect.Signature] = inspect.Signature()
    defaults: Self = Unset()  # type: ignore[assignment]

    if TYPE_CHECKING:
        # nn.Module's accepts every name, so that a checker would not find a misspelt one.
        __getattr__: None  # type: ignore[misc, assignment]

    def __init_subclass__(cls, *, kw_only: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        base = cls.__init__
        known: dict[str, Field] = {}
        for each in reversed(cls.__mro__[1:]):
            known |= vars(each).get("_fields", {})
        cls._fields = collect(cls, known, kw_only)
        given = [each.parameter(name) for name, each in cls._fields.items()]
        cls._signature = inspect.Signature(given)
        if base is IndependentCellTrainer.__init__ or hasattr(base, "__signature__"):
            cls.__init__ = constructor(cls, cls._signature)  # type: ignore[method-assign]

    def __init__(self) -> None:
        self._begin()

    def _begin(self, *args: Any, **kwargs: Any) -> None:
        """Sets the fields from the arguments of the constructor."""
        super().__init__()
        kind, known = type(self).__name__, self._signature.parameters
        for name in kwargs:
            if name not in known:
                raise TypeError(
                    f"Arguments of `{kind}` should be among {[*known]}. Found"
                    f" `{name}`{nearest(name, known)}"
                )
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{kind}(): {error}") from None
        bound.apply_defaults()
        given = {name: each.value(bound.arguments[name]) for name, each in self._fields.items()}
        for name, each in self._fields.items():
            if not each.hyperparameter:
                setattr(self, name, given.pop(name))
        self.defaults = cast("Self", Hyperparameters(**given))
        self._check(self.defaults)
        self.__post_init__()
        if "_post_initialized" not in vars(self):
            raise TypeError(
                f"`{kind}.__post_init__` should call that of its base class. Found"
                " that it does not: begin it with `super().__post_init__()`."
            )

    def __post_init__(self) -> None:
        """Sets further attributes of a new trainer; a subclass calls the base class first."""
        self._post_initialized = True

    def _check(self, h: Self) -> None:
        """Calls :meth:`check`, whose result would be lost."""
        found: object = self.check(h)
        if found is not None:
            raise TypeError(
                f"`{type(self).__name__}.check` should raise an error for what makes no sense, and"
                f" return nothing. Found that it returns {found!r}: write"
                " `if not ...: raise ValueError(...)`."
            )

    def __setattr__(self, name: str, value: Any) -> None:
        defaults = self.__dict__.get("defaults")
        if defaults is not None and name in vars(defaults):
            raise frozen(name, f"`{type(self).__name__}`")
        super().__setattr__(name, value)

    def check(self, h: Self) -> None:
        """Raises a ``ValueError`` if hyperparameters make no sense; a subclass defines which do."""

    def complete(self, cell: Cell, given: dict[str, Any]) -> dict[str, Any]:
        """Returns the hyperparameters of a new cell; a subclass may take some from its modules."""
        return given

    def check_cell(self, name: str, cell: Cell, h: Self) -> None:
        """Raises a ``ValueError`` if a cell does not suit its hyperparameters."""

    def register_cell(self, name: str, cell: Cell, /, **overrides: Any) -> RegisteredCell:
        """Adds a cell with its hyperparameters, and the monitors of its signals.

        If the hyperparameters have ``params``, the connection gets an updater for those parameters.

        Args:
            name: as for :meth:`add_cell`.
            cell: the cell.
            **overrides: hyperparameters that differ from the trainer's.

        Returns:
            The cell with its state and monitors.

        Raises:
            TypeError: if an override is not a hyperparameter of this trainer.
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
            given = {**known, **{k: self._fields[k].value(v) for k, v in overrides.items()}}
            given = self.complete(cell, given) if isinstance(cell, Cell) else given
            kept = CellState(Hyperparameters(**given))
        h = kept.hyperparameters
        self._check(h)
        if isinstance(cell, Cell):  # otherwise `add_cell` raises an error
            self.check_cell(name, cell, h)
        self.add_cell(name, cell, kept, getattr(h, "params", None))
        self._watch(name, cell, h)
        return self.get_unit(name)

    def _watch(self, name: str, cell: Cell, h: Self) -> None:
        """Adds what watches a cell; a subclass says what."""

    def get_unit(self, name: str) -> RegisteredCell:
        """Returns a cell with its state and monitors."""
        return RegisteredCell(*self.get_cell(name), dict(self.named_monitors_of(name)))

    def state_of(self, name: str) -> CellState:
        """Returns the state of a cell, with the hyperparameters in force for it.

        Raises:
            RuntimeError: if it was added without :meth:`register_cell`.
        """
        self.registry[name]  # raises
        state = self._state_of(name)
        if not isinstance(state, CellState):
            raise RuntimeError(
                f"Cell `{name}` should have hyperparameters of the {type(self).__name__} that"
                " trains it. Found none, as `add_cell` was called: call `del_cell` and"
                f" `register_cell({name!r}, cell)` instead."
            )
        return state

    def __iter__(self) -> Iterator[RegisteredCell]:
        """Iterates over the cells with their states and monitors."""
        return (self.get_unit(name) for name, _ in self.named_cells)

    def __repr__(self) -> str:
        known = {k: v for k, v in vars(self.defaults).items() if v is not None or k == "time_dim"}
        settings = ", ".join(f"{k}={v!r}" for k, v in known.items())
        return f"{type(self).__name__}({settings}\n  cells: {', '.join(self.registry) or 'none'})"


def cells_for(trainer: object, cells: object) -> dict[str, CellSpec] | None:
    """Returns the cells that a trainer should register, ``None`` if its user adds cells."""
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
    check_mapping("cells", cells, '{"encoder": CellSpec("fc", "lif")}')
    assert isinstance(cells, Mapping)
    return {name: CellSpec.of(name, spec) for name, spec in cells.items()}

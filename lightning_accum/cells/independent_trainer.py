"""The base class of trainers that have hyperparameters for each cell, listed as typed fields."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Optional, cast, get_origin

from torch import nn
from typing_extensions import Self, dataclass_transform

from lightning_accum._checks import check_mapping, nearest
from lightning_accum.cells.cell import Cell, CellSpec
from lightning_accum.cells.state import CellState, Hyperparameters, frozen
from lightning_accum.cells.trainer import CellTrainer, Unset
from lightning_accum.observe import Monitor


@dataclass(frozen=True)
class Field:
    """An argument of a trainer's constructor; :func:`field` describes its options."""

    default: Any = inspect.Parameter.empty
    default_factory: Callable[[], Any] | None = None
    kw_only: bool = False
    hyperparameter: bool = True
    of_neuron: str | None = None
    converter: Callable[[Any], Any] | None = None
    annotation: Any = inspect.Parameter.empty

    def parameter(self, name: str) -> inspect.Parameter:
        """Returns the parameter of the constructor."""
        kind = inspect.Parameter
        default = self.default if self.default_factory is None else None
        annotation = self.annotation
        if default is None and not isinstance(annotation, str):
            annotation = Optional[annotation]  # noqa: UP045 - such as a constant of the neuron, filled in later
        place = kind.KEYWORD_ONLY if self.kw_only else kind.POSITIONAL_OR_KEYWORD
        return kind(name, place, default=default, annotation=annotation)

    def value(self, given: Any) -> Any:
        """Returns the value for an argument, which a factory makes if it is ``None``."""
        if given is None and self.default_factory is not None:
            return self.default_factory()
        return given if self.converter is None else self.converter(given)


def field(
    *,
    default: Any = inspect.Parameter.empty,
    default_factory: Callable[[], Any] | None = None,
    kw_only: bool = False,
    hyperparameter: bool = True,
    of_neuron: str | None = None,
    converter: Callable[[Any], Any] | None = None,
) -> Any:
    """Describes a field of a rule, where a type and a default do not say enough.

    Args:
        default: the default; the field is a required argument without one.
        default_factory: makes the value if none is given, or ``None``.
        kw_only: whether the argument is passed by its name only.
        hyperparameter: whether cells may override it; otherwise it belongs to the rule, as a module
            or an option of the whole rule does, and is set as an ordinary attribute.
        of_neuron: the attribute of the neuron that is taken when the hyperparameter is ``None``,
            in a rule with a third factor.
        converter: returns the value for an argument.

    Example:
        >>> from torch import nn
        >>> from lightning_accum import Rule, Term
        >>> class Gated(Rule):
        ...     lr: float
        ...     gate: nn.Module = field(default_factory=nn.Identity, hyperparameter=False)
        ...     def terms(self, window, h):
        ...         return Term(h.lr, window.post, self.gate(window.pre.values()))
        >>> Gated(0.1).gate
        Identity()
    """
    return Field(default, default_factory, kw_only, hyperparameter, of_neuron, converter)


def _collected(cls: type, known: Mapping[str, Field], kw_only: bool) -> dict[str, Field]:
    """Returns the fields of a class's bases, with defaults that it sets, and those it annotates."""
    taken = set(dir(cls.__base__)) | set(nn.Module.__annotations__)
    own: dict[str, Field] = {}
    for name, annotation in inspect.get_annotations(cls).items():
        annotation = _resolved(annotation, cls)
        if ClassVar in (annotation, get_origin(annotation)):
            continue
        if name not in known and name in taken:
            raise TypeError(
                f"Fields of `{cls.__name__}` should have names that its base classes do not use."
                f" Found `{name}: ...`: choose another name, or, to set what the base class"
                f" calls so, leave out the annotation."
            )
        value = vars(cls).get(name, inspect.Parameter.empty)
        found = value if isinstance(value, Field) else Field(value)
        own[name] = replace(found, annotation=annotation, kw_only=found.kw_only or kw_only)
    for name, found in known.items():
        if name in vars(cls) and name not in own:
            own[name] = replace(found, default=vars(cls)[name], default_factory=None)
    for name, found in own.items():
        if found.hyperparameter:
            setattr(cls, name, property(attrgetter(f"defaults.{name}")))
        elif name in vars(cls):
            delattr(cls, name)
    first = {name: found for name, found in {**known, **own}.items() if not found.kw_only}
    return {**first, **own, **known, **own}


def _resolved(annotation: Any, cls: type) -> Any:
    """Returns the type that an annotation names; the annotation if its names are not known yet."""
    if isinstance(annotation, str):
        try:
            return eval(annotation, vars(sys.modules[cls.__module__]), dict(vars(cls)))
        except Exception:
            return ClassVar if "ClassVar" in annotation else annotation
    return annotation


def _constructor(cls: type, own: inspect.Signature) -> Callable[..., None]:
    """Returns a constructor with the signature of a class's fields, for readers and for a CLI."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self._begin(*args, **kwargs)

    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = own.replace(parameters=[first, *own.parameters.values()])  # type: ignore[attr-defined]
    __init__.__annotations__ = {p.name: p.annotation for p in own.parameters.values()}
    __init__.__module__, __init__.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    return __init__


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
        cls._fields = _collected(cls, known, kw_only)
        given = [each.parameter(name) for name, each in cls._fields.items()]
        cls._signature = inspect.Signature(given)
        if base is IndependentCellTrainer.__init__ or hasattr(base, "__signature__"):
            cls.__init__ = _constructor(cls, cls._signature)  # type: ignore[method-assign]

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


def cells_for(trainer: object, cells: Any) -> dict[str, CellSpec] | None:
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
    return {name: CellSpec.of(name, spec) for name, spec in cells.items()}

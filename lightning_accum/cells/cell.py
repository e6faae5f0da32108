"""Cells, each a connection to train and a neuron, and the registry of a trainer's cells."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from torch import nn

from lightning_accum import _checks as checks
from lightning_accum._compat.torch_internals import compiled_from
from lightning_accum.updates import Updater, attach_updater, get_updater
from lightning_accum.updates.updater import set_updater


@dataclass(unsafe_hash=True)  # no field is ever set again
class Cell:
    """A connection, whose parameters are trained, and a neuron, whose output is postsynaptic.

    Both may be any modules, with any others in between, if the neuron's output has the shape of the
    connection's. A cell owns no parameter and adds nothing to any state dict, and two cells may
    share either module.

    Args:
        connection: the module with the parameters to train. If :func:`torch.compile` returned it,
            the cell has the original module.
        neuron: the module whose output is the postsynaptic activity, likewise.

    Raises:
        TypeError: if one of them is not a module.

    Example:
        >>> import torch
        >>> cell = Cell(torch.nn.Linear(4, 2), torch.nn.ReLU())
        >>> cell.connection.out_features
        2
    """

    connection: nn.Module
    neuron: nn.Module

    def __post_init__(self) -> None:
        for name, module in vars(self).items():
            checks.check_type(isinstance(module, nn.Module), name, module, "a torch.nn.Module")
            setattr(self, name, compiled_from(module))

    def check_params(self, params: Sequence[str], name: str = "") -> None:
        """Raises an ``AttributeError`` if the neuron has a parameter that the connection lacks."""
        for param in params:
            at_neuron = isinstance(getattr(self.neuron, param, None), nn.Parameter)
            if at_neuron and getattr(self.connection, param, None) is None:
                raise AttributeError(
                    f"Cell `{name}` should have the module with the parameters as its connection,"
                    f" and the one that fires as its neuron. Found `{param}` in its neuron, a"
                    f" {type(self.neuron).__name__}, and not in its connection, a"
                    f" {type(self.connection).__name__}: swap them."
                )

    @property
    def updater(self) -> Updater | None:
        """The connection's updater, ``None`` if it has none."""
        return get_updater(self.connection)

    @updater.setter
    def updater(self, value: Updater | None) -> None:
        set_updater(self.connection, value)


@dataclass(frozen=True)
class CellSpec:
    """Names the modules of a cell by their dotted paths in a model, as a YAML file can.

    Args:
        connection: path of the connection inside the model.
        neuron: path of the neuron inside the model.
        params: names of the connection's parameters to train; those of the rule when ``None``.
        overrides: hyperparameters that differ from the rule's for this cell.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.ReLU())
        >>> CellSpec("0", "1").find(model).neuron
        ReLU()
    """

    connection: str
    neuron: str
    params: tuple[str, ...] | None = None
    overrides: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = "the dotted path of a submodule, such as `'encoder.fc'`"
        checks.check_strings(path, connection=self.connection, neuron=self.neuron)
        if self.params is not None:
            object.__setattr__(self, "params", checks.names_in("params", self.params))
        checks.check_mapping("overrides", self.overrides)

    def find(self, model: nn.Module) -> Cell:
        """Returns the cell in ``model``.

        Raises:
            AttributeError: if there is no such module, or the connection lacks a parameter.
        """
        checks.check_module(model=model)
        connection = submodule(model, self.connection, "connection")
        cell = Cell(connection, submodule(model, self.neuron, "neuron"))
        cell.check_params(self.params or ())
        for name in self.params or ():
            if getattr(cell.connection, name, None) is None:
                own = [n for n, _ in connection.named_parameters(recurse=False)]
                raise AttributeError(
                    f"Argument `params` should name parameters of `{self.connection}`, a"
                    f" {type(connection).__name__} with {own}. Found `{name}`."
                )
        return cell

    @classmethod
    def of(cls, name: str, given: object) -> CellSpec:
        """Returns a spec, or a mapping of its arguments as a spec; messages name the cell.

        Raises:
            TypeError: if it is neither, or the name is not a string.
        """
        checks.check_strings("named by strings", cells=name)
        if isinstance(given, CellSpec):
            return given
        known = [each.name for each in fields(cls)]
        if not isinstance(given, Mapping):
            raise TypeError(
                "Argument `cells` should hold CellSpecs by name, such as"
                f' `{{"{name}": CellSpec("fc", "lif")}}`. Found `{type(given).__name__}` for'
                f" `{name}`."
            )
        missing = [key for key in ("connection", "neuron") if key not in given]
        others = [key for key in given if key not in known]
        if missing or others:
            hint = checks.nearest(str(others[0]), known) if others else "."
            raise TypeError(
                f"Argument `cells` should hold CellSpecs by name, or mappings with `connection`,"
                f" `neuron` and, if need be, `params` and `overrides`. Found {[*given]} for"
                f" `{name}`{hint}"
            )
        return cls(**given)


def submodule(model: nn.Module, path: str, argument: str) -> nn.Module:
    """Returns the module of a model at a dotted path, or raises an error of an argument."""
    try:
        return model.get_submodule(path)
    except AttributeError:
        known = [name for name, _ in model.named_modules() if name]
        raise AttributeError(
            f"Argument `{argument}` should be the dotted path of a module in"
            f" `{type(model).__name__}`, one of {known}. Found `{argument} = {path!r}`"
            f"{_in_a_list(model, path)}."
        ) from None


def _in_a_list(model: nn.Module, path: str) -> str:
    """Returns the end of a message if a path leads through a list or a dictionary of modules."""
    names = path.split(".")
    for i, name in enumerate(names[:-1]):
        held = getattr(model, name, None)
        if isinstance(held, (list, tuple, dict)):
            kind = "ModuleDict" if isinstance(held, dict) else "ModuleList"
            return (
                f", and `{'.'.join(names[: i + 1])}` is a {type(held).__name__}, whose modules are"
                f" not part of the model: make it an `nn.{kind}`"
            )
        if not isinstance(held, nn.Module):
            break
        model = held
    return ""


_RESERVED = frozenset(dir(nn.ModuleDict()))


def check_name(name: object) -> None:
    """Raises a ``ValueError`` if something cannot be a key of a ``ModuleDict``."""
    fits = isinstance(name, str) and bool(name) and "." not in name and name not in _RESERVED
    checks.check_value(
        fits, "name", name, "a name without dots that is not a method of a ModuleDict"
    )


class CellRef:
    """Refers to a cell weakly; a copy is loose, and refers to nothing until it is bound."""

    def __init__(self, cell: Cell | None = None) -> None:
        modules = () if cell is None else (cell.connection, cell.neuron)
        self._modules = [weakref.ref(each) for each in modules]
        self.loose = cell is None
        # accumulates the cell's changes instead of the connection's updater
        self.replacement: Updater | None = None

    def get(self) -> Cell | None:
        """Returns the cell, ``None`` if one of its modules no longer exists or this is loose."""
        if self.loose:
            return None
        connection, neuron = self._modules[0](), self._modules[1]()
        if connection is None or neuron is None:
            return None
        cell = Cell.__new__(Cell)  # its modules are checked
        cell.connection, cell.neuron = connection, neuron
        return cell

    def __reduce__(self) -> tuple[Any, ...]:
        return CellRef, ()


class CellRegistry(dict[str, CellRef]):
    """Refers weakly to the cells of a trainer, which belong to the model, by name."""

    def __init__(self, owner: str) -> None:
        super().__init__()
        self._owner = owner

    def __missing__(self, name: str) -> CellRef:
        raise AttributeError(
            f"There should be a cell of that name in {self._owner}, which has {list(self)}. Found"
            f" `{name}`: add it with `add_cell`."
        )

    @property
    def gone(self) -> list[str]:
        """The names of the cells of which a module no longer exists."""
        return [name for name, ref in self.items() if not ref.loose and ref.get() is None]

    @property
    def bound(self) -> list[tuple[str, Cell]]:
        """The cells whose modules exist, with their names."""
        return [(name, cell) for name, ref in self.items() if (cell := ref.get()) is not None]

    def cell(self, name: str) -> Cell:
        """Returns a cell."""
        cell = self[name].get()
        if cell is None:
            raise RuntimeError(
                f"The modules of cell `{name}` no longer exist, or this trainer is a copy: add the"
                " cell again under its name."
            )
        return cell

    def updater(self, name: str, cell: Cell | None = None) -> Updater | None:
        """Returns what accumulates the changes of a cell, which may be at hand, if anything."""
        connection = (cell or self.cell(name)).connection
        replacement = self[name].replacement
        return get_updater(connection) if replacement is None else replacement

    def updater_of(self, name: str, *params: str, cell: Cell | None = None) -> Updater:
        """Returns the updater of a cell; the connection gets one with ``params`` if it has none."""
        cell = cell or self.cell(name)
        updater = self.updater(name, cell)
        if updater is None:
            return attach_updater(cell.connection, *params)
        updater.add(*params)
        return updater

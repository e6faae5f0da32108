"""Cells: a connection to train, and the neuron whose activity it leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from torch import nn

from lightning_accum._checks import check_mapping, check_module, check_strings, names_in, nearest
from lightning_accum._compat import compiled_from
from lightning_accum.updates import Updater, get_updater
from lightning_accum.updates.attached import set_updater


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
        >>> from torch import nn
        >>> cell = Cell(nn.Linear(4, 2), nn.ReLU())
        >>> cell.connection.out_features
        2
    """

    def __init__(self, connection: nn.Module, neuron: nn.Module) -> None:
        for name, module in (("connection", connection), ("neuron", neuron)):
            if not isinstance(module, nn.Module):
                raise TypeError(
                    f"Argument `{name}` should be a torch.nn.Module."
                    f" Found `{type(module).__name__}`."
                )
        self.connection = compiled_from(connection)
        self.neuron = compiled_from(neuron)

    @classmethod
    def of(cls, connection: nn.Module, neuron: nn.Module) -> Cell:
        """Returns the cell of two modules that another cell had."""
        cell = cls.__new__(cls)
        cell.connection, cell.neuron = connection, neuron
        return cell

    def check_params(self, params: Sequence[str], name: str = "") -> None:
        """Raises an ``AttributeError`` if the neuron has a parameter that the connection lacks.

        Args:
            params: names of parameters to train.
            name: the name of the cell, for the message.
        """
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

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Cell)
            and self.connection is other.connection
            and self.neuron is other.neuron
        )

    def __hash__(self) -> int:
        return hash((id(self.connection), id(self.neuron)))

    def __repr__(self) -> str:
        return f"Cell({self.connection}, {self.neuron})"


@dataclass(frozen=True)
class CellSpec:
    """Names the modules of a cell by their dotted paths in a model, as a YAML file can.

    Args:
        connection: path of the connection inside the model.
        neuron: path of the neuron inside the model.
        params: names of the connection's parameters to train; those of the rule when ``None``.
        overrides: hyperparameters that differ from the rule's for this cell.

    Example:
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
        >>> CellSpec("0", "1").find(model).neuron
        ReLU()
    """

    connection: str
    neuron: str
    params: tuple[str, ...] | None = None
    overrides: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        path = "the dotted path of a submodule, such as `'encoder.fc'`"
        check_strings(path, connection=self.connection, neuron=self.neuron)
        if self.params is not None:
            object.__setattr__(self, "params", names_in("params", self.params))
        check_mapping("overrides", self.overrides)

    def find(self, model: nn.Module) -> Cell:
        """Returns the cell in ``model``.

        Raises:
            AttributeError: if there is no such module, or the connection lacks a parameter.
        """
        check_module(model=model)
        connection = _module(model, self.connection, "connection")
        neuron = _module(model, self.neuron, "neuron")
        cell = Cell(connection, neuron)
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
        """Returns a spec unchanged, and a mapping of its arguments as a spec.

        Args:
            name: the name of the cell, for messages.
            given: the spec or the mapping.

        Raises:
            TypeError: if it is neither.

        Example:
            >>> CellSpec.of("enc", {"connection": "fc", "neuron": "lif"}).connection
            'fc'
        """
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
            hint = nearest(str(others[0]), known) if others else "."
            raise TypeError(
                f"Argument `cells` should hold CellSpecs by name, or mappings with `connection`,"
                f" `neuron` and, if need be, `params` and `overrides`. Found {[*given]} for"
                f" `{name}`{hint}"
            )
        return cls(**given)


def _module(model: nn.Module, path: str, argument: str) -> nn.Module:
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

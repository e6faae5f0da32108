"""The registry of a trainer: its cells by name, held weakly."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from torch import nn

from lightning_accum.cells.cell import Cell
from lightning_accum.updates import Updater, get_updater

_RESERVED = frozenset(dir(nn.ModuleDict()))


def check_name(name: object) -> None:
    """Raises a ``ValueError`` if something cannot be a key of a ``ModuleDict``.

    Args:
        name: the name of a cell or a monitor.
    """
    if not isinstance(name, str) or not name or "." in name or name in _RESERVED:
        raise ValueError(
            "Argument `name` should be a name without dots that is not a method of a ModuleDict."
            f" Found `{name = }`."
        )


class CellRef:
    """Refers to a cell weakly; a copy refers to nothing until a cell is bound to it.

    Args:
        cell: the cell.
    """

    def __init__(self, cell: Cell) -> None:
        self._connection: weakref.ref[nn.Module] | None = weakref.ref(cell.connection)
        self._neuron: weakref.ref[nn.Module] | None = weakref.ref(cell.neuron)
        self.loose = False
        """Whether this is a copy to which no cell was bound yet."""
        self.replacement: Updater | None = None
        """Accumulates the cell's changes instead of the connection's updater, unless ``None``."""

    @property
    def gone(self) -> bool:
        """Whether one of the cell's modules no longer exists."""
        return _is_gone(self._connection) or _is_gone(self._neuron)

    def get(self) -> Cell | None:
        """Returns the cell, ``None`` if one of its modules no longer exists or this is loose."""
        connection = None if self._connection is None else self._connection()
        neuron = None if self._neuron is None else self._neuron()
        return None if connection is None or neuron is None else Cell.of(connection, neuron)

    def __getstate__(self) -> dict[str, Any]:
        return {"_connection": None, "_neuron": None, "loose": True, "replacement": None}


def _is_gone(ref: weakref.ref[nn.Module] | None) -> bool:
    return ref is not None and ref() is None


class CellRegistry:
    """Holds the cells of a trainer by name.

    The cells belong to the model and are held weakly. A copy of a registry has all names, and each
    of them is loose until a cell is added under it again.

    Args:
        owner: the name of the trainer's class, for messages.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._refs: dict[str, CellRef] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._refs

    def __len__(self) -> int:
        return len(self._refs)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._refs))

    def __getitem__(self, name: str) -> CellRef:
        """Returns the reference to a cell.

        Raises:
            AttributeError: if there is no such cell.
        """
        if name not in self._refs:
            raise AttributeError(
                f"There should be a cell of that name in {self._owner}, which has"
                f" {list(self._refs)}. Found `{name}`: add it with `add_cell`."
            )
        return self._refs[name]

    @property
    def gone(self) -> list[str]:
        """The names of the cells of which a module no longer exists."""
        return [name for name, ref in self._refs.items() if ref.gone]

    @property
    def bound(self) -> list[tuple[str, Cell]]:
        """The cells whose modules exist, with their names."""
        found = []
        for name, ref in self._refs.items():
            if (cell := ref.get()) is not None:
                found.append((name, cell))
        return found

    def check_new(self, name: str) -> None:
        """Raises a ``ValueError`` if a name is taken by another cell, or is not a name.

        Args:
            name: the name of a cell to add.
        """
        if name in self._refs and not self._refs[name].loose:
            raise ValueError(
                f"Argument `name` should be new to the trainer, which has {list(self._refs)}."
                f" Found `{name = }`: choose another, or call `del_cell({name!r})` first."
            )
        check_name(name)

    def add(self, name: str, cell: Cell) -> None:
        """Adds a cell, or binds a loose name to it.

        Args:
            name: the name of the cell.
            cell: the cell.
        """
        self._refs[name] = CellRef(cell)

    def remove(self, name: str) -> None:
        """Removes a cell.

        Args:
            name: the name of the cell.
        """
        del self._refs[name]

    def cell(self, name: str) -> Cell:
        """Returns a cell.

        Args:
            name: the name of the cell.

        Raises:
            AttributeError: if there is no such cell.
            RuntimeError: if its modules no longer exist, or this is a copy.
        """
        cell = self[name].get()
        if cell is None:
            raise RuntimeError(
                f"The modules of cell `{name}` no longer exist, or this trainer is a copy: add the"
                " cell again under its name."
            )
        return cell

    def updater(self, name: str) -> Updater | None:
        """Returns the updater in which a cell's changes accumulate, ``None`` if it has none.

        Args:
            name: the name of the cell.
        """
        return self.updater_of(name, self.cell(name))

    def updater_of(self, name: str, cell: Cell) -> Updater | None:
        """Returns the updater in which changes of a cell, which is at hand, accumulate.

        Args:
            name: the name of the cell.
            cell: the cell.
        """
        replacement = self._refs[name].replacement
        return get_updater(cell.connection) if replacement is None else replacement

    def check_bound(self) -> None:
        """Raises a ``RuntimeError`` if this is a copy, which would train nothing silently."""
        if loose := [name for name, ref in self._refs.items() if ref.loose]:
            raise RuntimeError(
                f"This {self._owner} is a copy, and its cells {loose} belong to the original: add"
                " them again under their names, with the modules of the copy."
            )

"""Holds cells with their state, and the monitors that watch them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from lightning_accum._events import SILENT, Events
from lightning_accum._state import CheckedState
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.monitors import CellMonitors
from lightning_accum.cells.registry import CellRegistry, check_name
from lightning_accum.cells.unset import Unset
from lightning_accum.observe import Monitor
from lightning_accum.observe.monitor import MonitorConstructor
from lightning_accum.updates import attach_updater


class CellObserver(CheckedState):
    """Base class of everything that watches cells.

    The observer owns monitors and auxiliary state, and moves them with ``.to()``. The cells belong
    to the model: they are held weakly, and a cell whose modules no longer exist is dropped. The
    monitors are registered in training mode and deregistered in evaluation mode. A copy of an
    observer has all state and no cells: add the cells again under their names.
    """

    registry: CellRegistry = Unset()  # type: ignore[assignment]
    """The cells by name."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        if kwargs:
            raise TypeError(
                f"{type(self).__name__} should be given only its own arguments."
                f" Found {sorted(kwargs)}."
            )
        self.registry = CellRegistry(type(self).__name__)
        self.events: Events = SILENT
        self.unread: list[str] = []  # inputs that the latest call has not read
        self.hosted = False  # whether a callback or a Fabric loop calls and applies it
        self._states = nn.ModuleDict()
        self._pool = CellMonitors()

    # ------------------------------------------------------------------ cells
    def add_cell(
        self,
        name: str,
        cell: Cell,
        state: nn.Module | None = None,
        params: Sequence[str] | None = None,
    ) -> tuple[Cell, nn.Module | None]:
        """Adds a cell and any auxiliary state.

        Args:
            name: name of the cell, without dots. In a copy of a trainer, the name of a cell of the
                original binds the copied state and monitors to ``cell``.
            cell: the cell.
            state: auxiliary state, owned by the trainer.
            params: parameters of the connection that must be updatable; the connection gets an
                updater if it has none.

        Returns:
            The cell and its auxiliary state.

        Raises:
            ValueError: if the name is taken, or is not a name.
            TypeError: if ``cell`` is not a cell.
            AttributeError: if the connection lacks one of ``params``.
        """
        if not isinstance(cell, Cell):
            raise TypeError(
                f"Argument `cell` should be a Cell. Found `{type(cell).__name__}`: make one of two"
                " modules, `Cell(connection, neuron)`."
            )
        self._drop_dead()
        self.registry.check_new(name)
        if params:
            cell.check_params(params, name)
            updater = attach_updater(cell.connection, *params)
            updater.label = f"{type(cell.connection).__name__} (cell {name})"
        is_loose = name in self.registry
        self.registry.add(name, cell)
        if state is not None:
            self._states[name] = state
        if is_loose:
            self._pool.bind(name, cell)
        else:
            self._pool.add_group(name)
        return cell, self._state_of(name)

    def get_cell(self, name: str) -> tuple[Cell, nn.Module | None]:
        """Returns a cell and its auxiliary state.

        Raises:
            AttributeError: if there is no such cell.
            RuntimeError: if the cell's modules no longer exist, or this trainer is a copy.
        """
        return self.registry.cell(name), self._state_of(name)

    def del_cell(self, name: str) -> None:
        """Deletes a cell from the trainer, with its state and its monitors; the model keeps it.

        Raises:
            AttributeError: if there is no such cell.
        """
        self.registry[name]  # raises
        self._pool.del_group(name)
        self.registry.remove(name)
        if name in self._states:
            del self._states[name]

    @property
    def cells(self) -> Iterator[tuple[Cell, nn.Module | None]]:
        """Added cells and their auxiliary states."""
        return (pair for _, pair in self.named_cells)

    @property
    def named_cells(self) -> Iterator[tuple[str, tuple[Cell, nn.Module | None]]]:
        """Added cells and their auxiliary states, by name."""
        return ((name, (cell, self._state_of(name))) for name, cell in self._living())

    def _living(self) -> list[tuple[str, Cell]]:
        """Returns the cells of which both modules exist, by name; drops the others."""
        found = self.registry.bound
        if len(found) < len(self.registry) and self.registry.gone:
            self._drop_dead()
        return found

    # ------------------------------------------------------------------ monitors
    def add_monitor(
        self,
        cell: str,
        name: str,
        attr: str,
        monitor: MonitorConstructor,
        unique: bool = False,
        /,
        **tags: Any,
    ) -> Monitor:
        """Adds a monitor to a cell, or an equal monitor that another cell has.

        Args:
            cell: name of the cell.
            name: name of the monitor, unique to the cell.
            attr: dotted path of the watched attribute, relative to the cell (``"neuron"``,
                ``"connection"``, ``"neuron.voltage"``).
            monitor: constructor, as from :meth:`Monitor.partialconstructor`.
            unique: whether to add a new monitor in any case, in place of one of that name.
            **tags: distinguish monitors that are equal in name, class, path and reducer.

        Returns:
            The monitor, new or shared.

        Raises:
            AttributeError: if there is no such cell, or the path leads nowhere.
            ValueError: if the name has dots, or is not a name.
        """
        watched = self.registry.cell(cell)
        check_name(name)
        made = monitor(watched, attr)
        made.deregister()
        return self._pool.add(cell, name, made, None if unique else tuple(sorted(tags.items())))

    def get_monitor(self, cell: str, name: str) -> Monitor | None:
        """Returns a monitor, ``None`` if the cell has none of that name.

        Raises:
            AttributeError: if there is no such cell.
        """
        self.registry[cell]  # raises
        return self._pool.get(cell, name)

    def del_monitor(self, cell: str, name: str) -> None:
        """Deletes a monitor from a cell; others that share it keep it.

        Raises:
            AttributeError: if there is no such cell, or it has no such monitor.
        """
        if self.get_monitor(cell, name) is None:
            raise AttributeError(
                f"Argument `name` should be a monitor of cell `{cell}`, one of"
                f" {[known for known, _ in self._pool.of(cell)]}. Found `{name = }`."
            )
        self._pool.delete(cell, name)

    @property
    def monitors(self) -> Iterator[Monitor]:
        """Added monitors, each once however many cells share it."""
        return self._pool.unique()

    @property
    def named_monitors(self) -> Iterator[tuple[tuple[str, str], Monitor]]:
        """Added monitors by the names of cell and monitor."""
        return self._pool.named()

    def monitors_named(self, name: str) -> Iterator[tuple[str, Monitor]]:
        """Returns the monitors of a name, with the names of their cells."""
        return self._pool.called(name)

    def named_monitors_of(self, cell: str) -> Iterator[tuple[str, Monitor]]:
        """Returns the monitors of one cell, by name.

        Raises:
            AttributeError: if there is no such cell.
        """
        self.registry[cell]  # raises
        return iter(self._pool.of(cell))

    @property
    def recording(self) -> bool:
        """Whether registered monitors record; false pauses them without removing their hooks."""
        return self._pool.switch.on

    @recording.setter
    def recording(self, value: bool) -> None:
        self._pool.switch.on = value

    def clear(self, **kwargs: Any) -> None:
        """Clears every monitor; updaters, which other trainers may share, keep what is pending."""
        self._pool.clear(**kwargs)

    def confirm(self) -> None:
        """Checks recorded activity that is not checked yet, and waits for the device.

        On an accelerator, activity is only checked here. The callback calls it when statistics are
        logged, and after an epoch.

        Raises:
            ValueError: if activity of a rule on spikes was not 0 or 1.
        """
        self._pool.confirm()

    def drop_window(self) -> None:
        """Drops activity recorded since the last call; values that are carried stay."""
        self._pool.drop_window()

    def _drop_dead(self) -> None:
        """Drops cells of which a module no longer exists."""
        for name in self.registry.gone:
            self.del_cell(name)

    def _state_of(self, name: str) -> nn.Module | None:
        states = self._states
        return states[name] if name in states else None

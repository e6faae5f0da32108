"""The monitors of a trainer, which are registered in training mode and can pause recording."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from lightning_accum.cells.cell import Cell
from lightning_accum.observe import Monitor
from lightning_accum.observe.pool import MonitorPool
from lightning_accum.observe.switch import Switch


class CellMonitors(MonitorPool):
    """Pools the monitors of cells, each of which follows the trainer's mode.

    In training mode the monitors of modules that exist are registered, in evaluation mode none is.
    """

    def __init__(self) -> None:
        super().__init__()
        self.switch = Switch()

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute; monitors follow the mode, which Lightning restores without `train`."""
        super().__setattr__(name, value)
        if name == "training":
            for monitor in self.unique():
                self._follow(monitor)

    def add(
        self, group: str, name: str, monitor: Monitor, tags: tuple[Hashable, ...] | None = None
    ) -> Monitor:
        """Adds a monitor, or an equal one of the pool, as :class:`MonitorPool` does.

        Args:
            group: the name of the cell.
            name: the name of the monitor within the cell.
            monitor: the monitor.
            tags: further properties that equal monitors share; ``None`` to share none.

        Returns:
            The monitor that is used.
        """
        used = super().add(group, name, monitor, tags)
        self._follow(used)
        return used

    def bind(self, group: str, cell: Cell) -> None:
        """Binds the monitors of a copy to a cell.

        Args:
            group: the name of the cell.
            cell: the cell.
        """
        for _, monitor in self.of(group):
            monitor.bind(cell)
            self._follow(monitor)

    def clear(self, **kwargs: Any) -> None:
        """Clears every monitor.

        Args:
            **kwargs: passed to the monitors.
        """
        for monitor in self.unique():
            monitor.clear(**kwargs)

    def drop_window(self) -> None:
        """Drops recorded windows; other reducers keep what they have."""
        for monitor in self.unique():
            monitor.reducer.drop_window()

    def confirm(self) -> None:
        """Checks everything that was recorded and is not checked yet; waits for the device.

        Raises:
            ValueError: if activity of a rule on spikes is not 0 or 1.
        """
        for monitor in self.unique():
            monitor.reducer.confirm()

    def _follow(self, monitor: Monitor) -> None:
        """Brings a monitor in line with the trainer's mode."""
        monitor.switch = self.switch
        if self.training and monitor.module is not None:
            monitor.register()
        else:
            monitor.deregister()

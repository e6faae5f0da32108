"""Warns of updates that were dropped because of NaN or Inf."""

from __future__ import annotations

import warnings

from lightning_accum.callbacks._host import CellHost
from lightning_accum.rules._unmoved import dropped_updates


class DroppedUpdates:
    """Counts the updates of cells that were dropped since a fit began.

    Args:
        host: the host of the cells.
    """

    def __init__(self, host: CellHost) -> None:
        self._host = host
        self._before = self._ever()

    def warn(self) -> None:
        """Warns of the updates that were dropped."""
        for (cell, name), count in self._ever().items():
            dropped = count - self._before.get((cell, name), 0)
            if dropped:
                warnings.warn(dropped_updates(cell, name, dropped), RuntimeWarning, stacklevel=2)

    def _ever(self) -> dict[tuple[str, str], int]:
        """Returns how many updates were ever dropped, by cell and parameter."""
        return {
            (cell, name): count
            for cell, updater in self._host.updaters.items()
            for name, count in updater.skipped.items()
        }

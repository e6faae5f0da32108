"""The interface of objects that receive what a callback measures."""

from __future__ import annotations

from torch import Tensor

from lightning_accum.callbacks._measure import Activity, Before, Values


class Watcher:
    """Receives what is measured for logging steps; each method does nothing by default."""

    def saw(self, cell: str, activity: Activity) -> None:
        """Receives the activity of a cell's neuron in the window that is about to be evaluated.

        Args:
            cell: name of the cell.
            activity: the activity of its neuron.
        """

    def applied(self, before: Before, after: Tensor, values: Values) -> None:
        """Receives an update that was applied.

        Args:
            before: the parameter before the update.
            after: the whole parameter after the update.
            values: the statistics of the update, by name.
        """

    def logged(self) -> None:
        """Called when the latest values are logged, in the current batch."""

    def epoch_ended(self) -> None:
        """Called at the end of each epoch."""

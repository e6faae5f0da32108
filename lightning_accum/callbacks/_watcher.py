"""What a callback tells of the steps that it measures."""

from __future__ import annotations

from torch import Tensor

from lightning_accum.callbacks._measure import Activity, Before, Values


class Watcher:
    """Is told of what is measured for logging steps, and of nothing else."""

    def saw(self, cell: str, activity: Activity) -> None:
        """How the neurons of a cell fired in the window that is evaluated."""

    def applied(self, before: Before, after: Tensor, values: Values) -> None:
        """What was applied to a parameter of a cell, and what that is now, whole."""

    def logged(self) -> None:
        """That the latest of all this is logged, in the batch that runs."""

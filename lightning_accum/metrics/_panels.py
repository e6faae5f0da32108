"""The base of metrics whose values are drawn in panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from lightning_accum.metrics._additive import AdditiveMetric
from lightning_accum.plot.panels import Panel, draw_panels


class PanelMetric(AdditiveMetric):
    """A metric of several values, of which those of one unit share a panel and its scale."""

    # Which values share an axis.
    _panels: ClassVar[Sequence[Panel]]

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Draws present values as bars, or results over time as curves, in panels.

        Args:
            val: a result of ``compute`` or ``forward``, or a list of them. Default: ``compute()``.
            ax: matplotlib axes to draw all values in. Default: panels in a new figure, where each
                has its own scale.

        Returns:
            The figure, or ``None`` if ``ax`` was given, and the axes of the panels, an array.

        Raises:
            ModuleNotFoundError: if matplotlib is not installed.
        """
        if ax is not None:
            return super().plot(val, ax)
        found = self.compute() if val is None else val
        return draw_panels(found, self._panels, f"{type(self).__name__}.plot")

"""Named values in panels: values of one unit share a panel and its scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import Any, NamedTuple

from torch import Tensor

from lightning_accum.plot.figures import open_sides, pyplot


class Panel(NamedTuple):
    """Values that share an axis.

    Args:
        title: what they are.
        names: their names; each is drawn in the color of its place.
        limits: of the axis. Default: from zero to the largest value.
    """

    title: str
    names: tuple[str, ...]
    limits: tuple[float, float] | None = None


def draw_panels(
    values: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    panels: Sequence[Panel],
    caller: str,
) -> tuple[Any, Any]:
    """Draws present values as bars, or a sequence of them as curves, in a new figure.

    Args:
        values: values by name, or a sequence of such results over time.
        panels: which of them share an axis.
        caller: the method that draws, for messages.

    Returns:
        The figure and an array of axes, one for each panel.

    Raises:
        ModuleNotFoundError: if matplotlib is not installed.
    """
    rows = [values] if isinstance(values, Mapping) else list(values)
    columns = min(3, len(panels))
    lines = ceil(len(panels) / columns)
    figure, axes = pyplot(caller).subplots(
        lines, columns, figsize=(3.0 * columns, 2.2 * lines), squeeze=False, layout="constrained"
    )
    for ax, panel in zip(axes.flat, panels, strict=True):
        curves = {name: [float(row[name]) for row in rows] for name in panel.names}
        for i, (name, curve) in enumerate(curves.items()):
            if len(rows) == 1:
                ax.bar([i], curve, color=f"C{i}", width=0.6)
            else:
                ax.plot(curve, color=f"C{i}", label=name)
        ax.set_title(panel.title, fontsize="medium")
        top = max((value for curve in curves.values() for value in curve), default=0.0)
        ax.set_ylim(panel.limits or (0.0, 1.1 * top if 0 < top < inf else 1.0))
        _name(ax, panel.names, curves=len(rows) > 1)
        open_sides(ax)
    return figure, axes.ravel()


def _name(ax: Any, names: Sequence[str], curves: bool) -> None:
    """Says which value is which."""
    if not curves:
        turned = {"rotation": 20, "ha": "right"} if len(names) > 2 else {}
        ax.set_xticks(range(len(names)), names, fontsize="small", **turned)
        ax.set_xlim(-0.7, len(names) - 0.3)
    else:
        ax.set_xlabel("result", fontsize="small")
        if len(names) > 1:
            ax.legend(fontsize="small", frameon=False)

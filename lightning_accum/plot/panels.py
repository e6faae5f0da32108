"""The parts of all pictures: matplotlib, activity as a matrix, and panels of named values."""

from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import Any, NamedTuple

from torch import Tensor

from lightning_accum._checks import check_finite, check_integers, check_tensors, check_value


def pyplot(caller: str) -> Any:
    """Returns ``matplotlib.pyplot``, for a function or method of that name."""
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"`{caller}` draws with matplotlib, which is not installed. Install it with"
            " `pip install matplotlib`."
        ) from error
    return pyplot


def one_sample(name: str, values: Tensor, sample: int) -> Tensor:
    """Returns what a sample of ``[T, B, ...]``, or a single one, did: ``[T, N]`` on the CPU."""
    check_tensors(**{name: values})
    check_integers(sample=sample)
    if values.ndim < 2 or not values.numel():
        raise ValueError(
            f"Argument `{name}` should have shape [T, N], or [T, B, ...]. Found"
            f" `{name}.shape = {tuple(values.shape)}`."
        )
    if values.ndim > 2:
        size = values.shape[1]
        fits, should = -size <= sample < size, f"one of the {size} samples in `{name}`"
        check_value(fits, "sample", sample, should)
        values = values[:, sample].flatten(1)
    return values.detach().cpu()


def check_step(dt: float) -> None:
    """Raises an error unless ``dt`` is a step in ms."""
    check_finite(dt=dt)
    check_value(dt > 0, "dt", dt, "a positive step in ms")


def open_sides(ax: Any) -> None:
    """Removes the frame's upper and right side."""
    ax.spines[["top", "right"]].set_visible(False)


def count_rows(ax: Any) -> None:
    """Marks whole numbers only on the vertical axis."""
    from matplotlib.ticker import MaxNLocator

    ax.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))


class Panel(NamedTuple):
    """Values that share an axis."""

    # Each name is drawn in the color of its place. The axis reaches from zero to the largest value,
    # unless there are limits.

    title: str
    names: tuple[str, ...]
    limits: tuple[float, float] | None = None


def draw_panels(
    values: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    panels: Sequence[Panel],
    caller: str,
) -> tuple[Any, Any]:
    """Draws present values as bars, or a sequence of them as curves, in a new figure."""
    # There is an axis for each panel. `caller` is the method that draws, for messages.
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
        if len(rows) > 1:
            ax.set_xlabel("result", fontsize="small")
            if len(panel.names) > 1:
                ax.legend(fontsize="small", frameon=False)
        else:
            turned = {"rotation": 20, "ha": "right"} if len(panel.names) > 2 else {}
            ax.set_xticks(range(len(panel.names)), panel.names, fontsize="small", **turned)
            ax.set_xlim(-0.7, len(panel.names) - 0.3)
        open_sides(ax)
    return figure, axes.ravel()

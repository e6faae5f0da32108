"""The raster of spikes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lightning_accum.plot.figures import (
    check_step,
    check_steps,
    count_rows,
    one_sample,
    open_sides,
    pyplot,
)


def raster(
    spikes: Tensor,
    dt: float = 1.0,
    inputs: Tensor | None = None,
    sample: int = 0,
    ax: Any = None,
) -> tuple[Any, Any]:
    """Draws the spikes of each neuron over time, and above them those of the input.

    Values other than 0 and 1, such as currents or pixels, are drawn as an image in gray.

    Args:
        spikes: ``[T, N]`` of a single sample, or ``[T, B, ...]``; on any device, of any dtype.
        dt: step, in ms.
        inputs: what the neurons received in the same steps: ``[T, M]``, or ``[T, B, ...]``.
        sample: which sample of the batch to draw.
        ax: matplotlib axes to draw in; with ``inputs`` a pair, of which the first is theirs.
            Default: those of a new figure.

    Returns:
        The figure, and its axes: an array of two with ``inputs``.

    Raises:
        ModuleNotFoundError: if matplotlib is not installed.
        TypeError: if activity is not a tensor.
        ValueError: if a shape does not fit, or ``dt`` is not positive.

    Example:
        >>> import torch
        >>> from lightning_accum import plot
        >>> pixels, neurons = torch.rand(100, 1, 64) < 0.1, torch.rand(100, 1, 20) < 0.02
        >>> figure, axes = plot.raster(neurons, dt=1.0, inputs=pixels)
        >>> [ax.get_ylabel() for ax in axes]
        ['input', 'neuron']
    """
    check_step(dt)
    rows = [("neuron", one_sample("spikes", spikes, sample))]
    if inputs is not None:
        rows.insert(0, ("input", one_sample("inputs", inputs, sample)))
        check_steps("inputs", rows[0][1], len(rows[1][1]), "spikes")
    axes = _axes(ax, [values.shape[1] for _, values in rows])
    for each, (label, values) in zip(axes, rows, strict=True):
        _draw(each, values, dt)
        each.set(xlabel="time, ms", ylabel=label)
        if ax is None:
            each.label_outer()
    return axes[0].figure, axes if len(rows) > 1 else axes[0]


def _axes(ax: Any, sizes: list[int]) -> Any:
    """Returns the axes: those that are given, or new ones, higher for more neurons."""
    plt = pyplot("plot.raster")
    if ax is None:
        heights = [1.0 + min(size, 100) / 60 for size in sizes]
        _, axes = plt.subplots(
            len(sizes),
            figsize=(7.0, 0.5 + sum(heights)),
            sharex=True,
            squeeze=False,
            height_ratios=heights,
            layout="constrained",
        )
        return axes[:, 0]
    import numpy

    axes = numpy.ravel(numpy.asarray(ax, dtype=object))
    if len(axes) != len(sizes):
        should = "a pair of axes, for `inputs` and `spikes`" if len(sizes) > 1 else "one axes"
        raise ValueError(f"Argument `ax` should be {should}. Found {len(axes)}.")
    return axes


def _draw(ax: Any, values: Tensor, dt: float) -> None:
    steps, size = values.shape
    if ((values == 0) | (values == 1)).all():
        time, neuron = (index.numpy() for index in values.nonzero(as_tuple=True))
        half = max(0.4, size / 120)  # of many neurons, a line of one would not be seen
        ax.vlines(time * dt, neuron - half, neuron + half, color="black", lw=_width(ax, steps))
    else:
        extent = (-dt / 2, (steps - 0.5) * dt, -0.5, size - 0.5)
        image = values.float().T.numpy()
        ax.imshow(image, origin="lower", aspect="auto", cmap="gray_r", extent=extent)
    ax.set(xlim=(-dt / 2, (steps - 0.5) * dt), ylim=(-0.5, size - 0.5))
    count_rows(ax)
    open_sides(ax)


def _width(ax: Any, steps: int) -> float:
    """Returns the width of a spike's line, in points: most of a step, if that can be seen."""
    points: float = 72 * ax.get_window_extent().width / ax.figure.dpi
    return min(1.5, max(0.5, 0.6 * points / steps))

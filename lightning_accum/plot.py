"""Pictures of activity and weights, drawn with matplotlib, which is imported when you draw."""

from collections.abc import Sequence
from math import ceil, isqrt, nan, sqrt
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import (
    check_counts,
    check_integers,
    check_positive,
    check_shape,
    check_tensors,
    check_value,
)

__all__ = ["membrane", "raster", "weights"]


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
    fits = values.ndim > 1 and bool(values.numel())
    check_shape(fits, name, values, "shape [T, N], or [T, B, ...]")
    if values.ndim > 2:
        size = values.shape[1]
        fits, should = -size <= sample < size, f"one of the {size} samples in `{name}`"
        check_value(fits, "sample", sample, should)
        values = values[:, sample].flatten(1)
    return values.detach().cpu()


def open_sides(ax: Any) -> None:
    """Removes the frame's upper and right side."""
    ax.spines[["top", "right"]].set_visible(False)


def count_rows(ax: Any) -> None:
    """Marks whole numbers only on the vertical axis."""
    from matplotlib.ticker import MaxNLocator

    ax.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))


_MOST = 4  # neurons whose potentials are drawn by default


def raster(
    spikes: Tensor, dt: float = 1.0, inputs: Tensor | None = None, sample: int = 0, ax: Any = None
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
    check_positive("a positive step in ms", dt=dt)
    rows = [("neuron", one_sample("spikes", spikes, sample))]
    if inputs is not None:
        rows.insert(0, ("input", one_sample("inputs", inputs, sample)))
        received, steps = len(rows[0][1]), len(rows[1][1])
        check_shape(received == steps, "inputs", inputs, f"the {steps} steps of `spikes`")
    axes = _axes(ax, [values.shape[1] for _, values in rows])
    for each, (label, values) in zip(axes, rows, strict=True):
        _draw(each, values, dt)
        each.set(xlabel="time, ms", ylabel=label)
        if ax is None:
            each.label_outer()
    return axes[0].figure, axes if len(rows) > 1 else axes[0]


def _axes(ax: Any, sizes: list[int]) -> Any:
    """Returns the axes: those that are given, or new ones, higher for more neurons."""
    if ax is None:
        heights = [1.0 + min(size, 100) / 60 for size in sizes]
        _, axes = pyplot("plot.raster").subplots(
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
    """Draws spikes as lines, and other values as an image."""
    steps, size = values.shape
    if ((values == 0) | (values == 1)).all():
        time, neuron = (index.numpy() for index in values.nonzero(as_tuple=True))
        half = max(0.4, size / 120)  # of many neurons, a line of one would not be seen
        points = 72 * ax.get_window_extent().width / ax.figure.dpi
        width = min(1.5, max(0.5, 0.6 * points / steps))  # most of a step, if that can be seen
        ax.vlines(time * dt, neuron - half, neuron + half, color="black", lw=width)
    else:
        extent = (-dt / 2, (steps - 0.5) * dt, -0.5, size - 0.5)
        image = values.float().T.numpy()
        ax.imshow(image, origin="lower", aspect="auto", cmap="gray_r", extent=extent)
    ax.set(xlim=(-dt / 2, (steps - 0.5) * dt), ylim=(-0.5, size - 0.5))
    count_rows(ax)
    open_sides(ax)


def membrane(
    membrane: Tensor,
    threshold: Tensor | float | None = None,
    spikes: Tensor | None = None,
    dt: float = 1.0,
    neurons: Sequence[int] | None = None,
    sample: int = 0,
    ax: Any = None,
) -> tuple[Any, Any]:
    """Draws potentials over time, with the threshold as a dotted line and spikes above them.

    Args:
        membrane: ``[T]`` of one neuron, ``[T, N]`` of a single sample, or ``[T, B, ...]``.
        threshold: of all neurons, or of each, ``[N]``, or of each in each step, ``[T, N]``.
        spikes: of the shape of ``membrane``.
        dt: step, in ms.
        neurons: indices of the neurons to draw. Default: the first four.
        sample: which sample of the batch to draw.
        ax: matplotlib axes to draw in. Default: those of a new figure.

    Returns:
        The figure and the axes.

    Raises:
        ModuleNotFoundError: if matplotlib is not installed.
        TypeError: if activity is not a tensor.
        ValueError: if a shape does not fit, a neuron does not exist, or ``dt`` is not positive.

    Example:
        >>> import torch
        >>> from lightning_accum import plot
        >>> from lightning_accum.nn import LIF
        >>> lif, v, s = LIF(3), [], []
        >>> for _ in range(50):
        ...     s.append(lif(torch.full((1, 3), 0.1)))
        ...     v.append(lif.voltage)
        >>> figure, ax = plot.membrane(torch.stack(v), 1.0, torch.stack(s), neurons=[0])
    """
    check_positive("a positive step in ms", dt=dt)
    values = _potentials("membrane", membrane, sample)
    steps, size = values.shape
    shown = list(range(min(size, _MOST))) if neurons is None else list(neurons)
    fits = all(isinstance(i, int) and -size <= i < size for i in shown)
    check_value(fits, "neurons", shown, f"indices of the {size} neurons")
    limits = None if threshold is None else _thresholds(threshold, steps, size)
    fired = None
    if spikes is not None:
        fired = _potentials("spikes", spikes, sample)
        should = f"the shape of `membrane`, {tuple(membrane.shape)}"
        check_shape(spikes.shape == membrane.shape, "spikes", spikes, should)
    if ax is None:
        ax = pyplot("plot.membrane").subplots(figsize=(7.0, 2.6), layout="constrained")[1]
    time = torch.arange(steps) * dt
    for i in shown:
        (line,) = ax.plot(time, values[:, i], lw=1.2, label=f"neuron {i % size}")
        if limits is not None:
            ax.plot(time, limits[:, i], ls=":", lw=1.0, color=line.get_color())
    ax.set(xlabel="time, ms", ylabel="potential", xlim=(0, max(steps - 1, 1) * dt))
    if fired is not None:  # a row of lines above the potentials for each neuron, in its color
        low, high = ax.get_ylim()
        row = 0.09 * (high - low)
        colors = [line.get_color() for line in ax.lines if not line.get_label().startswith("_")]
        for i, neuron in enumerate(shown):
            bottom, at = high + row * (len(shown) - 1 - i), time[fired[:, neuron] != 0]
            ax.vlines(at, bottom, bottom + 0.8 * row, color=colors[i - len(shown)], lw=1.2)
        ax.set_ylim(low, high + row * len(shown))
    if len(shown) > 1:
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    open_sides(ax)
    return ax.figure, ax


def _potentials(name: str, values: Tensor, sample: int) -> Tensor:
    """Returns what one sample did, ``[T, N]``."""
    check_tensors(**{name: values})
    return one_sample(name, values[:, None] if values.ndim == 1 else values, sample).float()


def _thresholds(threshold: Tensor | float, steps: int, size: int) -> Tensor:
    """Returns the thresholds ``[T, N]``."""
    value = torch.as_tensor(threshold).detach().cpu().float()
    try:
        return value.expand(steps, size)
    except RuntimeError as error:
        raise ValueError(
            f"Argument `threshold` should be a number, or have shape [{size}] or [{steps}, {size}]."
            f" Found `threshold.shape = {tuple(value.shape)}`."
        ) from error


def weights(
    weight: Tensor,
    shape: Sequence[int] | None = None,
    columns: int | None = None,
    most: int = 64,
    limits: tuple[float, float] | None = None,
    ax: Any = None,
) -> tuple[Any, Any]:
    """Draws the weights of each neuron as an image, all of them on one scale.

    Weights of one sign are drawn in gray, where white is zero; of both signs, in blue and red.

    Args:
        weight: ``[out, in]`` of a linear layer; ``[out, channels, height, width]`` of a
            convolution, of which each channel is one image; or images ``[N, height, width]``.
        shape: height and width of the input of a linear layer. Default: a square if the number of
            inputs is one; otherwise the weights are drawn as one matrix.
        columns: number of images in a row. Default: what makes the picture about twice as wide as
            high.
        most: largest number of images.
        limits: least and largest value of the scale. Default: from zero to the largest weight, and
            as far below zero if weights have both signs.
        ax: matplotlib axes to draw in. Default: those of a new figure.

    Returns:
        The figure and the axes.

    Raises:
        ModuleNotFoundError: if matplotlib is not installed.
        TypeError: if ``weight`` is not a tensor.
        ValueError: if a shape does not fit, or a number is not positive.

    Example:
        >>> import torch
        >>> from lightning_accum import plot
        >>> from lightning_accum.nn import Linear
        >>> figure, ax = plot.weights(Linear(64, 20).weight, shape=(8, 8))
    """
    check_tensors(weight=weight)
    check_counts(most=most, **({} if columns is None else {"columns": columns}))
    fields = receptive_fields(weight, shape)
    should = "shape [out, in], [out, channels, height, width] or [N, height, width]"
    check_shape(fields is not None and bool(fields.numel()), "weight", weight, should)
    assert fields is not None
    matrix = weight.ndim == 2 and len(fields) == 1 != len(weight)
    canvas = fields[0] if matrix else mosaic(fields[:most], columns)
    low, high = _scale(canvas) if limits is None else limits
    if ax is None:
        height, width = canvas.shape
        size = (7.0, min(7.0, max(1.4, 0.4 + 6.2 * height / width)))
        ax = pyplot("plot.weights").subplots(figsize=size, layout="constrained")[1]
    image = ax.imshow(
        canvas.numpy(),
        cmap="RdBu_r" if low < 0 < high else "gray_r",
        vmin=low,
        vmax=high,
        aspect="auto" if matrix else "equal",
        interpolation="nearest",
    )
    if matrix:
        ax.set(xlabel="input", ylabel="neuron")
        count_rows(ax)
    else:
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        ax.set_facecolor("none")
    ax.figure.colorbar(image, ax=ax, fraction=0.03, pad=0.02)
    return ax.figure, ax


def mosaic(fields: Tensor, columns: int | None, between: float = nan) -> Tensor:
    """Arranges images ``[N, height, width]`` in rows, with lines of a value between them."""
    number, height, width = fields.shape
    if columns is None:
        columns = ceil(sqrt(2 * number * height / width))
    columns = min(columns, number)
    rows = ceil(number / columns)
    canvas = fields.new_full((rows, columns, height + 1, width + 1), between)
    canvas.view(-1, height + 1, width + 1)[:number, :height, :width] = fields
    return canvas.transpose(1, 2).reshape(rows * (height + 1), -1)[:-1, :-1]


def _scale(canvas: Tensor) -> tuple[float, float]:
    """Returns the least and the largest value of the scale: it holds zero, and spans something."""
    finite = canvas[canvas.isfinite()]
    if not finite.numel():
        return 0.0, 1.0
    low, high = (bound.item() for bound in finite.aminmax())
    far = max(-low, high)
    if low < 0 < high:
        return -far, far
    return (0.0, far or 1.0) if low >= 0 else (-far, 0.0)


def receptive_fields(
    weight: Tensor, shape: Sequence[int] | None = None, argument: str = "shape"
) -> Tensor | None:
    """Returns the weights of each neuron as an image, ``[N, height, width]`` in float32."""
    # It is one image of all weights if inputs of a linear layer do not fill a square and have no
    # `shape`, and `None` for weights of other shapes. The caller calls the shape `argument`.
    weight = weight.detach().float().cpu().contiguous()
    if weight.ndim == 4:
        return weight.flatten(0, 1)
    if weight.ndim != 2:
        return weight if weight.ndim == 3 else None
    inputs = weight.shape[1]
    side = isqrt(inputs)
    if shape is None:
        if side**2 != inputs or side < 2:
            return weight.unsqueeze(0)
        shape = (side, side)
    fits = len(shape) == 2 and shape[0] * shape[1] == inputs
    check_value(fits, argument, tuple(shape), f"the height and width of {inputs} inputs")
    return weight.view(-1, *shape)

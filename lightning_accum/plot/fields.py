"""The weights of each neuron as an image: its receptive field."""

from collections.abc import Sequence
from math import ceil, isqrt, nan, sqrt
from typing import Any

from torch import Tensor

from lightning_accum._checks import check_integers, check_shape, check_tensors, check_value
from lightning_accum.plot.panels import count_rows, pyplot


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
    check_integers(most=most, **({} if columns is None else {"columns": columns}))
    check_value(most > 0, "most", most, "positive")
    check_value(columns is None or columns > 0, "columns", columns, "positive")
    fields = receptive_fields(weight, shape)
    should = "shape [out, in], [out, channels, height, width] or [N, height, width]"
    check_shape(fields is not None and bool(fields.numel()), "weight", weight, should)
    assert fields is not None
    matrix = weight.ndim == 2 and len(fields) == 1 != len(weight)
    canvas = fields[0] if matrix else mosaic(fields[:most], columns)
    low, high = _scale(canvas) if limits is None else limits
    plt = pyplot("plot.weights")
    if ax is None:
        height, width = canvas.shape
        size = (7.0, min(7.0, max(1.4, 0.4 + 6.2 * height / width)))
        ax = plt.subplots(figsize=size, layout="constrained")[1]
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
    """Returns the weights of each neuron as an image."""
    # They are `[N, height, width]` in float32 on the CPU: one image of all weights if inputs of a
    # linear layer do not fill a square and have no `shape`, and `None` for weights of other shapes.
    # `argument` is what the caller calls the shape, for the message.
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

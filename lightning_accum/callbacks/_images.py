"""Gray images of weights and spikes, in which dark is low."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt

import torch
from torch import Tensor

from lightning_accum.plot.fields import receptive_fields


def fields_of(weight: Tensor, shape: Sequence[int] | None, most: int) -> Tensor | None:
    """Returns the weights of each neuron as an image.

    Args:
        weight: weights ``[out, in]`` of a linear layer, or ``[out, in, height, width]`` of a
            convolution, of which each input channel is one image.
        shape: height and width of the input of a linear layer. If it is ``None`` and the number of
            inputs is not a square, all weights are one image.
        most: largest number of images.

    Returns:
        Images ``[N, height, width]`` from 0 to 1, all on one scale; ``None`` for other weights.

    Raises:
        ValueError: if ``shape`` does not fit the number of inputs.
    """
    if weight.ndim == 3 or not weight.numel():
        return None
    fields = receptive_fields(weight, shape, "shapes")
    if fields is None:
        return None
    matrix = fields.shape[1:] == weight.shape
    return _scaled(fields[:, :most] if matrix else fields[:most])


def grid(images: Tensor) -> Tensor:
    """Arranges images ``[N, height, width]`` in about a square, with lines between them.

    Example:
        >>> import torch
        >>> grid(torch.ones(3, 1, 2))
        tensor([[1.0000, 1.0000, 0.5000, 1.0000, 1.0000],
                [0.5000, 0.5000, 0.5000, 0.5000, 0.5000],
                [1.0000, 1.0000, 0.5000, 0.5000, 0.5000]])
    """
    number, height, width = images.shape
    columns = ceil(sqrt(number))
    rows = ceil(number / columns)
    canvas = images.new_full((rows * (height + 1), columns * (width + 1)), 0.5)
    for i, image in enumerate(images):
        top, left = (i // columns) * (height + 1), (i % columns) * (width + 1)
        canvas[top : top + height, left : left + width] = image
    return canvas[:-1, :-1]


def raster(window: Tensor, most: int) -> Tensor:
    """Returns the first sample of a window ``[T, B, ...]`` as an image ``[neurons, T]``.

    Args:
        window: activity, which is scaled to its largest value: spikes are white.
        most: largest number of neurons.
    """
    return _scaled(window[:, 0].flatten(1)[:, :most].float().cpu().T, low=0.0)


def _scaled(values: Tensor, low: float | None = None) -> Tensor:
    """Scales values to [0, 1], from the lowest finite value or ``low`` to the highest."""
    finite = values[values.isfinite()]
    if not finite.numel():
        return torch.zeros_like(values)
    least = finite.min() if low is None else torch.tensor(low)
    span = finite.max() - least
    scaled = (values - least) / torch.where(span > 0, span, torch.ones(()))
    return scaled.nan_to_num(0.0, 1.0, 0.0).clamp(0, 1)

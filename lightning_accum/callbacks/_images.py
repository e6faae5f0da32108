"""Gray images of weights and spikes, in which dark is low, and the loggers that take them."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from typing import Any, Protocol, runtime_checkable

import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor

from lightning_accum.plot.fields import receptive_fields


def fields_of(weight: Tensor, shape: Sequence[int] | None, most: int) -> Tensor | None:
    """Returns the weights of each neuron as an image."""
    if weight.ndim == 3 or not weight.numel():
        return None
    fields = receptive_fields(weight, shape, "shapes")
    if fields is None:
        return None
    matrix = fields.shape[1:] == weight.shape
    return _scaled(fields[:, :most] if matrix else fields[:most])


def grid(images: Tensor) -> Tensor:
    """Arranges images ``[N, height, width]`` in about a square, with lines between them."""
    number, height, width = images.shape
    columns = ceil(sqrt(number))
    rows = ceil(number / columns)
    canvas = images.new_full((rows * (height + 1), columns * (width + 1)), 0.5)
    for i, image in enumerate(images):
        top, left = (i // columns) * (height + 1), (i % columns) * (width + 1)
        canvas[top : top + height, left : left + width] = image
    return canvas[:-1, :-1]


def raster(window: Tensor, most: int) -> Tensor:
    """Returns the first sample of a window ``[T, B, ...]`` as an image ``[neurons, T]``."""
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


class Canvas(Protocol):
    """Draws for one logger."""

    def image(self, tag: str, image: Tensor, step: int) -> None:
        """Draws a gray image ``[height, width]`` from 0 to 1."""

    def histogram(self, tag: str, values: Tensor, step: int) -> None:
        """Draws the histogram of finite values on a CPU, if the logger has histograms."""

    def charts(self, layout: dict[str, Any]) -> None:
        """Arranges charts of scalars, if the logger has them."""


class TensorBoardCanvas:
    """Draws images, histograms and charts."""

    def __init__(self, logger: TensorBoardLogger) -> None:
        self._logger = logger

    def image(self, tag: str, image: Tensor, step: int) -> None:
        """Adds an image."""
        self._logger.experiment.add_image(tag, image, step, dataformats="HW")

    def histogram(self, tag: str, values: Tensor, step: int) -> None:
        """Adds a histogram."""
        self._logger.experiment.add_histogram(tag, values, step)

    def charts(self, layout: dict[str, Any]) -> None:
        """Adds the layout of the custom scalars."""
        self._logger.experiment.add_custom_scalars(layout)


@runtime_checkable
class LogsImages(Protocol):
    """A logger with an image call, such as Lightning's ``WandbLogger``."""

    def log_image(self, key: str, images: list[Any], step: int | None = None) -> None:
        """Logs images."""


class ImageCanvas:
    """Draws only images."""

    def __init__(self, logger: LogsImages) -> None:
        self._logger = logger

    def image(self, tag: str, image: Tensor, step: int) -> None:
        """Logs an image of bytes, which no logger scales by its own values."""
        pixels = (image * 255).round().to(torch.uint8).cpu().numpy()
        self._logger.log_image(tag, [pixels], step)

    def histogram(self, tag: str, values: Tensor, step: int) -> None:
        """Does nothing."""

    def charts(self, layout: dict[str, Any]) -> None:
        """Does nothing."""


def canvas_of(logger: object) -> Canvas | None:
    """Returns the canvas of a logger, ``None`` if it takes no images."""
    if isinstance(logger, TensorBoardLogger):
        return TensorBoardCanvas(logger)
    return ImageCanvas(logger) if isinstance(logger, LogsImages) else None

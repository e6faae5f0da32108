"""Where pictures go: the image calls of TensorBoard's logger, and those of others."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor


class Canvas(Protocol):
    """Draws for one logger."""

    def image(self, tag: str, image: Tensor, step: int) -> None:
        """Draws a gray image ``[height, width]`` from 0 to 1."""

    def histogram(self, tag: str, values: Tensor, step: int) -> None:
        """Draws the histogram of finite values on a CPU, if the logger has histograms."""

    def charts(self, layout: dict[str, Any]) -> None:
        """Arranges charts of scalars, if the logger has them."""


class TensorBoardCanvas:
    """Draws images, histograms and charts.

    Args:
        logger: the logger to draw for.
    """

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
    """Draws only images.

    Args:
        logger: the logger to draw for.
    """

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

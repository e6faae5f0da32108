"""Drawing what is measured in a fit."""

from __future__ import annotations

import lightning.pytorch as pl
from torch import Tensor

from lightning_accum._compat import batches_that_stepped
from lightning_accum.callbacks._canvas import Canvas
from lightning_accum.callbacks._images import fields_of, grid, raster
from lightning_accum.callbacks._measure import Activity, Before, Values
from lightning_accum.callbacks._watcher import Watcher
from lightning_accum.functional.numbers import at_least_float32


class Painter(Watcher):
    """Keeps the latest measurements, and draws them on one canvas when they are logged.

    Args:
        trainer: the Lightning trainer.
        canvas: where to draw.
        prefix: text before the name of each cell in the names of pictures.
        every_n_logs: number of logging steps from one drawing to the next.
        shapes: height and width of a cell's input, by the cell's name.
        most: largest number of neurons to draw.
    """

    def __init__(
        self,
        trainer: pl.Trainer,
        canvas: Canvas,
        prefix: str,
        every_n_logs: int,
        shapes: dict[str, tuple[int, int]],
        most: int,
    ) -> None:
        self._trainer = trainer
        self._canvas = canvas
        self._prefix = prefix
        self._every_n_logs = every_n_logs
        self._shapes = shapes
        self._most = most
        self._windows: dict[str, Activity] = {}
        self._changes: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}

    def _due(self) -> bool:
        """Returns whether to draw at the next logging step, which may be this one."""
        every: int = self._trainer.log_every_n_steps  # type: ignore[attr-defined]
        step = batches_that_stepped(self._trainer) + 1
        return every > 0 and -(-step // every) % self._every_n_logs == 0

    def saw(self, cell: str, activity: Activity) -> None:
        """Keeps the activity until it is logged."""
        if self._due():
            self._windows[cell] = activity

    def applied(self, before: Before, after: Tensor, values: Values) -> None:
        """Keeps the weights and their change until they are logged."""
        if self._due():
            wide = at_least_float32(after.dtype)
            delta = after.to(wide) - before.value
            self._changes[before.cell, before.name] = after.clone(), delta

    def logged(self) -> None:
        """Draws what was kept."""
        canvas, step = self._canvas, batches_that_stepped(self._trainer)
        for (cell, name), (weight, delta) in self._changes.items():
            place = f"{self._prefix}{cell}/{name}"
            _histogram(canvas, f"weights/{place}", weight, step)
            _histogram(canvas, f"updates/{place}", delta, step)
            fields = fields_of(weight, self._shapes.get(cell), self._most)
            if fields is not None:
                canvas.image(f"fields/{place}", grid(fields), step)
        for cell, activity in self._windows.items():
            _histogram(canvas, f"firing_rates/{self._prefix}{cell}", activity.rates, step)
            image = raster(activity.window, self._most)
            canvas.image(f"spikes/{self._prefix}{cell}", image, step)
        self._changes, self._windows = {}, {}


def _histogram(canvas: Canvas, tag: str, values: Tensor, step: int) -> None:
    finite = values[values.isfinite()].float().cpu()  # a histogram cannot hold the others
    if finite.numel():
        canvas.histogram(tag, finite, step)

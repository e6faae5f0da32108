"""The callback that draws weights, updates and spikes."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, sqrt
from re import escape
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from lightning_accum._checks import check_counts, check_mapping, check_value
from lightning_accum._compat.lightning_internals import batches_that_stepped, logs_hyperparameters
from lightning_accum._training_events import Observer, Values
from lightning_accum.callbacks._cell_host import CellHost
from lightning_accum.callbacks._logging import LoggingCallback
from lightning_accum.callbacks.cell_trainer import CellTrainerCallback, learners_in
from lightning_accum.cells.rule_trainer import RuleTrainer
from lightning_accum.functional.dtypes import at_least_float32
from lightning_accum.plot import mosaic, receptive_fields
from lightning_accum.updates.targets import by_output

# Tags of the scalars in each chart of a cell, by the chart's name. All lines of a run have one
# color, so that a chart has one kind of value.
_CHARTS_OF_PARAMS = {
    "ratio": "updates/{cell}/{param}/ratio",
    "potentiation": "updates/{cell}/{param}/pos_norm",
    "depression": "updates/{cell}/{param}/neg_norm",
    "limits": "updates/{cell}/{param}/at_(lower|upper)",
}
_CHARTS_OF_ACTIVITY = {
    "firing rate": "activity/{cell}/firing_rate",
    "silent neurons": "activity/{cell}/silent_share",
}


class UpdatePictures(LoggingCallback):
    """Draws weights, updates and spikes of every cell, for TensorBoard, W&B and others.

    ================================  ============================================================
    histogram ``weights/<c>/<p>``     the weights after an update
    histogram ``updates/<c>/<p>``     their change by the update, as it was applied
    histogram ``firing_rates/<c>``    of the neurons, in spikes per step of a sample
    image ``fields/<c>/<p>``          receptive fields: the weights of each neuron as an image
    image ``spikes/<c>``              of the first sample of the batch: a row for each neuron
    hyperparameters                   of the rule for every cell, and those of the module
    custom scalars                    charts of each cell: ratio, both parts, limits, activity
    ================================  ============================================================

    with ``<c>`` a cell and ``<p>`` a parameter. It draws what the :class:`CellTrainerCallback` of
    the same trainer measures; there may be several, in any order. A ``TensorBoardLogger`` takes
    all of it. A ``WandbLogger``, and any logger that has its call ``log_image``, takes images and
    hyperparameters. Other loggers get only scalars; with none but them this callback draws nothing,
    and warns.

    Args:
        every_n_logs: number of logging steps from one drawing to the next. Drawing takes
            time, and waits for the device.
        shapes: height and width of a cell's input, by the cell's name, for receptive fields. By
            default they are squares if the number of inputs is a square, and otherwise one image
            shows all weights.
        most: largest number of neurons to draw.

    Raises:
        ValueError: if a number is not positive, or, when a fit begins, if no CellTrainerCallback
            measures, or a name in ``shapes`` is not that of a cell.

    Example:
        >>> from lightning_accum import STDP, CellSpec, RuleTrainer
        >>> from lightning_accum.callbacks import CellTrainerCallback
        >>> learner = CellTrainerCallback(
        ...     RuleTrainer(STDP(lr_post=0.01, lr_pre=-0.01), time_dim=0),
        ...     cells={"enc": CellSpec(connection="enc.fc", neuron="enc.lif")},
        ... )
        >>> pictures = UpdatePictures(every_n_logs=5, shapes={"enc": (28, 28)})
        >>> trainer = pl.Trainer(callbacks=[learner, pictures], logger=False)
    """

    def __init__(
        self,
        every_n_logs: int = 10,
        shapes: dict[str, tuple[int, int]] | None = None,
        most: int = 64,
    ) -> None:
        check_counts(every_n_logs=every_n_logs, most=most)
        check_mapping("shapes", shapes or {})
        self.every_n_logs, self.shapes, self.most = every_n_logs, dict(shapes or {}), most

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Logs the hyperparameters, before Lightning logs only those of the module."""
        params: dict[str, Any] = {}
        for each in learners_in(trainer):
            params |= _hyperparameters(each.host, each.prefix_in(trainer))
        if stage != "fit" or not params:
            return
        for holder in (pl_module, trainer.datamodule):  # type: ignore[attr-defined]
            if holder is not None and logs_hyperparameters(holder):
                params = {**holder.hparams_initial, **params}
        params.pop("_class_path", None)  # which Lightning does not log either
        for logger in _loggers(trainer):
            logger.log_hyperparams(params)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Adds the charts of the cells, and receives what is measured from now on."""
        learners = [each for each in learners_in(trainer) if each.logs]
        if not learners:
            raise ValueError(
                "An UpdatePictures should draw what a CellTrainerCallback with `log=True`"
                " measures. Found no such callback in the trainer: add one."
            )
        cells = {c: each for each in learners for c, _ in each.cell_trainer.named_cells}
        unknown = sorted(set(self.shapes) - set(cells))
        should = f"by the names of cells, which are {sorted(cells)}"
        check_value(not unknown, "shapes", unknown, should)
        loggers, others = _loggers(trainer), [type(each).__name__ for each in trainer.loggers]
        if others and not loggers and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            rank_zero_warn(
                "An UpdatePictures should have a logger that takes images. Found"
                f" {others}, so that it draws nothing: add a TensorBoardLogger, or another with"
                " `log_image`, to the Trainer's `logger`.",
                category=RuntimeWarning,
            )
        pairs = [(each, each.prefix_in(trainer)) for each in learners]
        charts = _layout(pairs)
        for logger in loggers:
            if isinstance(logger, TensorBoardLogger):
                logger.experiment.add_custom_scalars(charts)
            for each, prefix in pairs:
                each.add_watcher(_Painter(self, trainer, logger, each.host, prefix))


def _layout(
    learners: Sequence[tuple[CellTrainerCallback, str]],
) -> dict[str, dict[str, list[Any]]]:
    """Returns the custom scalars of TensorBoard: by cell and chart, patterns of tags."""
    charts: dict[str, dict[str, list[Any]]] = {}
    for learner, prefix in learners:
        updaters = learner.host.updaters
        for cell in learner.host.names:
            params = updaters[cell].names if cell in updaters else ()
            shown = escape(prefix + cell)
            tags = {
                chart: sorted({tag.format(cell=shown, param=escape(name)) for name in params})
                for chart, tag in _CHARTS_OF_PARAMS.items()
            }
            tags |= {chart: [tag.format(cell=shown)] for chart, tag in _CHARTS_OF_ACTIVITY.items()}
            charts[prefix + cell] = {
                chart: ["Multiline", found] for chart, found in tags.items() if found
            }
    return charts


def _hyperparameters(host: CellHost, prefix: str) -> dict[str, Any]:
    """Returns the class and the hyperparameters of the rule for each cell, by cell and name."""
    trainer = host.trainer
    if host.cells is None:
        states = ((name, state) for name, (_, state) in trainer.named_cells)
        cells = {name: getattr(state, "settings", {}) for name, state in states}
    else:  # they may not be bound yet, or be bound to another model
        own = isinstance(trainer, RuleTrainer)
        defaults = {**vars(trainer.rule), **vars(trainer.options)} if own else {}
        cells = {name: {**defaults, **spec.overrides} for name, spec in host.cells.items()}
    found: dict[str, Any] = {}
    for cell, settings in cells.items():
        found[f"{prefix}{cell}/rule"] = trainer.title
        for name, value in settings.items():
            if value is not None:
                plain = isinstance(value, (bool, int, float, str))
                found[f"{prefix}{cell}/{name}"] = value if plain else str(value)
    return found


class _Painter(Observer):
    """Keeps the latest measurements, and draws them for one logger when they are logged."""

    def __init__(
        self,
        pictures: UpdatePictures,
        trainer: pl.Trainer,
        logger: Any,
        host: CellHost,
        prefix: str,
    ) -> None:
        self._pictures, self._trainer, self._host = pictures, trainer, host
        self._logger, self._prefix = logger, prefix
        self._board = logger.experiment if isinstance(logger, TensorBoardLogger) else None
        self._windows: dict[str, tuple[Tensor, Tensor, int]] = {}
        self._changes: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}

    def _due(self) -> bool:
        """Returns whether to draw at the next logging step, which may be this one."""
        every: int = self._trainer.log_every_n_steps  # type: ignore[attr-defined]
        step = batches_that_stepped(self._trainer) + 1
        return every > 0 and -(-step // every) % self._pictures.every_n_logs == 0

    def saw(self, cell: str, window: Tensor, counts: Tensor, slots: int, logs: bool) -> None:
        """Keeps the activity until it is logged."""
        if logs and self._due():
            self._windows[cell] = window, counts, slots

    def measured(self, cell: str, name: str, before: Tensor, after: Tensor, values: Values) -> None:
        """Keeps the weights and their change until they are logged."""
        if self._due():
            wide = at_least_float32(after.dtype)
            delta = after.to(wide) - before
            connection = self._host.trainer.get_cell(cell)[0].connection
            first, *others = by_output(connection, name, after)
            weight = torch.cat((first, *others)) if others else first.clone()
            self._changes[cell, name] = weight, delta

    def logged(self) -> None:
        """Draws what was kept."""
        step = batches_that_stepped(self._trainer)
        for (cell, name), (weight, delta) in self._changes.items():
            place = f"{self._prefix}{cell}/{name}"
            self._histogram(f"weights/{place}", weight, step)
            self._histogram(f"updates/{place}", delta, step)
            fields = fields_of(weight, self._pictures.shapes.get(cell), self._pictures.most)
            if fields is not None:
                square = mosaic(fields, ceil(sqrt(len(fields))), 0.5)
                self._image(f"fields/{place}", square, step)
        for cell, (window, counts, slots) in self._windows.items():
            self._histogram(f"firing_rates/{self._prefix}{cell}", counts / max(slots, 1), step)
            image = raster(window, self._pictures.most)
            self._image(f"spikes/{self._prefix}{cell}", image, step)
        self._changes, self._windows = {}, {}

    def _image(self, tag: str, image: Tensor, step: int) -> None:
        """Draws a gray image ``[height, width]`` from 0 to 1."""
        if self._board is not None:
            self._board.add_image(tag, image, step, dataformats="HW")
        else:  # as bytes, which no logger scales by its own values
            pixels = (image * 255).round().to(torch.uint8).cpu().numpy()
            self._logger.log_image(tag, [pixels], step)

    def _histogram(self, tag: str, values: Tensor, step: int) -> None:
        """Draws the histogram of the finite values, which only TensorBoard takes."""
        finite = values[values.isfinite()].float().cpu()  # a histogram cannot hold the others
        if self._board is not None and finite.numel():
            self._board.add_histogram(tag, finite, step)


def _loggers(trainer: pl.Trainer) -> list[Any]:
    """Returns the loggers that take images, in the first process only."""
    loggers = trainer.loggers if trainer.is_global_zero else []
    return [e for e in loggers if isinstance(e, TensorBoardLogger) or hasattr(e, "log_image")]


def fields_of(weight: Tensor, shape: Sequence[int] | None, most: int) -> Tensor | None:
    """Returns the weights of each neuron as an image."""
    if weight.ndim == 3 or not weight.numel():
        return None
    fields = receptive_fields(weight, shape, "shapes")
    if fields is None:
        return None
    matrix = fields.shape[1:] == weight.shape
    return _scaled(fields[:, :most] if matrix else fields[:most])


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

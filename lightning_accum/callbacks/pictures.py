"""The callback that draws weights, updates and spikes."""

from __future__ import annotations

from collections.abc import Mapping
from re import escape
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from lightning_accum._checks import check_integers, check_mapping
from lightning_accum._compat import batches_that_stepped, logs_hyperparameters
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._images import Canvas, canvas_of, fields_of, grid, raster
from lightning_accum.callbacks._logging import own_state, remove_lent
from lightning_accum.callbacks._report import Activity, Before, Values, Watcher
from lightning_accum.callbacks.cell_trainer import learners_in
from lightning_accum.functional.numbers import at_least_float32

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
_NONE = SimpleNamespace()


class UpdatePictures(Callback):
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
        >>> from lightning_accum import STDP, CellSpec
        >>> from lightning_accum.callbacks import CellTrainerCallback
        >>> learner = CellTrainerCallback(
        ...     STDP(lr_post=0.01, lr_pre=-0.01, time_dim=0),
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
        check_integers(every_n_logs=every_n_logs, most=most)
        check_mapping("shapes", shapes or {})
        for name, value in (("every_n_logs", every_n_logs), ("most", most)):
            if value < 1:
                raise ValueError(
                    f"Argument `{name}` should be a positive integer. Found `{name} = {value}`."
                )
        self.every_n_logs = every_n_logs
        self.shapes = dict(shapes or {})
        self.most = most

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Logs the hyperparameters, before Lightning logs only those of the module."""
        params = {
            k: v
            for c in learners_in(trainer)
            for k, v in _hyperparameters(c.host, c.prefix_in(trainer)).items()
        }
        if stage != "fit" or not params:
            return
        for holder in (pl_module, trainer.datamodule):  # type: ignore[attr-defined]
            if holder is not None and logs_hyperparameters(holder):
                params = {**_shown(holder.hparams_initial), **params}
        for logger, _ in _canvases(trainer):
            logger.log_hyperparams(params)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Adds the charts of the cells, and receives what is measured from now on."""
        learners = [each for each in learners_in(trainer) if each.log_options.log]
        if not learners:
            raise ValueError(
                "An UpdatePictures should draw what a CellTrainerCallback with `log=True`"
                " measures. Found no such callback in the trainer: add one."
            )
        cells = {c: each for each in learners for c, _ in each.cell_trainer.named_cells}
        unknown = sorted(set(self.shapes) - set(cells))
        if unknown:
            raise ValueError(
                f"Argument `shapes` should name cells, which are {sorted(cells)}. Found {unknown}."
            )
        canvases = [canvas for _, canvas in _canvases(trainer)]
        if not canvases and trainer.loggers and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            kinds = [type(logger).__name__ for logger in trainer.loggers]
            rank_zero_warn(
                "An UpdatePictures should have a logger that takes images. Found"
                f" {kinds}, so that it draws nothing: add a TensorBoardLogger, or another with"
                " `log_image`, to the Trainer's `logger`.",
                category=RuntimeWarning,
            )
        for canvas in canvases:
            prefixes = [each.prefix_in(trainer) for each in learners]
            pairs = [*zip(learners, prefixes, strict=True)]
            charts = {k: v for each, p in pairs for k, v in _layout(each.host, p).items()}
            canvas.charts(charts)
            for each, prefix in pairs:
                each.add_watcher(_Painter(self, trainer, canvas, prefix))

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Removes the methods that Lightning set."""
        remove_lent(self)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Removes the methods that Lightning set; it calls no ``teardown``."""
        remove_lent(self)

    def __getstate__(self) -> dict[str, Any]:
        return own_state(self)


def _layout(host: CellHost, prefix: str) -> dict[str, dict[str, list[Any]]]:
    """Returns the custom scalars of TensorBoard: by cell and chart, patterns of tags."""
    charts: dict[str, dict[str, list[Any]]] = {}
    updaters = host.updaters
    for cell, _ in host.trainer.named_cells:
        params = updaters[cell].names if cell in updaters else ()
        shown = escape(prefix + cell)
        patterns = {
            chart: sorted({tag.format(cell=shown, param=escape(name)) for name in params})
            for chart, tag in _CHARTS_OF_PARAMS.items()
        }
        patterns |= {chart: [tag.format(cell=shown)] for chart, tag in _CHARTS_OF_ACTIVITY.items()}
        charts[prefix + cell] = {
            chart: ["Multiline", tags] for chart, tags in patterns.items() if tags
        }
    return charts


def _hyperparameters(host: CellHost, prefix: str) -> dict[str, Any]:
    """Returns the class and the hyperparameters of the rule for each cell, by cell and name."""
    trainer = host.trainer
    if host.cells is None:
        states = ((name, state) for name, (_, state) in trainer.named_cells)
        cells = {name: vars(getattr(state, "hyperparameters", _NONE)) for name, state in states}
    else:  # they may not be bound yet, or be bound to another model
        defaults = vars(getattr(trainer, "defaults", _NONE))
        cells = {name: {**defaults, **spec.overrides} for name, spec in host.cells.items()}
    found: dict[str, Any] = {}
    for cell, settings in cells.items():
        found[f"{prefix}{cell}/rule"] = type(trainer).__name__
        for name, value in settings.items():
            if value is not None:
                plain = isinstance(value, (bool, int, float, str))
                found[f"{prefix}{cell}/{name}"] = value if plain else str(value)
    return found


class _Painter(Watcher):
    """Keeps the latest measurements, and draws them on one canvas when they are logged."""

    def __init__(
        self, pictures: UpdatePictures, trainer: pl.Trainer, canvas: Canvas, prefix: str
    ) -> None:
        self._pictures, self._trainer = pictures, trainer
        self._canvas, self._prefix = canvas, prefix
        self._windows: dict[str, Activity] = {}
        self._changes: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}

    def _due(self) -> bool:
        """Returns whether to draw at the next logging step, which may be this one."""
        every: int = self._trainer.log_every_n_steps  # type: ignore[attr-defined]
        step = batches_that_stepped(self._trainer) + 1
        return every > 0 and -(-step // every) % self._pictures.every_n_logs == 0

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
            fields = fields_of(weight, self._pictures.shapes.get(cell), self._pictures.most)
            if fields is not None:
                canvas.image(f"fields/{place}", grid(fields), step)
        for cell, activity in self._windows.items():
            _histogram(canvas, f"firing_rates/{self._prefix}{cell}", activity.rates, step)
            image = raster(activity.window, self._pictures.most)
            canvas.image(f"spikes/{self._prefix}{cell}", image, step)
        self._changes, self._windows = {}, {}


def _histogram(canvas: Canvas, tag: str, values: Tensor, step: int) -> None:
    finite = values[values.isfinite()].float().cpu()  # a histogram cannot hold the others
    if finite.numel():
        canvas.histogram(tag, finite, step)


def _canvases(trainer: pl.Trainer) -> list[tuple[Logger, Canvas]]:
    """Returns the loggers that take images, with their canvases, in the first process only."""
    found = [(logger, canvas_of(logger)) for logger in trainer.loggers if trainer.is_global_zero]
    return [(logger, canvas) for logger, canvas in found if canvas is not None]


def _shown(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the hyperparameters that Lightning logs."""
    return {name: value for name, value in hparams.items() if name != "_class_path"}

"""The callback that draws for TensorBoard what scalars do not show."""

from __future__ import annotations

from collections.abc import Mapping
from re import escape
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor

from lightning_accum._checks import check_integers, check_mapping
from lightning_accum._compat import batches_that_stepped, logs_hyperparameters
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._images import fields_of, grid, raster
from lightning_accum.callbacks._logging_methods import own_state, remove_lent
from lightning_accum.callbacks._measure import Activity, Before, Values
from lightning_accum.callbacks._watcher import Watcher
from lightning_accum.callbacks.cell_trainer import learners_in
from lightning_accum.functional.numbers import at_least_float32

# What the charts of a cell show, by their names.
_CHARTS_OF_PARAMS = {
    "ratio": "updates/{cell}/{param}/ratio",
    "parts": "updates/{cell}/{param}/(pos|neg)_norm",
    "limits": "updates/{cell}/{param}/at_(lower|upper)",
}
_NONE = SimpleNamespace()


class TensorBoardPictures(Callback):
    """Draws weights, updates and spikes of every cell for a ``TensorBoardLogger``.

    ================================  ============================================================
    histogram ``weights/<c>/<p>``     the weights after an update
    histogram ``updates/<c>/<p>``     their change by the update, as it was applied
    histogram ``firing_rates/<c>``    of the neurons, in spikes per step of a sample
    image ``fields/<c>/<p>``          receptive fields: the weights of each neuron as an image
    image ``spikes/<c>``              of the first sample of the batch: a row for each neuron
    hyperparameters                   of the rule for every cell, beside those of the module
    custom scalars                    charts of each cell: ratio, parts, limits, activity
    ================================  ============================================================

    with ``<c>`` a cell and ``<p>`` a parameter. It stands beside one or several
    :class:`CellTrainerCallback`, in any order, and shows what those measure. Other loggers get the
    scalars alone; where there is no ``TensorBoardLogger``, this callback does nothing.

    Args:
        every_n_logs: on every how many logging steps to draw. A picture costs some milliseconds,
            and waits for the device.
        shapes: height and width of a cell's input, by the cell's name, for receptive fields. A cell
            that is not named has square ones where its number of inputs is a square, or else one
            image of all weights.
        most: how many neurons to draw at most.

    Raises:
        ValueError: if a number is not positive, or, when a fit begins, if there is no
            CellTrainerCallback that measures, or a name in ``shapes`` is no cell's.

    Example:
        >>> from lightning_accum import STDP, CellSpec
        >>> from lightning_accum.callbacks import CellTrainerCallback
        >>> learner = CellTrainerCallback(
        ...     STDP(lr_post=0.01, lr_pre=-0.01, time_dim=0),
        ...     cells={"enc": CellSpec(connection="enc.fc", neuron="enc.lif")},
        ... )
        >>> pictures = TensorBoardPictures(every_n_logs=5, shapes={"enc": (28, 28)})
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
        """Writes the hyperparameters, before Lightning writes the module's alone."""
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
        for logger in _loggers(trainer):
            logger.log_hyperparams(params)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begins to watch the cells, which are bound by now, and lays out their charts."""
        learners = [each for each in learners_in(trainer) if each.log_options.statistics]
        if not learners:
            raise ValueError(
                "A TensorBoardPictures should stand beside a CellTrainerCallback with `log=True`,"
                " which measures what it draws. Found none among the trainer's callbacks."
            )
        cells = {c: each for each in learners for c, _ in each.cell_trainer.named_cells}
        unknown = sorted(set(self.shapes) - set(cells))
        if unknown:
            raise ValueError(
                f"Argument `shapes` should name cells, which are {sorted(cells)}. Found {unknown}."
            )
        for logger in _loggers(trainer):
            prefixes = [each.prefix_in(trainer) for each in learners]
            pairs = [*zip(learners, prefixes, strict=True)]
            layout = {k: v for each, p in pairs for k, v in _layout(each.host, p).items()}
            logger.experiment.add_custom_scalars(layout)
            for each, prefix in pairs:
                each.add_watcher(_Painter(self, trainer, logger, prefix))

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Gives back what Lightning lends."""
        remove_lent(self)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Gives back what Lightning lends, for no teardown follows."""
        remove_lent(self)

    def __getstate__(self) -> dict[str, Any]:
        return own_state(self)


class _Painter(Watcher):
    """Keeps the latest of what it is told, and draws it for one logger when it is logged."""

    def __init__(
        self,
        settings: TensorBoardPictures,
        trainer: pl.Trainer,
        logger: TensorBoardLogger,
        prefix: str,
    ) -> None:
        self._prefix = prefix
        self._settings = settings
        self._trainer = trainer
        self._logger = logger
        self._windows: dict[str, Activity] = {}
        self._changes: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}

    def _due(self) -> bool:
        """Whether the next logging step, which may be this one, is to be drawn."""
        every: int = self._trainer.log_every_n_steps  # type: ignore[attr-defined]
        step = batches_that_stepped(self._trainer) + 1
        return every > 0 and -(-step // every) % self._settings.every_n_logs == 0

    def saw(self, cell: str, activity: Activity) -> None:
        """Keeps a window until its batch is logged."""
        if self._due():
            self._windows[cell] = activity

    def applied(self, before: Before, after: Tensor, values: Values) -> None:
        """Keeps a change until it is logged."""
        if self._due():
            wide = at_least_float32(after.dtype)
            delta = after.to(wide) - before.value
            self._changes[before.cell, before.name] = after.clone(), delta

    def logged(self) -> None:
        """Draws."""
        writer, step = self._logger.experiment, batches_that_stepped(self._trainer)
        most, shapes = self._settings.most, self._settings.shapes
        for (cell, name), (weight, delta) in self._changes.items():
            place = f"{self._prefix}{cell}/{name}"
            _histogram(writer, f"weights/{place}", weight, step)
            _histogram(writer, f"updates/{place}", delta, step)
            fields = fields_of(weight, shapes.get(cell), most)
            if fields is not None:
                writer.add_image(f"fields/{place}", grid(fields), step, dataformats="HW")
        for cell, activity in self._windows.items():
            _histogram(writer, f"firing_rates/{self._prefix}{cell}", activity.rates, step)
            image = raster(activity.window, most)
            writer.add_image(f"spikes/{self._prefix}{cell}", image, step, dataformats="HW")
        self._changes, self._windows = {}, {}


def _histogram(writer: Any, tag: str, values: Tensor, step: int) -> None:
    finite = values[values.isfinite()].float().cpu()  # a histogram has no place for the others
    if finite.numel():
        writer.add_histogram(tag, finite, step)


def _loggers(trainer: pl.Trainer) -> list[TensorBoardLogger]:
    """Those to draw for: none in other processes than the first."""
    found = [logger for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]
    return found if trainer.is_global_zero else []


def _shown(hparams: Mapping[str, Any]) -> dict[str, Any]:
    """Those that Lightning would show."""
    return {name: value for name, value in hparams.items() if name != "_class_path"}


def _layout(host: CellHost, prefix: str) -> dict[str, dict[str, list[Any]]]:
    """For each cell, charts by name, each with patterns of the tags that stand in it."""
    layout: dict[str, dict[str, list[Any]]] = {}
    updaters = host.updaters
    for cell, _ in host.trainer.named_cells:
        params = updaters[cell].names if cell in updaters else ()
        shown = escape(prefix + cell)
        patterns = {
            chart: sorted({tag.format(cell=shown, param=escape(name)) for name in params})
            for chart, tag in _CHARTS_OF_PARAMS.items()
        }
        patterns["activity"] = [f"activity/{shown}/(firing_rate|silent_share)"]
        layout[prefix + cell] = {
            chart: ["Multiline", tags] for chart, tags in patterns.items() if tags
        }
    return layout


def _hyperparameters(host: CellHost, prefix: str) -> dict[str, Any]:
    """The rule and what it is set to for each cell, by cell and name."""
    trainer = host.trainer
    if host.cells is None:
        states = ((name, state) for name, (_, state) in trainer.named_cells)
        cells = {name: vars(getattr(state, "hyperparameters", _NONE)) for name, state in states}
    else:  # which are not bound yet, or still to another model
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

"""What is measured in a fit and logged, and when, and the logger of the summary."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, RichProgressBar
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from lightning_accum._compat.lightning_internals import batches_that_stepped, log_again, logs_now
from lightning_accum._compat.torch_internals import attempt
from lightning_accum._training_events import SILENT, Observer, Values
from lightning_accum.callbacks._cell_host import CellHost
from lightning_accum.cells.trainer import confirm, params_of, updaters_of
from lightning_accum.distributed import world
from lightning_accum.distributed.shards import whole
from lightning_accum.functional.update_statistics import count_statistics, spike_counts
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.sparse.update_statistics import fast_statistics


def is_logging_step(trainer: pl.Trainer) -> bool:
    """Returns whether this batch is a logging step; every one may be if Lightning does not tell."""
    return attempt(logs_now, trainer, otherwise=True)


def log_is_near(trainer: pl.Trainer, batches: float) -> bool:
    """Returns whether one of the next ``batches`` is a logging step, the current one included."""
    step = batches_that_stepped(trainer) + 1
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return every > 0 and -step % every < batches


def log_values(
    pl_module: pl.LightningModule,
    found: Mapping[str, Tensor | float],
    shown: Collection[str],
    callback_metrics: bool = True,
) -> None:
    """Logs values of one step, and has some shown in the progress bar."""
    if not callback_metrics:
        # As Lightning's own `LearningRateMonitor` does; the bar shows what `log` has taken.
        rest = {name: float(value) for name, value in found.items() if name not in shown}
        for each in pl_module.trainer.loggers:
            each.log_metrics(rest, batches_that_stepped(pl_module.trainer))
        found = {name: value for name, value in found.items() if name in shown}
    numbers = {name: value for name, value in found.items() if not isinstance(value, Tensor)}
    made = torch.tensor([*numbers.values()], dtype=torch.float32, device="cpu").unbind()
    values = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    values.update(zip(numbers, made, strict=True))
    if attempt(log_again, pl_module, values, otherwise=False):
        return
    for prog_bar in (False, True):
        part = {name: value for name, value in values.items() if (name in shown) == prog_bar}
        pl_module.log_dict(part, on_step=True, on_epoch=False, batch_size=1, prog_bar=prog_bar)


_LENT = ("log", "log_dict")


class LoggingCallback(Callback):
    """A callback that returns the methods for logging that Lightning lends it."""

    # They are methods of the LightningModule: a callback that kept them would keep the module
    # alive, and copy it.

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        """Removes these methods."""
        for name in _LENT:
            vars(self).pop(name, None)

    def on_exception(self, *args: Any) -> None:
        """Calls :meth:`teardown`, as Lightning does only if there is no exception."""
        self.teardown(*args)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _LENT}


class _ToStderr(logging.Handler):
    """Writes to ``sys.stderr`` as it is then: notebooks and progress bars replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:  # such as a closed stream
            self.handleError(record)


logger = logging.getLogger("lightning_accum.callbacks")
logger.setLevel(logging.INFO)
if not logging.getLogger().hasHandlers():
    logger.addHandler(_ToStderr())
    logger.propagate = False


@rank_zero_only
def log_summary(trainer: pl.Trainer, lines: list[str]) -> None:
    """Logs lines at the end of a fit, for whose handlers the progress bar makes room."""
    bar = trainer.progress_bar_callback
    if isinstance(bar, RichProgressBar) and bar.progress is not None:
        bar.progress.stop()  # otherwise its last redraw erases what is written now
    logger.info("\n".join(lines))


class Counted(NamedTuple):
    """The activity of a cell's neuron in a window."""

    window: Tensor  # the output of the neuron in this process, `[T, B, ...]`
    counts: Tensor  # the number of spikes of each neuron, `[N]`, summed over processes
    slots: int  # the number of steps times samples, summed over processes


def activities(host: CellHost) -> dict[str, Counted]:
    """Returns the activity of the neurons since the rule was last evaluated, by cell."""
    found = {}
    for (cell, name), monitor in host.trainer.named_monitors:
        window = monitor.reducer.window() if name == "post" else None
        if window is not None and window.ndim > 2:  # otherwise the rule raises an error
            slots = window.shape[0] * window.shape[1]
            found[cell] = Counted(window, spike_counts(window), slots)
    return _summed_over_processes(found) if world.processes() > 1 else found


def _summed_over_processes(found: dict[str, Counted]) -> dict[str, Counted]:
    """Returns the activities with counts and slots summed over processes; waits for the device."""
    own = {cell: (activity.counts.cpu(), activity.slots) for cell, activity in found.items()}
    rows = world.of_all(own)
    return {
        cell: activity._replace(
            counts=sum(row[cell][0] for row in rows if cell in row).to(activity.counts),
            slots=sum(row[cell][1] for row in rows if cell in row),
        )
        for cell, activity in found.items()
    }


class Before(NamedTuple):
    """A parameter of a cell before an update."""

    cell: str
    name: str
    param: Tensor  # which the update changes
    value: Tensor  # a copy of the whole parameter
    parts: tuple[Tensor | None, Tensor | None]  # pending; valid until others are accumulated
    limits: tuple[float | None, float | None]  # the lower and the upper one

    def values(self, after: Tensor) -> Values:
        """Returns the statistics of the update, by name."""
        return fast_statistics(self.value, after, *self.parts, *self.limits)


def parameters_before(host: CellHost, ids: set[int] | None = None) -> list[Before]:
    """Returns copies of the parameters that are about to be updated."""
    # Those that no cell trains are left out, unless something else has accumulated changes of them.
    found, trainer = [], host.trainer
    for updater, cells in updaters_of(trainer).values():
        trained = {param for cell in cells for param in params_of(trainer, cell)}
        for name in updater.names:
            target, pending = updater.changes.target(name), updater.changes.pending[name]
            learns = name in trained or len(pending)
            if learns and (ids is None or id(target) in ids):
                value = whole(target.detach()).clone()
                pos, neg = pending.readable().parts()
                if pending.bounds:  # which may be the user's, and write to the parts
                    pos, neg = (None if part is None else part.clone() for part in (pos, neg))
                limits = updater.limits(name)
                found.append(Before(cells[0], name, target, value, (pos, neg), limits))
    return found


class Report:
    """Measures updates and activity, logs them, and tells watchers of them."""

    # It measures in logging steps, and updates also in batches whose update may be the last one
    # before a logging step, and updates 1, 2, 4, 8, ... for the summary of the fit, however rare
    # logging steps are. A single process may count spikes in every batch.

    def __init__(self, host: CellHost, logs: bool, prog_bar: bool, prefix: str) -> None:
        self.watchers: list[Observer] = []  # of what is logged
        self.summary: Observer = SILENT  # of all that is measured
        self._host, self._prefix = host, prefix
        self._logs, self._prog_bar = logs, prog_bar
        self._observing = False  # whether this batch's activity is measured
        self._logging = False  # whether this batch's updates may be logged
        self._batches = 0
        self.counting = False  # whether spikes are counted in every batch
        self.measuring = False  # whether this batch's updates are measured
        self._before: list[Before] = []
        self._exported: list[Before] = []  # parameters before this batch's updates were exported
        self.exports = False  # whether updates were ever exported
        self._unlogged: dict[str, Tensor | float] = {}
        self.updates: Counter[int] = Counter()  # updates, by the optimizer's id

    def batch_begins(self, trainer: pl.Trainer, every: int) -> None:
        """Decides what to measure in a batch."""
        if self._logs:
            self._observing = is_logging_step(trainer)
            self._logging = self._observing or (every > 1 and log_is_near(trainer, every))
            # the next update is number 1, 2, 4, 8, ...; batches count before the first one
            passed = self.updates.values() or (self._batches,)
            sums_up = self.summary is not SILENT and any(n & (n + 1) == 0 for n in passed)
            self.measuring = self._logging or sums_up
            self._exported = []
            self._batches += 1

    def note_activity(self) -> None:
        """Measures the window that is about to be evaluated."""
        if not (self._observing or self.counting):
            return
        confirm(self._host.trainer)
        for cell, activity in activities(self._host).items():
            for watcher in (self.summary, *self.watchers):
                watcher.saw(cell, *activity, self._observing)
            if self._observing:
                place = f"activity/{self._prefix}{cell}"
                found = count_statistics(activity.counts, activity.slots)
                self._unlogged |= {f"{place}/{name}": value for name, value in found.items()}

    def before_export(self) -> None:
        """Copies the parameters whose updates become gradients, which an optimizer applies."""
        self.exports = True
        if self.measuring and not self._exported:
            self._exported = parameters_before(self._host)

    def before_apply(self, optimizer: UpdateOptimizer) -> None:
        """Copies the parameters that an optimizer is about to update."""
        if not self.measuring:
            self._before = []
        elif self._exported:
            self._before = [each for each in self._exported if id(each.param) in optimizer.ids]
        else:
            self._before = parameters_before(self._host, optimizer.ids)

    def after_apply(self, optimizer: UpdateOptimizer) -> None:
        """Measures what the optimizer applied."""
        self.updates[id(optimizer)] += 1
        if not self._before:
            return
        measured, self._before = self._before, []
        lrs = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        watchers = (self.summary, *(self.watchers if self._logging else ()))
        for before in measured:
            after = whole(before.param.detach())  # every process takes part
            values = {**before.values(after), "lr": lrs[id(before.param)]}
            if self._logging:
                place = f"updates/{self._prefix}{before.cell}/{before.name}"
                self._unlogged |= {f"{place}/{name}": value for name, value in values.items()}
            if any(each is not SILENT for each in watchers):
                told = {**values, "updates": self.updates[id(optimizer)]}
                for watcher in watchers:
                    watcher.measured(before.cell, before.name, before.value, after, told)

    def log(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Logs the latest values, if this is a logging step."""
        if self._unlogged and is_logging_step(trainer):
            ratios = {name for name in self._unlogged if name.endswith("/ratio")}
            log_values(pl_module, self._unlogged, ratios if self._prog_bar else ())
            self._unlogged = {}
            for watcher in self.watchers:
                watcher.logged()

"""What a CellTrainerCallback measures in a fit, and who is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import lightning.pytorch as pl
import torch

from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._layout import check_layout
from lightning_accum.callbacks._logging import log_is_near, log_values, logs_now
from lightning_accum.callbacks._measure import Measurement, Values, activities
from lightning_accum.callbacks._summary import Summary
from lightning_accum.callbacks._watcher import Watcher
from lightning_accum.optim import UpdateOptimizer


class Report:
    """Measures on the steps that are logged, and on those that may be the last before one.

    Args:
        host: what is measured.
        active: whether anything is.
        summary: what sums up, where anything does.
        prefix: stands before the names of cells in what is logged.
    """

    def __init__(
        self, host: CellHost, active: bool, summary: Summary | None, prefix: str = ""
    ) -> None:
        self.watchers: list[Watcher] = [] if summary is None else [summary]
        self._summary = summary
        self._host = host
        self._active = active
        self._prefix = prefix
        self._first = True
        self._observing = False
        self._measuring = False
        self._measured: Measurement | None = None
        self._unlogged: Values = {}
        self._applied: Counter[int] = Counter()

    def begin_batch(self, trainer: pl.Trainer, every: int) -> None:
        """Decides what to measure.

        Args:
            trainer: whose batch begins.
            every: batches from one applied update to the next.
        """
        self._observing = self._active and logs_now(trainer)
        self._measuring = self._observing or (self._active and log_is_near(trainer, every))

    def end_epoch(self) -> None:
        """What is applied between batches is not measured."""
        self._measuring = False

    def epoch_ended(self) -> None:
        """The summary tells of the last epoch which neurons were silent."""
        if self._summary is not None:
            self._summary.epoch_ended()

    def note_batch(self, trainer: pl.Trainer, batch: Any) -> None:
        """Compares the first batch with what was recorded of it, before that is evaluated."""
        if self._first:
            self._first = False
            check_layout(self._host, trainer, batch)

    def note_activity(self) -> None:
        """Measures the window that is about to be evaluated."""
        if not self._observing:
            return
        self._host.trainer.confirm()
        for cell, activity in activities(self._host).items():
            for name, value in activity.values().items():
                self._unlogged[f"activity/{self._prefix}{cell}/{name}"] = value
            for watcher in self.watchers:
                watcher.saw(cell, activity)

    def before_apply(self, optimizer: UpdateOptimizer) -> None:
        """Keeps the parameters that an optimizer is about to update."""
        self._measured = Measurement(self._host, optimizer.ids) if self._measuring else None

    def after_apply(self, optimizer: UpdateOptimizer) -> None:
        """Measures what the optimizer applied; what others do to the weights is not counted."""
        self._applied[id(optimizer)] += 1
        measured, self._measured = self._measured, None
        lrs = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        for before in () if measured is None else measured.taken:
            after = before.after()
            values = before.values(after)
            param = before.updater.target(before.name)
            values["lr"] = torch.as_tensor(lrs[id(param)])
            place = f"updates/{self._prefix}{before.cell}/{before.name}"
            for name, value in values.items():
                self._unlogged[f"{place}/{name}"] = value
            for watcher in self.watchers:
                watcher.applied(before, after, values)

    def log(self, trainer: pl.Trainer, pl_module: pl.LightningModule, prog_bar: bool) -> None:
        """Logs the latest values, if this is a logging step."""
        if self._unlogged and logs_now(trainer):
            log_values(pl_module, self._unlogged, prog_bar)
            self._unlogged = {}
            for watcher in self.watchers:
                watcher.logged()

    def text(
        self,
        optimizers: Iterable[UpdateOptimizer],
        advice: Sequence[str] = (),
        warned: Collection[str] = (),
    ) -> list[str]:
        """The lines that sum up a fit; none if there is nothing to say, or it is not asked for.

        Args:
            optimizers: those that applied the updates.
            advice: further lines.
            warned: cells that are not advised, for a warning has told what is wrong.
        """
        if self._summary is None:
            return []
        steps = {
            (cell, name): self._applied[id(optimizer)]
            for optimizer in optimizers
            for cell, updater in self._host.updaters.items()
            for name in updater.names
            if id(updater.target(name)) in optimizer.ids
        }
        defaults = getattr(self._host.trainer, "defaults", None)
        rates = [] if defaults is None else [n for n in vars(defaults) if n.startswith("lr")]
        return self._summary.lines(steps, rates, advice, warned)

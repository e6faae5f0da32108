"""The statistics that a CellTrainerCallback logs in a fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import lightning.pytorch as pl
from torch import Tensor

from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._logging import LogOptions, is_logging_step, log_is_near, log_values
from lightning_accum.callbacks._measure import Before, activities, parameters_before
from lightning_accum.callbacks._summary import Summary
from lightning_accum.callbacks._watcher import Watcher
from lightning_accum.cells.state import rates_in
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.sparse.library import why_not


class Report:
    """Measures updates and activity, logs them, and passes them to watchers.

    It measures in logging steps, and updates also in batches whose update may be the last one
    before a logging step.

    Args:
        host: the host of the cells.
        options: what to log.
        prefix: text before the name of each cell in the names of logged values.
    """

    def __init__(self, host: CellHost, options: LogOptions, prefix: str = "") -> None:
        self._summary = Summary() if options.summary else None
        self.watchers: list[Watcher] = [] if self._summary is None else [self._summary]
        self._host = host
        self._options = options
        self._prefix = prefix
        self._observing = False  # whether this batch's activity is measured
        self.measuring = False  # whether this batch's updates are measured
        self._before: list[Before] = []
        self._exported: list[Before] = []  # parameters before this batch's updates were exported
        self._exports = False  # whether updates were ever exported
        self._unlogged: dict[str, Tensor | float] = {}
        self._applied: Counter[int] = Counter()  # updates, by the optimizer's id

    def batch_begins(self, trainer: pl.Trainer, every: int) -> None:
        """Decides what to measure in a batch.

        Args:
            trainer: the Lightning trainer.
            every: number of batches from one update to the next.
        """
        if self._options.log:
            self._observing = is_logging_step(trainer)
            self.measuring = self._observing or (every > 1 and log_is_near(trainer, every))
            self._exported = []

    def batches_ended(self) -> None:
        """Stops measuring: an update between batches has no logging step."""
        self.measuring = False

    def epoch_ended(self) -> None:
        """Tells the watchers that an epoch has ended."""
        for watcher in self.watchers:
            watcher.epoch_ended()

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

    def before_export(self) -> None:
        """Copies the parameters whose updates become gradients, which an optimizer applies."""
        self._exports = True
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
        self._applied[id(optimizer)] += 1
        if not self._before:
            return
        measured, self._before = self._before, []
        lrs = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
        for before in measured:
            after = before.after()
            values = {**before.values(after), "lr": lrs[id(before.param)]}
            place = f"updates/{self._prefix}{before.cell}/{before.name}"
            for name, value in values.items():
                self._unlogged[f"{place}/{name}"] = value
            for watcher in self.watchers:
                watcher.applied(before, after, values)

    def log(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Logs the latest values, if this is a logging step."""
        if self._unlogged and is_logging_step(trainer):
            log_values(pl_module, self._unlogged, self._options.prog_bar)
            self._unlogged = {}
            for watcher in self.watchers:
                watcher.logged()

    def summary(
        self,
        optimizers: Iterable[UpdateOptimizer],
        advice: Sequence[str] = (),
        warned: Collection[str] = (),
    ) -> list[str]:
        """Returns the lines that sum up a fit, or no lines if there is nothing to print.

        Args:
            optimizers: the optimizers that applied updates.
            advice: further lines of advice.
            warned: cells without advice, because a warning has named the mistake.
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
        named = defaults is not None and not self._exports  # else an optimizer has a rate too
        rates = [*rates_in(vars(defaults))] if named else []
        both = {
            cell
            for cell, state in self._host.trainer.cell_states.items()
            if cell not in warned and self._host.trainer.has_both_signs(vars(state.hyperparameters))
        }
        advice = [*self._summary.one_sided(both, steps), *advice]
        lines, reason = self._summary.lines(steps, rates, advice, warned), why_not()
        if lines and reason is not None:
            lines.append(
                f"Sums over spikes ran in plain torch instead of the compiled kernel: {reason}."
            )
        return lines

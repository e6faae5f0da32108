"""One fit of a CellTrainerCallback, from the first batch to the last."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_only

from lightning_accum._compat import attempt, skips_backward
from lightning_accum.callbacks._combining import Combining
from lightning_accum.callbacks._gate import Recording, StepGate
from lightning_accum.callbacks._gradients import (
    ascending,
    check_exported_gradients,
    check_recorded_gradients,
    scales_gradients,
)
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._inputs import inputs_for
from lightning_accum.callbacks._logger import logger
from lightning_accum.callbacks._logging import LogOptions
from lightning_accum.callbacks._optimizers import Appliers
from lightning_accum.callbacks._processes_agree import check_processes_agree
from lightning_accum.callbacks._replaced_modules import check_places
from lightning_accum.callbacks._report import Report
from lightning_accum.callbacks._update_plan import UpdatePlan
from lightning_accum.distributed.world import processes
from lightning_accum.health import Health
from lightning_accum.optim import UpdateOptimizer


class Fit:
    """Records, evaluates, applies, logs and checks the cells of a host during one fit.

    Args:
        host: the host, whose cells are bound.
        plan: when updates are applied, and with which factor.
        keys: by the name of each input of the rule, its key in the result of ``training_step``.
        options: what to log.
        prefix: text before the name of each cell in the names of logged values.
    """

    def __init__(
        self,
        host: CellHost,
        plan: UpdatePlan,
        keys: Mapping[str, str],
        options: LogOptions,
        prefix: str,
    ) -> None:
        self.report = Report(host, options, prefix)
        self._host, self._plan, self._keys = host, plan, keys
        self._appliers = Appliers(host, plan.lr, keys, self._before_apply, self._after_apply)
        self._recording, self._combining = Recording(host), Combining(host)
        self.health: Health | None = None  # once training has started, unless it is switched off
        self._scaled, self._alone = False, processes() == 1
        self._ascends: str | None = None

    def begin(self, trainer: pl.Trainer, resuming: bool) -> None:
        """Finds the optimizers, and prepares to record training steps.

        Args:
            trainer: the Lightning trainer.
            resuming: whether the fit resumes one whose state was saved.
        """
        self._scaled = scales_gradients(trainer)
        self._ascends = ascending(trainer, self._host.updaters.values())
        check_recorded_gradients(self._host.trainer, self._scaled)
        self._appliers.find(trainer)
        self._plan.begin(self._appliers.made, resuming)
        # Monitors register their hooks before the first compiled call, and keep them: in validation
        # the recording is off, and each hook checks the mode of its module.
        self._host.trainer.train()
        StepGate.on(trainer).register(self._recording)

    def updates_as_gradients(self, **inputs: Any) -> None:
        """Moves the updates of the batch to the gradients of the parameters.

        Args:
            **inputs: the inputs of the rule.

        Raises:
            RuntimeError: if a gradient scaler would divide them by its scale.
            ValueError: if an optimizer of the parameters maximizes.
        """
        check_exported_gradients(self._scaled, self._ascends)
        self.report.before_export()
        self._host.updates_as_gradients(**inputs)

    def training_begins(
        self, pl_module: pl.LightningModule, hosts: Sequence[CellHost], off: Collection[str] | None
    ) -> None:
        """Begins to watch the cells; a checkpoint is loaded by now.

        Args:
            pl_module: the LightningModule.
            hosts: the hosts of all callbacks of the Trainer.
            off: the checks that are left out; ``None`` for all.
        """
        check_places(self._host, pl_module)
        check_processes_agree(self._host, self._plan, pl_module)
        if off is not None:
            size = getattr(pl_module.trainer.train_dataloader, "batch_size", None)
            optimized = {
                id(param)
                for optimizer in pl_module.trainer.optimizers
                if not isinstance(optimizer, UpdateOptimizer)
                for group in optimizer.param_groups
                for param in group["params"]
            }
            self.health = self._host.watch(
                pl_module, self._appliers.by, off, hosts, batch_size=size, optimized=optimized
            )
            if text := self._plan.wrong_unit(pl_module.trainer):
                self.health.say("lr_scheduler", "setup", text)

    def batch_begins(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch_idx: int
    ) -> None:
        """Prepares to record the training step of a batch."""
        if batch_idx == 0:
            check_places(self._host, pl_module)
        self._appliers.batch_begins(trainer)
        self.report.batch_begins(trainer, self._plan.batches_between(trainer))
        if not attempt(skips_backward, trainer, otherwise=False):
            self._combine(trainer)  # before the module evaluates pieces of the batch by hand
            self._recording.begin_batch()

    def batch_ends(self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any) -> None:
        """Evaluates the rule, and applies updates if they are due."""
        if not self._recording.in_batch:
            return
        self.report.note_activity()
        inputs = inputs_for(self._host.trainer, outputs, self._keys)
        self._combine(trainer)
        self._host.finish_batch(**inputs)
        self._recording.end_batch()
        if self._plan.batch_ended(trainer) and self._appliers.by == "callback":
            self._step(trainer)
        self.report.log(trainer, pl_module)

    def epoch_ends(self, trainer: pl.Trainer) -> None:
        """Applies what an epoch left pending that was stopped before its last batch."""
        self._recording.end_batch()  # the module may have skipped the batch's end
        if self._plan.update_left() and self._appliers.by == "callback":
            self.report.batches_ended()
            self._step(trainer)
        self._plan.schedule.passed("epoch")
        self.report.epoch_ended()
        self._host.events.epoch_ended()
        self._host.trainer.confirm()

    def training_ends(self) -> None:
        """Prints the summary."""
        self._host.events.ended("fit")
        advice, warned = (
            ([], ()) if self.health is None else (self.health.lines(), self.health.said)
        )
        if lines := self.report.summary(self._appliers.optimizers, advice, warned):
            rank_zero_only(logger.info)("\n".join(lines))

    def release(self, failed: bool) -> None:
        """Detaches from optimizers and strategy."""
        try:
            self._host.events.ended("failed" if failed else "released")
        finally:
            self._combining.end()
            self._appliers.detach()
            self._plan.schedule.end()
            self._recording.leave()

    def _combine(self, trainer: pl.Trainer) -> None:
        at_once = self._appliers.by == "callback" and self._plan.batches_between(trainer) == 1
        self._combining.begin(at_once, record=self.report.measuring)

    def _step(self, trainer: pl.Trainer) -> None:
        self._appliers.step(trainer)
        self._plan.schedule.passed("update")

    def _before_apply(self, optimizer: UpdateOptimizer) -> None:
        """Evaluates what is recorded if the module steps its optimizer within a batch."""
        if self._recording.in_batch:
            self.report.note_activity()
            self._host.evaluate()
        if self._alone and optimizer is self._appliers.made:  # which holds every parameter
            self._host.skip_exchange()
        else:
            self._host.exchange(optimizer.ids)
        self.report.before_apply(optimizer)

    def _after_apply(self, optimizer: UpdateOptimizer) -> None:
        self.report.after_apply(optimizer)

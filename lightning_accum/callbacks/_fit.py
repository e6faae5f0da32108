"""One fit of a CellTrainerCallback, from the first batch to the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_only
from torch.optim import Optimizer

from lightning_accum._compat import attempt, skips_backward
from lightning_accum.callbacks._combining import Combining
from lightning_accum.callbacks._early_export import EarlyExport
from lightning_accum.callbacks._epoch_watch import EpochWatch
from lightning_accum.callbacks._gate import Recording, StepGate
from lightning_accum.callbacks._gradients import (
    ascending,
    check_exported_gradients,
    check_recorded_gradients,
    scales_gradients,
)
from lightning_accum.callbacks._health import Health
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._inputs import inputs_for
from lightning_accum.callbacks._layout import check_layout
from lightning_accum.callbacks._logger import logger
from lightning_accum.callbacks._logging import LogOptions, is_logging_step
from lightning_accum.callbacks._loss_watch import LossWatch
from lightning_accum.callbacks._module_checks import ModuleChecks
from lightning_accum.callbacks._optimizers import Appliers
from lightning_accum.callbacks._overlap import Overlap
from lightning_accum.callbacks._processes_agree import check_processes_agree
from lightning_accum.callbacks._rate_watch import RateWatch
from lightning_accum.callbacks._replaced_modules import check_places
from lightning_accum.callbacks._report import Report
from lightning_accum.callbacks._shuffled import shuffled_stream
from lightning_accum.callbacks._untrained import check_trained
from lightning_accum.callbacks._update_plan import UpdatePlan
from lightning_accum.cells.input_watch import InputWatch
from lightning_accum.distributed.world import processes
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
        self._inputs, self._rates, self._epochs = InputWatch(), RateWatch(), EpochWatch()
        self._early, self._overlap = EarlyExport(host), Overlap(host)
        self._recording, self._combining = Recording(host), Combining(host)
        self._loss, self._follows = LossWatch(), False
        self.health: Health | None = None  # until training starts
        self._whole: ModuleChecks | None = None  # only the first callback has them
        self._layout_checked, self._scaled, self._alone = False, False, processes() == 1
        self._ascends: str | None = None

    def begin(self, trainer: pl.Trainer, resuming: bool) -> None:
        """Finds the optimizers, and prepares to record training steps.

        Args:
            trainer: the Lightning trainer.
            resuming: whether the fit resumes one whose state was saved.
        """
        self._scaled, self._epochs.may_be_empty = scales_gradients(trainer), resuming
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
        self._early.exports()
        self.report.before_export()
        self._host.updates_as_gradients(**inputs)
        self._inputs.note(inputs)

    def training_begins(self, pl_module: pl.LightningModule, hosts: Sequence[CellHost]) -> None:
        """Begins to check the cells; a checkpoint is loaded by now.

        Args:
            pl_module: the LightningModule.
            hosts: the hosts of all callbacks of the Trainer.
        """
        check_places(self._host, pl_module)
        check_processes_agree(self._host, self._plan, pl_module)
        self._follows = check_trained(self._host, hosts, pl_module)
        inputs, rates = self._inputs, self._rates
        self.health = Health(self._host, pl_module, hosts=hosts, inputs=inputs, rates=rates)
        self.health.watch()
        if hosts[0] is self._host:
            self._whole = ModuleChecks(hosts, pl_module, self._epochs)

    def batch_begins(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch_idx: int
    ) -> None:
        """Prepares to record the training step of a batch."""
        if batch_idx == 0:
            check_places(self._host, pl_module)
        self._epochs.batch_begins()
        self._appliers.batch_begins(trainer)
        self._plan.own_steps.batch_begins(batch_idx, trainer.is_last_batch)
        self.report.batch_begins(trainer, self._plan.batches_between(trainer))
        if not attempt(skips_backward, trainer, otherwise=False):
            self._combine(trainer)  # before the module evaluates pieces of the batch by hand
            self._recording.begin_batch()

    def batch_ends(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any
    ) -> None:
        """Evaluates the rule, and applies updates if they are due."""
        self._epochs.batch_ends()
        if not self._recording.in_batch:
            return
        if not self._layout_checked:  # before the rule's evaluation clears the first window
            self._layout_checked = True
            check_layout(self._host, trainer, batch)
        self._early.batch_ends()
        self.report.note_activity()
        inputs = inputs_for(self._host.trainer, outputs, self._keys)
        self._combine(trainer)
        self._host.finish_batch(**inputs)
        if inputs:
            self._inputs.note(inputs)
        if is_logging_step(trainer):
            self._loss.note(outputs, trainer)
        self._recording.end_batch()
        if self._plan.batch_ended(trainer) and self._appliers.by == "callback":
            self._step(trainer)
        self.report.log(trainer, pl_module)
        assert self.health is not None
        self.health.batch_ended()
        self.health.look_if_due(self._appliers.optimizers, self._appliers.by)

    def epoch_ends(self, trainer: pl.Trainer) -> None:
        """Applies what an epoch left pending that was stopped before its last batch."""
        self._recording.end_batch()  # the module may have skipped the batch's end
        if self._plan.update_left() and self._appliers.by == "callback":
            self.report.batches_ended()
            self._step(trainer)
        self._plan.schedule.passed("epoch")
        self.report.epoch_ended()
        assert self.health is not None
        self.health.epoch_ended(self._appliers.optimizers, self._appliers.by)
        self._host.trainer.confirm()
        if self._whole is not None:
            self._epochs.epoch_ends(trainer)

    def training_ends(self, pl_module: pl.LightningModule) -> None:
        """Checks the cells, prints the summary, and warns of dropped updates.

        Args:
            pl_module: the LightningModule.
        """
        assert self.health is not None
        optimizers = self._appliers.optimizers
        advice = self.health.fit_ended(optimizers, self._appliers.by)
        advice += self._inputs.lines(self.health.unmoved)
        interval = self._plan.schedule.interval if self._appliers.made else None
        advice += self._rates.lines(self._host, pl_module.trainer, optimizers, interval)
        if self._host.carry:
            advice += shuffled_stream(pl_module.trainer)
        if self._whole is not None:
            advice += self._whole.lines()
        if self._follows or self._inputs.has_error:
            advice += self._loss.lines(type(self._host.trainer).__name__)
        slow = self._rates.slow(self._host, optimizers)
        if lines := self.report.summary(optimizers, advice, self.health.warned, slow):
            rank_zero_only(logger.info)("\n".join(lines))
        self.health.drops.warn()

    def release(self, failed: bool) -> None:
        """Detaches from optimizers and strategy; checks the cells if an exception ended the fit."""
        health, self.health = self.health, None
        try:
            if failed and health is not None:
                health.fit_failed(self._appliers.optimizers, self._appliers.by)
        finally:
            self._combining.end()
            self._appliers.detach()
            self._plan.schedule.end()
            self._recording.leave()
        if not failed and health is not None:
            health.fit_closed()

    def note_gradients(self, pl_module: pl.LightningModule, optimizer: Optimizer) -> None:
        """Notes whether an optimizer trains parameters of cells, and whether it lacks gradients."""
        if self._overlap.note(optimizer) and self._whole is not None:
            self._whole.note_gradients(optimizer)

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
        self._overlap.check()
        if self._alone and optimizer is self._appliers.made:  # which holds every parameter
            self._host.trainer.forget_samples()
        else:
            self._host.exchange(optimizer.ids)
        self.report.before_apply(optimizer)
        if self.health is not None:
            self.health.update_begins()

    def _after_apply(self, optimizer: UpdateOptimizer) -> None:
        self._rates.note(optimizer)
        self.report.after_apply(optimizer)
        if self._appliers.by == "module" and len(self._appliers.optimizers) == 1:
            self._plan.own_steps.stepped(optimizer)
        if self.health is not None:
            self.health.update_ended()

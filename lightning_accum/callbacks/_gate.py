"""Wraps a strategy's steps, so that cells record one training step of each batch only."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.plugins.precision import Precision
from torch.optim import Optimizer

from lightning_accum._compat.lightning import count_steps, replace_methods, restore_methods
from lightning_accum.callbacks._cell_host import CellHost
from lightning_accum.callbacks._update_optimizers import optimizes_nothing, scales_gradients
from lightning_accum.observe import unobserved
from lightning_accum.optim import UpdateOptimizer


class BatchRecording:
    """Has a host record the first training step of each batch."""

    def __init__(self, host: CellHost) -> None:
        self.in_batch = False
        self.gate: StepGate | None = None
        self._host = host
        self._due = False

    def begin_batch(self) -> None:
        """Has the next training step recorded."""
        self.in_batch = self._due = True

    def end_batch(self) -> None:
        """Has no training step recorded until the next batch begins."""
        self.in_batch = self._due = False

    def step_begins(self) -> None:
        """Starts recording, if this is the first training step of the batch."""
        if self._due:
            self._due = False
            self._host.trainer.switch.on = True

    def step_ends(self) -> None:
        """Stops recording."""
        self._host.trainer.switch.on = False

    def leave(self) -> None:
        """Deregisters from the gate; a batch that has not ended counts for nothing."""
        if self.in_batch:
            self._host.abandon_batch()
        self.end_batch()
        if self.gate is not None:
            self.gate.deregister(self)


class StepGate:
    """Wraps the training step and the optimizer step of a strategy, to record the former."""

    # All recordings of a run share one gate. The last recording that leaves restores the strategy.

    def __init__(self, trainer: pl.Trainer) -> None:
        self._trainer = trainer
        self._recordings: list[BatchRecording] = []
        self._training_step = trainer.strategy.training_step
        self._optimizer_step = trainer.strategy.optimizer_step

    @classmethod
    def on(cls, trainer: pl.Trainer) -> StepGate:
        """Returns the gate of a trainer's strategy, which gets one if it has none."""
        gate = getattr(trainer.strategy.training_step, "__self__", None)
        if not isinstance(gate, StepGate):
            gate = cls(trainer)
            replace_methods(trainer.strategy, gate.training_step, gate.optimizer_step)
        return gate

    def register(self, recording: BatchRecording) -> None:
        """Registers a recording, which follows each training step."""
        self._recordings.append(recording)
        recording.gate = self

    def deregister(self, recording: BatchRecording) -> None:
        """Deregisters a recording; the last one restores the strategy's methods."""
        self._recordings = [known for known in self._recordings if known is not recording]
        recording.gate = None
        if not self._recordings:
            restore_methods(self._trainer.strategy, self.training_step, self.optimizer_step)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the strategy's training step, and has it recorded."""
        for recording in self._recordings:
            recording.step_begins()
        try:
            return self._training_step(*args, **kwargs)
        finally:
            for recording in self._recordings:
                recording.step_ends()

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any
    ) -> Any:
        """Runs the strategy's optimizer step; only the first call of its closure is seen."""
        # An UpdateOptimizer bypasses the gradient scaler: it has no gradients, which the scaler
        # would reject, and updates are not scaled. Lightning also counts the steps of what stands
        # in for no optimizer, which are taken back: applied updates are counted instead.
        once = _Once(closure)
        if isinstance(optimizer, UpdateOptimizer) and scales_gradients(self._trainer):
            model = model or self._trainer.lightning_module
            return Precision().optimizer_step(optimizer, model, once, **kwargs)
        result = self._optimizer_step(optimizer, once, model, **kwargs)
        if optimizes_nothing(optimizer):
            count_steps(self._trainer, -1)
        return result


class _Once:
    """A closure that monitors see only when it is called for the first time."""

    def __init__(self, closure: Callable[[], Any]) -> None:
        self._closure = closure
        self._calls = itertools.count()

    def __call__(self) -> Any:
        if next(self._calls) == 0:
            return self._closure()
        with unobserved():
            return self._closure()

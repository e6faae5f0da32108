"""A fit without an optimizer of the module, in which applied updates count as steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import BatchSizeFinder
from torch.optim import Optimizer

from lightning_accum._compat import clear_trainer_optimizers, mock_optimizer, replaces_no_optimizer


def replace_missing_optimizer(trainer: pl.Trainer) -> None:
    """Replaces the optimizer that Lightning makes if ``configure_optimizers`` returns none.

    That optimizer has no learning rate, for which Lightning's LearningRateMonitor fails. Manual
    optimization needs no optimizer. Automatic optimization needs one, and counts a step of it in
    every batch; with the replacement, only applied updates count. What ``self.optimizers()``
    returns to the module stays.

    Args:
        trainer: the Lightning trainer.
    """
    if not all(replaces_no_optimizer(optimizer) for optimizer in trainer.optimizers):
        return
    if trainer.lightning_module.automatic_optimization:
        trainer.optimizers = [NoOptimizer(trainer)]
    else:
        clear_trainer_optimizers(trainer)


def stand_in_for_tuner(trainer: pl.Trainer) -> None:
    """Adds the optimizer that Lightning makes for ``None`` if ``configure_optimizers`` returns [].

    Lightning's BatchSizeFinder runs training steps without callbacks, before any other callback
    begins the fit. First, it saves a checkpoint, in which callbacks call this function.

    Args:
        trainer: the Lightning trainer, which saves a checkpoint.
    """
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    if trainer.optimizers or not trainer.lightning_module.automatic_optimization:
        return
    if any(isinstance(each, BatchSizeFinder) for each in callbacks):
        trainer.optimizers = [mock_optimizer()]


def steps_to_count(trainer: pl.Trainer) -> Any:
    """Returns Lightning's count of steps if applied updates have to advance it, else ``None``.

    Args:
        trainer: the Lightning trainer.
    """
    loop = trainer.fit_loop.epoch_loop
    if not trainer.lightning_module.automatic_optimization:
        return loop.manual_optimization.optim_step_progress
    if any(isinstance(optimizer, NoOptimizer) for optimizer in trainer.optimizers):
        return loop.automatic_optimization.optim_progress.optimizer.step
    return None


class NoOptimizer(Optimizer):
    """Runs the closure of automatic optimization, and takes back the step that Lightning counts.

    Args:
        trainer: the Lightning trainer.
    """

    def __init__(self, trainer: pl.Trainer) -> None:
        super().__init__([torch.zeros(1)], {})
        self.param_groups.clear()
        self._loop = trainer.fit_loop.epoch_loop.automatic_optimization

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Calls the closure, before Lightning counts the step as completed."""
        result = None if closure is None else closure()
        counted = self._loop.optim_progress.optimizer.step
        for tracker in (counted.total, counted.current):
            tracker.ready -= 1
            tracker.completed -= 1
        return result

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of an optimizer without parameters."""
        return {"state": {}, "param_groups": []}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads nothing."""

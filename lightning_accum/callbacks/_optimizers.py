"""The optimizers that apply updates in a fit: the module's own, or one that the callback keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.core.optimizer import _MockOptimizer

from lightning_accum.optim import UpdateOptimizer
from lightning_accum.updates import Updater


def own_optimizers(trainer: pl.Trainer, updaters: Sequence[Updater]) -> list[UpdateOptimizer]:
    """The UpdateOptimizers of the module that hold parameters of ``updaters``; none if it has none.

    Raises:
        ValueError: if they leave out a parameter.
    """
    params = {
        id(updater.target(name)): f"{updater.label}: {name}"
        for updater in updaters
        for name in updater.names
    }
    own = [o for o in trainer.optimizers if isinstance(o, UpdateOptimizer) and o.ids & set(params)]
    left = set(params).difference(*(optimizer.ids for optimizer in own))
    if own and left:
        raise ValueError(
            "The UpdateOptimizer that `configure_optimizers` returns should hold every parameter"
            f" that cells train. Found none that holds {[params[i] for i in params if i in left]}:"
            " add them, or return no UpdateOptimizer, and one is made."
        )
    return own


def stand_in(trainer: pl.Trainer) -> None:
    """Has a module without optimizers run as one whose updates a callback counts.

    In the place of none, Lightning has an optimizer without a rate, at which its
    LearningRateMonitor fails. Manual optimization needs none. Automatic optimization does, and
    counts a step of it in every batch. What ``self.optimizers()`` gives to the module stays.
    """
    if not all(isinstance(optimizer, _MockOptimizer) for optimizer in trainer.optimizers):
        return
    if trainer.lightning_module.automatic_optimization:
        trainer.optimizers = [_NoOptimizer(trainer)]
        return
    shown = trainer.strategy._lightning_optimizers
    trainer.optimizers = []
    trainer.strategy._lightning_optimizers = shown


def uncounted(trainer: pl.Trainer) -> Any:
    """Lightning's count of steps, if applied updates have to advance it; else ``None``."""
    loop = trainer.fit_loop.epoch_loop
    if not trainer.lightning_module.automatic_optimization:
        return loop.manual_optimization.optim_step_progress
    if any(isinstance(optimizer, _NoOptimizer) for optimizer in trainer.optimizers):
        return loop.automatic_optimization.optim_progress.optimizer.step
    return None


class _NoOptimizer(_MockOptimizer):
    """Runs the closure of automatic optimization; what Lightning counts for it is taken back."""

    def __init__(self, trainer: pl.Trainer) -> None:
        super().__init__()
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
        """That of an optimizer without parameters."""
        return {"state": {}, "param_groups": []}

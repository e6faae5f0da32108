"""Private names of Lightning."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor


def batches_that_stepped(trainer: Any) -> int:
    """Returns how many training batches have passed, by the count on a logger's x axis.

    Lightning's own callbacks log at this count; ``trainer.global_step`` counts optimizer steps.

    Args:
        trainer: a Lightning ``Trainer`` in a fit.
    """
    return int(trainer.fit_loop.epoch_loop._batches_that_stepped)


def logs_now(trainer: Any) -> bool:
    """Returns whether Lightning passes values that are logged in this batch to the loggers.

    Lightning also logs the batch in which training stops. Its own answer, the private
    ``should_update_logs``, first finds the loop that runs, which takes longer than all the rest.

    Args:
        trainer: a Lightning ``Trainer`` in a training batch of a fit.
    """
    every: int = trainer.log_every_n_steps
    step = batches_that_stepped(trainer) + 1
    return every > 0 and (step % every == 0 or bool(trainer.should_stop))


def log_again(pl_module: Any, values: Mapping[str, Tensor]) -> bool:
    """Replaces values that ``log`` has taken in the same hook since the epoch began.

    ``log`` moves the metric of each value to the value's device at each call, attribute by
    attribute, and copies the value, which takes most of its time. Here each metric only takes the
    new value.

    Args:
        pl_module: a LightningModule in a hook of a fit.
        values: floats without dimensions, float32 or wider, which nobody changes, by the names
            under which they were logged with ``on_epoch=False``.

    Returns:
        Whether the values were replaced; if not, nothing has changed, and they have to be logged.
    """
    results, hook = pl_module.trainer._results, pl_module._current_fx_name
    found = [(results or {}).get(f"{hook}.{name}") for name in values]
    if any(metric is None or metric.has_reset for metric in found):
        return False
    for metric, value in zip(found, values.values(), strict=True):
        assert metric is not None
        metric._forward_cache = value  # its `value` is read at an epoch's end, if at all
    return True


def skips_backward(trainer: Any) -> bool:
    """Returns whether the epoch only runs the model forward.

    ``StochasticWeightAveraging`` ends a fit with such an epoch, and sets nothing public.

    Args:
        trainer: a Lightning ``Trainer`` in a fit.
    """
    return bool(trainer.fit_loop._skip_backward)


def replaces_no_optimizer(optimizer: object) -> bool:
    """Returns whether Lightning made this optimizer because ``configure_optimizers`` returned none.

    The public list ``trainer.optimizers`` holds it like any other optimizer.

    Args:
        optimizer: an optimizer of a Lightning ``Trainer``.
    """
    module: Any = sys.modules["lightning.pytorch.core.optimizer"]
    return isinstance(optimizer, module._MockOptimizer)


def mock_optimizer() -> Any:
    """Returns the optimizer that Lightning makes if ``configure_optimizers`` returns ``None``."""
    module: Any = sys.modules["lightning.pytorch.core.optimizer"]
    return module._MockOptimizer()


def clear_trainer_optimizers(trainer: Any) -> None:
    """Empties ``trainer.optimizers``, and keeps what ``self.optimizers()`` returns to the module.

    Assigning ``trainer.optimizers = []`` empties both.

    Args:
        trainer: a Lightning ``Trainer`` in a fit.
    """
    shown = trainer.strategy._lightning_optimizers
    trainer.optimizers = []
    trainer.strategy._lightning_optimizers = shown


def logs_hyperparameters(holder: Any) -> bool:
    """Returns whether ``save_hyperparameters`` asked for logging, as its ``logger=True`` does.

    Args:
        holder: a LightningModule or a LightningDataModule.
    """
    return bool(holder._log_hyperparams)

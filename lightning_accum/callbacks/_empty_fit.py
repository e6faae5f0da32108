"""The warning of a fit without any training batch."""

from __future__ import annotations

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_only, rank_zero_warn

from lightning_accum.callbacks._logger import logger


def tell_of_no_batches(trainer: pl.Trainer) -> None:
    """Warns that a fit which has ended had no training batches, with the reason.

    It is only logged if the fit resumed a checkpoint, whose training may have been complete.

    Args:
        trainer: the Lightning trainer, in whose fit training never began.
    """
    if trainer.fast_dev_run or trainer.should_stop:  # type: ignore[attr-defined]
        return
    text = f"Each fit should have training batches. Found none: {_reason(trainer)}"
    if trainer.ckpt_path:
        rank_zero_only(logger.info)(text)
    else:
        rank_zero_warn(text, category=RuntimeWarning)


def _reason(trainer: pl.Trainer) -> str:
    """Returns why no batch ran, and the remedy."""
    if trainer.limit_train_batches == 0:
        return "`limit_train_batches` of the Trainer is 0: leave it out, or pass more."
    for loop, name, limit, done in (
        ("fit_loop.epoch_loop", "max_steps", trainer.max_steps, trainer.global_step),
        ("fit_loop", "max_epochs", trainer.max_epochs, trainer.current_epoch),
    ):
        if limit is None or limit < 0 or done < limit:
            continue
        if not limit:
            return f"`{name}` of the Trainer is 0: pass more."
        reached = f"the Trainer had reached `{name}={limit}` in"
        if trainer.ckpt_path:
            return f"{reached} the checkpoint that it resumed: raise it to train for longer."
        return (
            f"{reached} an earlier fit: make a new Trainer for each fit, or raise"
            f" `trainer.{loop}.{name}`."
        )
    return (
        "the loader has no batches: look at the number of samples, at `drop_last`, and at"
        " `limit_train_batches`."
    )

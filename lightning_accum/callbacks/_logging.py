"""When Lightning logs, and how callbacks give it values."""

from __future__ import annotations

import lightning.pytorch as pl
from torch import Tensor


def batches_that_stepped(trainer: pl.Trainer) -> int:
    """How many batches have passed, by the count that loggers have on their x axis."""
    return trainer.fit_loop.epoch_loop._batches_that_stepped


def logs_now(trainer: pl.Trainer) -> bool:
    """Whether what is logged in the batch that runs reaches the loggers."""
    return bool(trainer._logger_connector.should_update_logs)


def log_is_near(trainer: pl.Trainer, batches: int) -> bool:
    """Whether there is a logging step among the next ``batches``, the one that runs included."""
    step = batches_that_stepped(trainer) + 1
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return every > 0 and -step % every < batches


def log_values(pl_module: pl.LightningModule, values: dict[str, Tensor], prog_bar: bool) -> None:
    """Logs values of one step; ratios in the progress bar too, where they are wanted there."""
    shown = {name: v for name, v in values.items() if prog_bar and name.endswith("/ratio")}
    rest = {name: v for name, v in values.items() if name not in shown}
    for part in (rest, shown):
        pl_module.log_dict(part, on_step=True, on_epoch=False, batch_size=1, prog_bar=part is shown)

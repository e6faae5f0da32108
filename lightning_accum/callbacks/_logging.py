"""What is logged in a fit, and when, and the logger of the summary."""

import logging
import sys
from collections.abc import Collection, Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import RichProgressBar
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor

from lightning_accum._compat.lightning import batches_that_stepped, log_again, logs_now
from lightning_accum._compat.torch import attempt


def is_logging_step(trainer: pl.Trainer) -> bool:
    """Returns whether this batch is a logging step; every one may be if Lightning does not tell."""
    return attempt(logs_now, trainer, otherwise=True)


def log_is_near(trainer: pl.Trainer, batches: float) -> bool:
    """Returns whether one of the next ``batches`` is a logging step, the current one included."""
    step = batches_that_stepped(trainer) + 1
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return every > 0 and -step % every < batches


def log_values(
    pl_module: pl.LightningModule,
    found: Mapping[str, Tensor | float],
    shown: Collection[str],
    callback_metrics: bool = True,
) -> None:
    """Logs values of one step, and has some shown in the progress bar."""
    if not callback_metrics:
        # As Lightning's own `LearningRateMonitor` does; the bar shows what `log` has taken.
        rest = {name: float(value) for name, value in found.items() if name not in shown}
        for each in pl_module.trainer.loggers:
            each.log_metrics(rest, batches_that_stepped(pl_module.trainer))
        found = {name: value for name, value in found.items() if name in shown}
    numbers = {name: value for name, value in found.items() if not isinstance(value, Tensor)}
    made = torch.tensor([*numbers.values()], dtype=torch.float32, device="cpu").unbind()
    values = {name: value for name, value in found.items() if isinstance(value, Tensor)}
    values.update(zip(numbers, made, strict=True))
    if attempt(log_again, pl_module, values, otherwise=False):
        return
    for prog_bar in (False, True):
        part = {name: value for name, value in values.items() if (name in shown) == prog_bar}
        pl_module.log_dict(part, on_step=True, on_epoch=False, batch_size=1, prog_bar=prog_bar)


# They are methods of the LightningModule: a callback that kept them would keep the module alive,
# and copy it.
_LENT = ("log", "log_dict")


def own_state(callback: object) -> dict[str, Any]:
    """Returns a callback's attributes without the methods that Lightning sets."""
    return {name: value for name, value in vars(callback).items() if name not in _LENT}


def remove_lent(callback: object) -> None:
    """Removes the methods that Lightning set on a callback."""
    for name in _LENT:
        vars(callback).pop(name, None)


class _ToStderr(logging.Handler):
    """Writes to ``sys.stderr`` as it is then: notebooks and progress bars replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:  # such as a closed stream
            self.handleError(record)


logger = logging.getLogger("lightning_accum.callbacks")
logger.setLevel(logging.INFO)
if not logging.getLogger().hasHandlers():
    logger.addHandler(_ToStderr())
    logger.propagate = False


@rank_zero_only
def log_summary(trainer: pl.Trainer, lines: list[str]) -> None:
    """Logs lines at the end of a fit, for whose handlers the progress bar makes room."""
    bar = trainer.progress_bar_callback
    if isinstance(bar, RichProgressBar) and bar.progress is not None:
        bar.progress.stop()  # otherwise its last redraw erases what is written now
    logger.info("\n".join(lines))

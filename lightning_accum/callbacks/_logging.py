"""What is logged in a fit, and when."""

from __future__ import annotations

from dataclasses import dataclass

import lightning.pytorch as pl
from torch import Tensor

from lightning_accum._compat import batches_that_stepped


@dataclass(frozen=True)
class LogOptions:
    """What a :class:`CellTrainerCallback` logs, and whether it prints a summary.

    Args:
        statistics: whether to log the statistics of updates and activity, on logging steps.
        prog_bar: whether the progress bar also shows the ratio of each update to its weights.
        summary: whether to print a table when a fit ends, with advice if a value is unusual.

    Example:
        >>> LogOptions(prog_bar=True)
        LogOptions(statistics=True, prog_bar=True, summary=True)
    """

    statistics: bool = True
    prog_bar: bool = False
    summary: bool = True

    @classmethod
    def of(cls, log: object) -> LogOptions:
        """Returns the options themselves, the defaults for ``True``, or nothing for ``False``.

        Raises:
            TypeError: if ``log`` is anything else.
        """
        if isinstance(log, bool):
            return cls(statistics=log, summary=log)
        if not isinstance(log, cls):
            raise TypeError(
                "Argument `log` should be a bool, or LogOptions. Found"
                f" `{type(log).__name__}`: pass `LogOptions(prog_bar=True)`, for example."
            )
        return log


def log_is_near(trainer: pl.Trainer, batches: int) -> bool:
    """Returns whether one of the next ``batches`` is a logging step, the current one included."""
    step = batches_that_stepped(trainer) + 1
    every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return every > 0 and -step % every < batches


def log_values(pl_module: pl.LightningModule, values: dict[str, Tensor], prog_bar: bool) -> None:
    """Logs values of one step.

    Args:
        pl_module: the module whose ``log_dict`` is called.
        values: the values, by the names under which they are logged.
        prog_bar: whether the progress bar shows the ratios.
    """
    shown = {name: v for name, v in values.items() if prog_bar and name.endswith("/ratio")}
    rest = {name: v for name, v in values.items() if name not in shown}
    for part in (rest, shown):
        pl_module.log_dict(part, on_step=True, on_epoch=False, batch_size=1, prog_bar=part is shown)

"""When updates are applied in a fit, and with which factor."""

from __future__ import annotations

from math import ceil
from typing import Any

import lightning.pytorch as pl
from torch.optim import Optimizer

from lightning_accum._checks import check_factor
from lightning_accum._state import COUNT, MAPPING, Kind, optional
from lightning_accum.callbacks._schedule import Interval, MakeScheduler, Schedule
from lightning_accum.health.setup import unit

_NO_FACTOR = 1.0  # the `lr` that changes nothing


class UpdatePlan:
    """Counts batches to the next update, and holds the factor of updates and its schedule.

    Args:
        every: number of batches whose changes are applied together; ``None`` for the Trainer's
            ``accumulate_grad_batches``.
        lr: factor of every change at first.
        scheduler: returns a scheduler of the optimizer that applies updates, or ``None``.
        interval: when the scheduler steps.

    Raises:
        TypeError: if ``scheduler`` is not callable.
        ValueError: if ``every`` is not positive, or ``lr`` is negative.
    """

    def __init__(
        self, every: int | None, lr: float, scheduler: MakeScheduler | None, interval: Interval
    ) -> None:
        if every is not None and (not isinstance(every, int) or every < 1):
            raise ValueError(
                "Argument `apply_every_n_batches` should be a positive number of batches, or None."
                f" Found `apply_every_n_batches = {every!r}`."
            )
        check_factor(lr=lr)
        self.every = every
        self.lr = lr
        self.schedule = Schedule(scheduler, interval)
        self.batches = 0  # since the last update

    def begin(self, optimizer: Optimizer | None, resuming: bool) -> None:
        """Begins a fit: makes the scheduler, and counts from zero unless the fit resumes one.

        Args:
            optimizer: the optimizer that the callback made; ``None`` if the module has its own.
            resuming: whether the fit resumes the one whose state was saved.

        Raises:
            ValueError: if the module has its own optimizer beside an ``lr``, a scheduler or a
                number of batches, or the scheduler needs a metric.
        """
        if optimizer is None and self.lr != _NO_FACTOR:
            raise ValueError(
                f"Argument `lr` should be {_NO_FACTOR} if the module has its own UpdateOptimizer,"
                f" which has its own `lr`. Found `lr = {self.lr}`: pass it to that optimizer, as in"
                f" `UpdateOptimizer(params, lr={self.lr})`."
            )
        if optimizer is None and self.every is not None:
            raise ValueError(
                "Argument `apply_every_n_batches` should be None if the module has its own"
                f" UpdateOptimizer, which applies what is pending when it is stepped. Found"
                f" {self.every}: leave it out, and step the optimizer after every {self.every}"
                f" batches, in automatic optimization with `accumulate_grad_batches={self.every}`"
                " of the Trainer."
            )
        if not resuming:
            self.batches = 0
        self.schedule.begin(optimizer, resuming)

    def batches_between(self, trainer: pl.Trainer) -> int:
        """Returns the number of batches from one update to the next."""
        return self.every or trainer.accumulate_grad_batches

    def batch_ended(self, trainer: pl.Trainer) -> bool:
        """Counts a batch, and returns whether an update is due: also after the last batch."""
        self.batches += 1
        due = self.batches >= self.batches_between(trainer) or trainer.is_last_batch
        return due and self.update_left()

    def update_left(self) -> bool:
        """Returns whether batches wait for an update, and counts from zero."""
        left, self.batches = self.batches > 0, 0
        return left

    def wrong_unit(self, trainer: pl.Trainer) -> str:
        """Returns that the schedule counts in the wrong unit; empty unless it certainly does."""
        epochs, batches = trainer.max_epochs, trainer.num_training_batches
        whole = trainer.max_steps == -1 and isinstance(trainer.limit_train_batches, float)
        if not whole or not epochs or epochs < 0 or not isinstance(batches, int):
            return ""  # a short trial may keep the schedule of the fit that is meant
        updates = ceil(batches / self.batches_between(trainer))
        schedule, interval = self.schedule.scheduler, self.schedule.interval
        return (
            ""
            if schedule is None
            else unit(schedule, interval, epochs, epochs * batches, epochs * updates)
        )

    @property
    def kinds(self) -> dict[str, Kind]:
        """The kinds of the entries of a state."""
        return {"batches": COUNT, "schedule": optional(MAPPING)}

    def state_dict(self) -> dict[str, Any]:
        """Returns the count of batches, and the states of optimizer and scheduler."""
        return {"batches": self.batches, "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads the entries of a state that :meth:`state_dict` returned.

        Raises:
            RuntimeError: if the schedule's entry is not the state of a schedule.
        """
        self.batches = state["batches"]
        self.schedule.load_state_dict(state["schedule"])

"""When updates are applied in a fit, with which factor, and the factor's schedule."""

from collections.abc import Callable
from math import ceil
from typing import Any, ClassVar, Literal, get_args

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_warn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from lightning_accum._checked_state import COUNT, MAPPING, Kind, check_state, optional
from lightning_accum._checks import check_choice, check_factor, check_type, check_value
from lightning_accum.optim import UpdateOptimizer

MakeScheduler = Callable[[Optimizer], LRScheduler]
Interval = Literal["update", "epoch"]

_NO_FACTOR = 1.0  # the `lr` that changes nothing


class UpdatePlan:
    """Counts batches to the next update, and holds the factor of updates and its schedule."""

    kinds: ClassVar[dict[str, Kind]] = {"batches": COUNT, "schedule": optional(MAPPING)}
    """The kinds of the entries of a state."""

    def __init__(
        self, every: int | None, lr: float, make: MakeScheduler | None, interval: Interval
    ) -> None:
        fits, should = every is None or (isinstance(every, int) and every > 0), "a positive number"
        check_value(fits, "apply_every_n_batches", every, f"{should} of batches, or None")
        check_factor(lr=lr)
        should = "a callable that returns a scheduler of an optimizer, or None"
        how = "pass the class, with its options bound by `functools.partial`"
        check_type(make is None or callable(make), "lr_scheduler", make, should, how)
        check_choice("lr_interval", interval, get_args(Interval))
        self.every, self.lr, self.interval = every, lr, interval
        self.batches = 0  # since the last update
        self._in_epoch = False  # whether a batch has ended since the last epoch has
        self._make = make
        self._optimizer: UpdateOptimizer | None = None
        self._scheduler: LRScheduler | None = None
        self._saved: dict[str, Any] | None = None  # their state, until there is an optimizer

    def begin(self, optimizer: UpdateOptimizer | None, resuming: bool) -> None:
        """Begins a fit, or resumes one: makes the scheduler, and counts batches from zero."""
        saved, self._saved = self._saved, None
        self._optimizer, self._scheduler = optimizer, None
        if optimizer is None:
            self._check_own()
        elif self._make is not None:
            self._scheduler = self._make(optimizer)
            if isinstance(self._scheduler, ReduceLROnPlateau):
                self._scheduler = None
                raise ValueError(
                    "Argument `lr_scheduler` should return a scheduler whose `step()` takes no"
                    " metric. Found a `ReduceLROnPlateau`: pass another, or return it with an"
                    " UpdateOptimizer from `configure_optimizers`, and its `monitor`."
                )
        if not resuming:
            self.batches = 0
        elif optimizer is not None and saved is not None:
            given = _rate_at_first(optimizer)
            self._load(optimizer, saved)
            if given != (loaded := _rate_at_first(optimizer)):
                rank_zero_warn(
                    "Argument `lr` should be that of the fit that is resumed,"
                    f" {loaded:g}, which goes on with the state of its optimizer. Found"
                    f" `lr = {given:g}`, which has no effect: change the rates of the rule, or"
                    " begin a new fit with the weights of the checkpoint."
                )

    def _check_own(self) -> None:
        """Raises a ``ValueError`` if there is a plan beside the module's own UpdateOptimizer."""
        own, every = "if the module has its own UpdateOptimizer", self.every
        should = f"{_NO_FACTOR} {own}, which has its own `lr`"
        how = f"pass it to that optimizer, as in `UpdateOptimizer(params, lr={self.lr})`"
        check_value(self.lr == _NO_FACTOR, "lr", self.lr, should, how)
        should = f"None {own}, which applies what is pending when it is stepped"
        how = (
            f"leave it out, and step the optimizer after every {every} batches, in automatic"
            f" optimization with `accumulate_grad_batches={every}` of the Trainer"
        )
        check_value(every is None, "apply_every_n_batches", every, should, how)
        how = "return it with the optimizer from `configure_optimizers`"
        check_value(self._make is None, "lr_scheduler", self._make, f"None {own}", how)

    def end(self) -> None:
        """Drops the optimizer, and keeps its state for a checkpoint."""
        self._saved = self._schedule_state()
        self._optimizer = self._scheduler = None

    # ------------------------------------------------------------------ in a fit
    def batches_between(self, trainer: pl.Trainer) -> int:
        """Returns the number of batches from one update to the next."""
        return self.every or trainer.accumulate_grad_batches

    def batch_ended(self, last: bool, every: int) -> bool:
        """Counts a batch, and returns whether an update is due: also after the last batch."""
        self.batches += 1
        self._in_epoch = True
        return (last or self.batches >= every) and self.update_left()

    def update_left(self) -> bool:
        """Returns whether batches wait for an update, and counts from zero."""
        left, self.batches = self.batches > 0, 0
        return left

    def passed(self, what: Interval) -> None:
        """Steps the scheduler if it steps after every update or epoch, whichever has passed."""
        if what == "epoch":
            if not self._in_epoch:  # it has passed already, with its last batch
                return
            self._in_epoch = False
        if self._scheduler is not None and what == self.interval:
            self._scheduler.step()

    def schedule_in(self, trainer: pl.Trainer) -> tuple[LRScheduler, str, int, int, int] | None:
        """Returns the scheduler, its interval, and the fit's epochs, batches and updates."""
        epochs, batches = trainer.max_epochs, trainer.num_training_batches
        whole = trainer.max_steps == -1 and isinstance(trainer.limit_train_batches, float)
        if self._scheduler is None or not whole or not epochs or not isinstance(batches, int):
            return None  # a short trial may keep the schedule of the fit that is meant
        updates = ceil(batches / self.batches_between(trainer))
        return self._scheduler, self.interval, epochs, epochs * batches, epochs * updates

    # ------------------------------------------------------------------ state
    def state_dict(self) -> dict[str, Any]:
        """Returns the count of batches, and the states of optimizer and scheduler."""
        return {"batches": self.batches, "schedule": self._schedule_state()}

    def _schedule_state(self) -> dict[str, Any] | None:
        """Returns the states of optimizer and scheduler; ``None`` if the module has its own."""
        if self._optimizer is None:
            return self._saved
        scheduler = None if self._scheduler is None else self._scheduler.state_dict()
        return {"optimizer": self._optimizer.state_dict(), "scheduler": scheduler}

    def check_state_dict(self, state: dict[str, Any]) -> None:
        """Raises an error if :meth:`load_state_dict` would; loads nothing."""
        if (saved := state["schedule"]) is not None:
            check_state("a schedule", saved, {"optimizer": MAPPING, "scheduler": optional(MAPPING)})
            if self._optimizer is not None:
                self._optimizer.check_state_dict(saved["optimizer"])

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Loads a checked state now, or when there is an optimizer if there is none yet."""
        saved = state["schedule"]
        self.batches = state["batches"]
        if self._optimizer is None or saved is None:
            self._saved = saved
        else:
            self._load(self._optimizer, saved)

    def _load(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        optimizer.load_state_dict(state["optimizer"])
        if self._scheduler is not None and state["scheduler"] is not None:
            self._scheduler.load_state_dict(state["scheduler"])

    def __getstate__(self) -> dict[str, Any]:
        gone = {"_optimizer": None, "_scheduler": None}
        return {**self.__dict__, **gone, "_saved": self._schedule_state()}


def _rate_at_first(optimizer: Optimizer) -> float:
    (group,) = optimizer.param_groups  # of the one that the callback made
    return float(group.get("initial_lr", group["lr"]))

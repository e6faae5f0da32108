"""The scheduler of the optimizer that a callback makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from lightning.pytorch.utilities import rank_zero_warn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from lightning_accum._state import MAPPING, check_state, optional

MakeScheduler = Callable[[Optimizer], LRScheduler]
Interval = Literal["update", "epoch"]


class Schedule:
    """Steps a scheduler after every applied update, or after every epoch.

    Args:
        make: returns the scheduler of an optimizer; ``None`` for a constant rate.
        interval: when the scheduler steps.

    Raises:
        TypeError: if ``make`` is not callable.
        ValueError: if ``interval`` is not one of the two.
    """

    def __init__(self, make: MakeScheduler | None, interval: Interval) -> None:
        if make is not None and not callable(make):
            raise TypeError(
                "Argument `lr_scheduler` should be a callable that returns a scheduler of an"
                f" optimizer, or None. Found `{type(make).__name__}`: pass the class, with its"
                " options bound by `functools.partial`."
            )
        if interval not in get_args(Interval):
            raise ValueError(
                f"Argument `lr_interval` should be one of {get_args(Interval)}."
                f" Found `lr_interval = {interval!r}`."
            )
        self.make = make
        self.interval = interval
        self.scheduler: LRScheduler | None = None
        self._optimizer: Optimizer | None = None
        self._saved: dict[str, Any] | None = None  # the state, until there is an optimizer

    def begin(self, optimizer: Optimizer | None, resuming: bool) -> None:
        """Makes the scheduler, and loads a saved state into it and the optimizer.

        Args:
            optimizer: the optimizer that the callback made; ``None`` if the module has its own.
            resuming: whether the fit resumes the one whose state was saved.

        Raises:
            ValueError: if the scheduler needs a metric, or the module has its own optimizer, and so
                its own scheduler.
        """
        saved, self._saved = self._saved, None
        self._optimizer, self.scheduler = optimizer, None
        if optimizer is not None:
            self.scheduler = None if self.make is None else self.make(optimizer)
            if isinstance(self.scheduler, ReduceLROnPlateau):
                self.scheduler = None
                raise ValueError(
                    "Argument `lr_scheduler` should return a scheduler whose `step()` takes no"
                    " metric. Found a `ReduceLROnPlateau`: pass another, or return it with an"
                    " UpdateOptimizer from `configure_optimizers`, and its `monitor`."
                )
            if resuming and saved is not None:
                given = _rates_at_first(optimizer)
                self._load(saved)
                _warn_of_another_lr(given, _rates_at_first(optimizer))
        elif self.make is not None:
            raise ValueError(
                "Argument `lr_scheduler` should be None if the module has its own UpdateOptimizer."
                " Found one: return the scheduler with the optimizer from `configure_optimizers`."
            )

    def passed(self, what: Interval) -> None:
        """Steps the scheduler if it steps after every update or epoch, whichever has passed."""
        if self.scheduler is not None and what == self.interval:
            self.scheduler.step()

    def end(self) -> None:
        """Drops the optimizer, and keeps its state for a checkpoint."""
        self._saved = self.state_dict()
        self._optimizer = self.scheduler = None

    def state_dict(self) -> dict[str, Any] | None:
        """Returns the states of optimizer and scheduler; ``None`` if the module has its own."""
        if self._optimizer is None:
            return self._saved
        scheduler = None if self.scheduler is None else self.scheduler.state_dict()
        return {"optimizer": self._optimizer.state_dict(), "scheduler": scheduler}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Loads a state now, or when there is an optimizer if there is none yet.

        Raises:
            RuntimeError: if it is not the state of a schedule.
        """
        if state is not None:
            check_state("a schedule", state, {"optimizer": MAPPING, "scheduler": optional(MAPPING)})
        if self._optimizer is None or state is None:
            self._saved = state
        else:
            self._load(state)

    def _load(self, state: dict[str, Any]) -> None:
        assert self._optimizer is not None
        if self.scheduler is not None and state["scheduler"] is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self._optimizer.load_state_dict(state["optimizer"])

    def __getstate__(self) -> dict[str, Any]:
        gone = {"_optimizer": None, "scheduler": None}
        return {**self.__dict__, **gone, "_saved": self.state_dict()}


def _rates_at_first(optimizer: Optimizer) -> list[float]:
    return [float(group.get("initial_lr", group["lr"])) for group in optimizer.param_groups]


def _warn_of_another_lr(given: list[float], loaded: list[float]) -> None:
    """Warns if a fit resumes with another rate than was given now."""
    if given != loaded:
        rank_zero_warn(
            f"Argument `lr` should be that of the fit that is resumed, {loaded[0]:g}, which goes on"
            f" with the state of its optimizer. Found `lr = {given[0]:g}`, which has no effect:"
            " change the rates of the rule, or begin a new fit with the weights of the checkpoint."
        )

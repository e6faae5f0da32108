"""The schedule of the optimizer that the callback adds, which no LightningModule returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

MakeScheduler = Callable[[Optimizer], LRScheduler]
Interval = Literal["update", "epoch"]


class Schedule:
    """Steps a scheduler after every applied update, or after every epoch.

    Args:
        make: makes the scheduler of an optimizer; none when ``None``.
        interval: when it steps.

    Raises:
        TypeError: if ``make`` is no callable.
        ValueError: if ``interval`` is neither of the two.
    """

    def __init__(self, make: MakeScheduler | None, interval: Interval) -> None:
        if make is not None and not callable(make):
            raise TypeError(
                "Argument `lr_scheduler` should be a callable that makes a scheduler of an"
                f" optimizer, or None. Found `{type(make).__name__}`: give the class, with its"
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
        self._pending: dict[str, Any] | None = None

    def begin(self, optimizer: Optimizer, own: bool) -> None:
        """Makes the scheduler, or takes it up where it was saved.

        Raises:
            ValueError: if the optimizer is the module's own, and so its schedule too.
        """
        pending, self._pending = self._pending, None
        if self.make is None:
            return
        if own:
            raise ValueError(
                "Argument `lr_scheduler` should be None where the module has an UpdateOptimizer of"
                " its own. Found one: return it with the optimizer from `configure_optimizers`."
            )
        self.scheduler = self.make(optimizer)
        if pending is not None:
            self.scheduler.load_state_dict(pending)

    def passed(self, what: Interval) -> None:
        """Steps, where it is time to."""
        if self.scheduler is not None and what == self.interval:
            self.scheduler.step()

    def end(self) -> None:
        """Lets go of the optimizer; a state for a checkpoint stays."""
        self._pending, self.scheduler = self.state_dict(), None

    def state_dict(self) -> dict[str, Any] | None:
        """The scheduler's, ``None`` without one."""
        return self._pending if self.scheduler is None else self.scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Takes a scheduler's state, now or when there is one."""
        if self.scheduler is None or state is None:
            self._pending = state
        else:
            self.scheduler.load_state_dict(state)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "scheduler": None, "_pending": self.state_dict()}

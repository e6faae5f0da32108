"""The rate of the optimizer that the callback keeps, and its schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from lightning_accum._state import MAPPING, check_state, optional

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
        self._optimizer: Optimizer | None = None
        self._pending: dict[str, Any] | None = None

    def begin(self, optimizer: Optimizer | None, resuming: bool) -> None:
        """Makes the scheduler, and takes rate and schedule up where they were saved.

        Args:
            optimizer: the one that is kept; ``None`` where the module has its own.
            resuming: whether what was saved is to be gone on with.

        Raises:
            ValueError: if the optimizer is the module's own, and so its schedule too.
        """
        pending, self._pending = self._pending, None
        self._optimizer, self.scheduler = optimizer, None
        if optimizer is not None:
            self.scheduler = None if self.make is None else self.make(optimizer)
            if resuming and pending is not None:
                self._take(pending)
        elif self.make is not None:
            raise ValueError(
                "Argument `lr_scheduler` should be None where the module has an UpdateOptimizer of"
                " its own. Found one: return it with the optimizer from `configure_optimizers`."
            )

    def passed(self, what: Interval) -> None:
        """Steps, where it is time to."""
        if self.scheduler is not None and what == self.interval:
            self.scheduler.step()

    def end(self) -> None:
        """Lets go of the optimizer; a state for a checkpoint stays."""
        self._pending = self.state_dict()
        self._optimizer = self.scheduler = None

    def state_dict(self) -> dict[str, Any] | None:
        """Those of optimizer and scheduler; ``None`` where the module has its own optimizer."""
        if self._optimizer is None:
            return self._pending
        scheduler = None if self.scheduler is None else self.scheduler.state_dict()
        return {"optimizer": self._optimizer.state_dict(), "scheduler": scheduler}

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        """Takes what :meth:`state_dict` gave, now or when there is an optimizer.

        Raises:
            RuntimeError: if it is the state of something else.
        """
        if state is not None:
            check_state("a schedule", state, {"optimizer": MAPPING, "scheduler": optional(MAPPING)})
        if self._optimizer is None or state is None:
            self._pending = state
        else:
            self._take(state)

    def _take(self, state: dict[str, Any]) -> None:
        assert self._optimizer is not None
        if self.scheduler is not None and state["scheduler"] is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        self._optimizer.load_state_dict(state["optimizer"])

    def __getstate__(self) -> dict[str, Any]:
        gone = {"_optimizer": None, "scheduler": None}
        return {**self.__dict__, **gone, "_pending": self.state_dict()}

"""How a monitor keeps what it sees."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor

from lightning_accum._state import StateModule


class Reducer(StateModule, ABC):
    """Folds observations, one at a time, into bounded memory.

    Args:
        dt: time between two observations, in ms.
    """

    def __init__(self, dt: float = 1.0) -> None:
        super().__init__()
        if not dt > 0:
            raise ValueError(f"Argument `dt` should be a positive step in ms. Found `{dt = }`.")
        self.dt = dt

    @abstractmethod
    def forward(self, observation: Tensor) -> None:
        """Takes one observation in; it is copied or reduced, never kept as it is."""

    @abstractmethod
    def peek(self) -> Tensor | None:
        """The latest state, ``None`` before the first observation."""

    @abstractmethod
    def dump(self) -> Tensor | None:
        """The whole history that is kept, oldest first, ``None`` when there is none."""

    def view(self, time: float = 0.0) -> Tensor | None:
        """The state ``time`` ms ago, by the observation at or before that moment.

        Args:
            time: how long ago, in ms, non-negative.

        Raises:
            ValueError: if ``time`` is negative or before the kept history.
        """
        history = self.dump()
        if history is None:
            return None
        # the observation at or before: round away from now, but for what is a step but for rounding
        back = math.ceil(time / self.dt - 1e-6)
        if time < 0 or back >= history.shape[0]:
            raise ValueError(
                f"Argument `time` should lie within the kept history, 0 to"
                f" {(history.shape[0] - 1) * self.dt} ms. Found `{time = }`."
            )
        return history[history.shape[0] - 1 - back]

    def clear(self, **kwargs: Any) -> None:
        """Drops what was kept."""
        self._state = dict.fromkeys(self._state)


class Latest(Reducer):
    """Keeps the latest observation alone.

    Args:
        dt: time between two observations, in ms.

    Example:
        >>> import torch
        >>> latest = Latest()
        >>> latest(torch.tensor([1.0]))
        >>> latest(torch.tensor([2.0]))
        >>> latest.peek()
        tensor([2.])
    """

    def __init__(self, dt: float = 1.0) -> None:
        super().__init__(dt)
        self._state = {"latest": None}

    def forward(self, observation: Tensor) -> None:
        """Takes one observation in."""
        self._state["latest"] = observation.detach().clone()

    def peek(self) -> Tensor | None:
        """The latest observation."""
        return self._state["latest"]

    def dump(self) -> Tensor | None:
        """The latest observation, as a history of one."""
        latest = self._state["latest"]
        return None if latest is None else latest.unsqueeze(0)

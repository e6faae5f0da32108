"""The reducer that keeps only the latest observation."""

from __future__ import annotations

from typing import final

from torch import Tensor

from lightning_accum._checks import check_tensors
from lightning_accum.observe.reducers.base import Reducer


@final
class Latest(Reducer):
    """Keeps only the latest observation.

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
        """Takes in one observation."""
        check_tensors(observation=observation)
        self._state["latest"] = observation.detach().clone()

    def peek(self) -> Tensor | None:
        """Returns the latest observation, ``None`` before the first one."""
        return self._state["latest"]

    def dump(self) -> Tensor | None:
        """Returns the latest observation as a history of one, ``None`` before the first one."""
        latest = self._state["latest"]
        return None if latest is None else latest.unsqueeze(0)

"""The base of all reducers, and the one that keeps only the latest observation."""

from abc import ABC, abstractmethod
from typing import Any, final

import torch
from torch import Tensor

from lightning_accum._checked_state import StateModule
from lightning_accum._checks import check_tensors
from lightning_accum.sparse.events import Events


class Reducer(StateModule, ABC):
    """Takes in observations, one at a time, and keeps them or a summary of them."""

    @abstractmethod
    def forward(self, observation: Tensor) -> None:
        """Takes in one observation; it is copied or summarized, as its memory may be reused."""

    @abstractmethod
    def peek(self) -> Tensor | None:
        """Returns the latest state, ``None`` before the first observation."""

    @abstractmethod
    def dump(self) -> Tensor | None:
        """Returns the whole history that is kept, oldest first, ``None`` if there is none."""

    # ------------------------------------------------------------------ the window of a rule
    time_dim: int | None = None
    """``None`` if an observation is one step, 0 if it is a sequence of steps."""

    def window(self) -> Tensor | None:
        """Returns the steps ``[T, B, ...]`` since a rule was last called; ``None`` for none.

        Only a :class:`WindowRecorder` keeps them.
        """
        return None

    def only_step(self) -> Tensor | None:
        """Returns the step ``[B, ...]`` of a window of one step, ``None`` for other windows."""
        return None

    def events(self) -> Events | None:
        """Returns the events of the window, if they are known."""
        return None

    def confirm(self) -> None:
        """Raises an error if an observation was not valid; checking waits for its device."""

    def drop_window(self) -> None:
        """Drops the window since a rule was last called; other state stays."""

    def clear(self, **kwargs: Any) -> None:
        """Drops what was kept."""
        self._state = dict.fromkeys(self._state)


@final
class Latest(Reducer):
    """Keeps only the latest observation."""

    def __init__(self) -> None:
        super().__init__()
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


def allocate(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns an uninitialized tensor that may be written to in inference mode and outside it."""
    with torch.inference_mode(False):
        return torch.empty(shape, dtype=dtype, device=device)

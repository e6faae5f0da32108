"""The base of all reducers, and the one that keeps only the latest observation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_numbers, check_tensors
from lightning_accum._state import StateModule
from lightning_accum.functional.interpolation import Interpolation, interp_previous
from lightning_accum.functional.numbers import at_least_float32
from lightning_accum.sparse.events import Events


class Reducer(StateModule, ABC):
    """Takes in observations, one at a time, and keeps them or a summary of them.

    Args:
        dt: time between two observations, in ms.
    """

    def __init__(self, dt: float = 1.0) -> None:
        super().__init__()
        check_finite(dt=dt)
        if not dt > 0:
            raise ValueError(f"Argument `dt` should be a positive step in ms. Found `{dt = }`.")
        self.dt = dt

    @abstractmethod
    def forward(self, observation: Tensor) -> None:
        """Takes in one observation; it is copied or summarized, as its memory may be reused."""

    @abstractmethod
    def peek(self) -> Tensor | None:
        """Returns the latest state, ``None`` before the first observation."""

    @abstractmethod
    def dump(self) -> Tensor | None:
        """Returns the whole history that is kept, oldest first, ``None`` if there is none."""

    def view(
        self,
        time: float | Tensor = 0.0,
        tolerance: float = 1e-5,
        interpolation: Interpolation | None = None,
    ) -> Tensor | None:
        """Returns the state ``time`` ms ago, interpolated between two observations.

        Args:
            time: how long ago, in ms, non-negative: a number, or a tensor that broadcasts with the
                state and gives each element its own time. Checking a tensor waits for its device.
            tolerance: largest distance, in ms, at which an observation is returned itself.
            interpolation: computes a state between two observations: one of
                ``lightning_accum.functional.interp_*``, or any such function. If ``None``, the
                reducer's own: a trace decays, for example, and other states stay as they were.

        Returns:
            The state, in its shape broadcast with that of ``time``; ``None`` before the first
            observation.

        Raises:
            ValueError: if ``time`` is negative, before the kept history, or of a shape that does
                not broadcast, or if ``tolerance`` is negative.
        """
        check_numbers(tolerance=tolerance)
        if not isinstance(time, Tensor):
            check_numbers(time=time)
        if not tolerance >= 0:
            raise ValueError(
                f"Argument `tolerance` should be a non-negative time in ms. Found `{tolerance = }`."
            )
        kept = self._kept()
        if kept is None:
            return None
        ring, newest, length = kept
        self._check_within(time, (length - 1) * self.dt, tolerance)
        back = torch.as_tensor(time, dtype=torch.float64, device=ring.device) / self.dt
        back = back.clamp(0, length - 1)
        whole = back.round()
        back = torch.where((back - whole).abs() * self.dt <= tolerance, whole, back)
        earlier, later = (_rows(ring, newest - b.long()) for b in (back.ceil(), back.floor()))
        elapsed = (back.ceil() - back) * self.dt
        elapsed = elapsed.to(at_least_float32(ring.dtype))
        if interpolation is None:
            return self._between(earlier, later, elapsed)
        return interpolation(earlier, later, elapsed, self.dt)

    def _between(self, earlier: Tensor, later: Tensor, elapsed: Tensor) -> Tensor:
        """Returns the state ``elapsed`` ms after ``earlier``; ``later`` is the next state."""
        return interp_previous(earlier, later, elapsed, self.dt)

    def _kept(self) -> tuple[Tensor, int, int] | None:
        """Returns the history as a ring ``[T, ...]``, the latest state's row, and its length."""
        history = self.dump()
        return None if history is None else (history, history.shape[0] - 1, history.shape[0])

    def _check_within(self, time: float | Tensor, span: float, tolerance: float) -> None:
        if isinstance(time, Tensor):
            if time.numel() == 0:
                return
            first, last = (float(bound) for bound in time.aminmax())
            found = f"`time` from {first} to {last}"
        else:
            first = last = time
            found = f"`{time = }`"
        if not (first >= -tolerance and last <= span + tolerance):
            raise ValueError(
                f"Argument `time` should lie within the kept history, 0 to {span} ms. Found"
                f" {found}: a reducer with a longer `duration` keeps more."
            )

    # ------------------------------------------------------------------ the window of a rule
    time_dim: int | None = None
    """``None`` if an observation is one step, 0 if it is a sequence of steps."""

    def window(self) -> Tensor | None:
        """Returns the steps ``[T, B, ...]`` since a rule was last called; ``None`` for none.

        Only a :class:`WindowRecorder` keeps them.
        """
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


def _rows(ring: Tensor, index: Tensor) -> Tensor:
    """Returns row ``index`` of the ring, which may differ for each element."""
    try:
        shape = torch.broadcast_shapes(ring.shape[1:], index.shape)
    except RuntimeError:
        raise ValueError(
            f"Argument `time` should broadcast with the state, {tuple(ring.shape[1:])}. Found"
            f" `time` of shape {tuple(index.shape)}."
        ) from None
    missing = len(shape) - (ring.ndim - 1)
    rows = ring.reshape(ring.shape[0], *[1] * missing, *ring.shape[1:])
    index = (index % ring.shape[0]).expand(shape).unsqueeze(0)
    return rows.expand(-1, *shape).gather(0, index).squeeze(0)


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


def allocate(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns an uninitialized tensor that may be written to in inference mode and outside it."""
    with torch.inference_mode(False):
        return torch.empty(shape, dtype=dtype, device=device)

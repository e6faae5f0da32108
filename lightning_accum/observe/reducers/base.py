"""How a monitor keeps what it sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_numbers, check_tensors
from lightning_accum._state import StateModule
from lightning_accum.functional.interpolation import Interpolation, interp_previous
from lightning_accum.functional.numbers import at_least_float32


class Reducer(StateModule, ABC):
    """Folds observations, one at a time, into bounded memory.

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
        """Takes one observation in; it is copied or reduced, never kept as it is."""

    @abstractmethod
    def peek(self) -> Tensor | None:
        """The latest state, ``None`` before the first observation."""

    @abstractmethod
    def dump(self) -> Tensor | None:
        """The whole history that is kept, oldest first, ``None`` when there is none."""

    def view(
        self,
        time: float | Tensor = 0.0,
        tolerance: float = 1e-5,
        interpolation: Interpolation | None = None,
    ) -> Tensor | None:
        """The state ``time`` ms ago, between two observations by interpolation.

        Args:
            time: how long ago, in ms, non-negative: a number, or a tensor that broadcasts with the
                state, for a moment per element. The tensor is checked, which waits for its device.
            tolerance: how far from an observation, in ms, is still at it.
            interpolation: what stands between two observations, one of
                ``lightning_accum.functional.interp_*`` or any such function; when ``None``, what
                the reducer knows of its state, and the observation before if it knows nothing.

        Returns:
            The state, of its shape broadcast with that of ``time``; ``None`` before the first
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
        """The state ``elapsed`` ms after ``earlier``, ``later`` being the next one."""
        return interp_previous(earlier, later, elapsed, self.dt)

    def _kept(self) -> tuple[Tensor, int, int] | None:
        """The history as a ring ``[T, ...]``, where the latest lies, and how many there are."""
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

    def confirm(self) -> None:
        """Raises an error if anything that was taken in could not be so; waits for its device."""

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
        check_tensors(observation=observation)
        self._state["latest"] = observation.detach().clone()

    def peek(self) -> Tensor | None:
        """The latest observation."""
        return self._state["latest"]

    def dump(self) -> Tensor | None:
        """The latest observation, as a history of one."""
        latest = self._state["latest"]
        return None if latest is None else latest.unsqueeze(0)


def room(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory that may be written to in inference mode and out of it, within one window too.

    Args:
        shape: of the tensor.
        dtype: of the tensor.
        device: of the tensor.
    """
    with torch.inference_mode(False):
        return torch.empty(shape, dtype=dtype, device=device)


def _rows(ring: Tensor, index: Tensor) -> Tensor:
    """Row ``index`` of the ring for every element."""
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

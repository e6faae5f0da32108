"""One side of a connection in a window: activity, raw or as a trace, evaluated when needed."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum.functional.traces import TraceMode, decay_factor, last_trace, trace


class Source:
    """Recorded activity of one side and what its traces carry from one window to the next.

    Args:
        activity: ``[T, B, ...]`` as recorded.
        dt: step, in ms.
        carried: values of traces at the end of the window before, by key; those of another batch
            shape belong to other samples and are left out.
        side: prefix of the keys.
        dtype: in which to compute, unless the activity is wider.
    """

    def __init__(
        self,
        activity: Tensor,
        dt: float,
        carried: dict[str, Tensor | None],
        side: str,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.activity = activity
        self.dtype = torch.promote_types(activity.dtype, dtype)
        self.dt = dt
        self.side = side
        self._carried = carried
        self._traces: dict[tuple[float, TraceMode], Tensor | None] = {}

    def initial(self, decay: float, mode: TraceMode) -> Tensor | None:
        """The trace before the window's first step, or ``None`` for zero."""
        value = self._carried.get(self._key(decay, mode))
        if value is None or value.shape != self.activity.shape[1:]:
            return None
        return value.to(self.activity.device, self.dtype)

    def request(self, decay: float, mode: TraceMode) -> None:
        """Notes that a trace is in use, so that it will be carried."""
        self._traces.setdefault((decay, mode))

    def values(self, decay: float, mode: TraceMode) -> Tensor:
        """The trace over the window, computed once."""
        known = self._traces.get((decay, mode))
        if known is None:
            known = trace(self.activity, decay, mode, self.initial(decay, mode), self.dtype)
            self._traces[decay, mode] = known
        return known

    def carry(self) -> dict[str, Tensor]:
        """Every trace in use at the end of the window, by key."""
        return {
            self._key(decay, mode): last_trace(
                self.activity, decay, mode, self.initial(decay, mode), self.dtype
            )
            if values is None
            else values[-1].clone()
            for (decay, mode), values in self._traces.items()
        }

    def _key(self, decay: float, mode: TraceMode) -> str:
        return f"{self.side}:{mode}:{decay!r}"


class Signal:
    """What one side of a connection contributes to a term: its activity, or a trace of it.

    A rule gets ``window.pre`` and ``window.post``, asks them for traces, and puts either into a
    :class:`~lightning_accum.learn.engine.Term`. Nothing is computed before the engine has chosen
    the cheapest way.

    Args:
        source: the recorded activity.
        decay: of a trace, what is left after one step; ``None`` for the activity itself.
        mode: of a trace.
        weights: of activity, a factor for every value.
    """

    def __init__(
        self,
        source: Source,
        decay: float | None = None,
        mode: TraceMode = "cumulative",
        weights: Tensor | None = None,
    ) -> None:
        self.source = source
        self.decay = decay
        self.mode: TraceMode = mode
        self.weights = weights
        if decay is not None:
            source.request(decay, mode)

    @property
    def activity(self) -> Tensor:
        """``[T, B, ...]`` what was recorded."""
        return self.source.activity

    def trace(self, tc: float, mode: TraceMode = "cumulative") -> Signal:
        """The exponential trace of this side's activity.

        Args:
            tc: time constant, in ms.
            mode: ``"cumulative"`` or ``"nearest"``.

        Raises:
            ValueError: if this is a trace already.
        """
        if self.decay is not None or self.weights is not None:
            raise ValueError(
                "A trace of a trace, or of weighted activity, is no signal of the engine: put it"
                " into a term as a tensor, `functional.trace(signal.values(), decay)`."
            )
        return Signal(self.source, decay_factor(tc, self.source.dt), mode)

    def values(self) -> Tensor:
        """``[T, B, ...]`` the signal itself, in the dtype of the computation."""
        if self.decay is not None:
            return self.source.values(self.decay, self.mode)
        activity = self.activity.to(self.source.dtype)
        return activity if self.weights is None else activity * self.weights

    def before(self) -> Tensor:
        """``[T, B, ...]`` a trace as it was just before each step, decayed up to it.

        Raises:
            ValueError: if this is no trace.
        """
        if self.decay is None:
            raise ValueError("Activity has no value before its step: ask for one of its traces.")
        values = self.values()
        initial = self.source.initial(self.decay, self.mode)
        out = torch.zeros_like(values)
        out[1:] = values[:-1]
        if initial is not None:
            out[0] = initial
        return out.mul_(self.decay)

    def __mul__(self, factor: Tensor | float) -> Signal | Tensor:
        """Scales activity event by event, so that spikes stay spikes; a trace becomes a tensor.

        Args:
            factor: broadcastable to ``[T, B, ...]``.
        """
        if self.decay is not None:
            return self.values() * factor
        weights = factor if self.weights is None else self.weights * factor
        return Signal(self.source, weights=torch.as_tensor(weights, device=self.activity.device))

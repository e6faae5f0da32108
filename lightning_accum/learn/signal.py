"""One side of a connection in a window: activity, raw or as a trace, evaluated when needed."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum.functional.events import Events
from lightning_accum.functional.numbers import as_numbers
from lightning_accum.functional.traces import (
    TraceMode,
    decay_factor,
    last_trace,
    last_trace_of_events,
    trace,
    trace_before_events,
)

LEARNED = "learned:"
"""Begins the key of what belongs to a neuron, not to a sample, and so outlasts `clear`."""


class Source:
    """Recorded activity of one side and what its traces carry from one window to the next.

    Args:
        activity: ``[T, B, ...]`` as recorded.
        dt: step, in ms.
        carried: values of traces at the end of the window before, by key; those of another batch
            shape belong to other samples and are left out.
        side: prefix of the keys.
        dtype: in which to compute, unless the activity is wider.
        unit_dim: which dimension counts neurons: the last, or a convolution's channels.
        events: of the activity as ``[K, neurons]``, where they are known.
    """

    def __init__(
        self,
        activity: Tensor,
        dt: float,
        carried: dict[str, Tensor | None],
        side: str,
        dtype: torch.dtype = torch.float32,
        unit_dim: int = -1,
        events: Events | None = None,
    ) -> None:
        self.activity = activity
        self.known_events = events
        self.unit_dim = unit_dim
        self.dtype = torch.promote_types(activity.dtype, dtype)
        self.dt = dt
        self.side = side
        self._carried = carried
        self._traces: dict[tuple[float, TraceMode], Tensor | None] = {}
        self._last: dict[tuple[float, TraceMode], Tensor] = {}
        self._shares: dict[float, Tensor] = {}
        self._age: Tensor | None = None
        self._averages: dict[tuple[float, int], tuple[Tensor, Tensor]] = {}

    def events(self) -> Events:
        """Where the spikes are in ``[K, neurons]``, found once for all that sum over them."""
        if self.known_events is None:
            self.known_events = Events(self.activity.flatten(0, -2))
        return self.known_events

    def initial(self, decay: float, mode: TraceMode) -> Tensor | None:
        """The trace before the window's first step, or ``None`` for zero."""
        return self._before(self._key(decay, mode), self.activity.shape[1:])

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

    def values_in(self, out: Tensor, decay: float, mode: TraceMode) -> Tensor:
        """The trace over the window, in memory that will be used for something else."""
        known = self._traces.get((decay, mode))
        if known is not None:
            return known
        trace(self.activity, decay, mode, self.initial(decay, mode), self.dtype, out)
        self._last[decay, mode] = out[-1].clone()
        return out

    def age(self) -> Tensor:
        """Time since the latest spike, in ms; infinite before the first one."""
        if self._age is None:
            spikes = self.activity != 0
            age = torch.full(spikes.shape, self.dt, dtype=self.dtype, device=spikes.device)
            before = self._before(f"{self.side}:age", spikes.shape[1:])
            for now, spike in zip(age.unbind(0), spikes.unbind(0), strict=True):
                now.add_(torch.inf if before is None else before).masked_fill_(spike, 0.0)
                before = now
            self._age = age
        return self._age

    def average(self, decay: float, power: int) -> Tensor:
        """The running average over samples and all earlier steps, of every neuron."""
        known = self._averages.get((decay, power))
        if known is None:
            values = as_numbers(self.activity, self.dtype) ** power
            rest = sorted(set(range(1, values.ndim)) - {self.unit_dim % values.ndim})
            mean = values.mean(rest, keepdim=True)
            key = f"{LEARNED}{self.side}:{power}:{decay!r}"
            ones = mean.new_ones(len(mean))
            total = trace(mean, decay, "cumulative", self._before(f"{key}:sum", mean.shape[1:]))
            weight = trace(ones, decay, "cumulative", self._before(f"{key}:weight", ones.shape[1:]))
            known = self._averages[decay, power] = total, weight
        total, weight = known
        return total / weight.reshape(-1, *[1] * (total.ndim - 1))

    def carry(self, whole: bool = True) -> dict[str, Tensor]:
        """What is in use, at the end of the window, by key.

        Args:
            whole: whether with what belongs to samples; else what was learned alone.
        """
        left: dict[str, Tensor] = {}
        for (decay, power), sums in self._averages.items():
            for name, values in zip(("sum", "weight"), sums, strict=True):
                left[f"{LEARNED}{self.side}:{power}:{decay!r}:{name}"] = values[-1].clone()
        if not whole:
            return left
        for (decay, mode), trace_ in self._traces.items():
            last = self._last.get((decay, mode)) if trace_ is None else trace_[-1]
            if last is None:
                last = self._after(decay, mode)
            elif trace_ is not None and len(trace_) > 1:  # which it would keep alive
                last = last.clone()
            left[self._key(decay, mode)] = last
        if self._age is not None:
            left[f"{self.side}:age"] = self._age[-1].clone()
        return left

    def _after(self, decay: float, mode: TraceMode) -> Tensor:
        """A trace at the end of the window, of which nobody asked for the rest."""
        known, activity, initial = self.known_events, self.activity, self.initial(decay, mode)
        if known is None:
            return last_trace(activity, decay, mode, initial, self.dtype)
        return last_trace_of_events(known, activity.shape, decay, mode, initial, self.dtype)

    def shares_of_events(self, decay: float) -> Tensor:
        """``[events]`` what each spike adds to the nearest trace: one, less what is left there."""
        if decay not in self._shares:
            initial, shape = self.initial(decay, "nearest"), self.activity.shape
            left = trace_before_events(self.events(), shape, decay, initial, self.dtype)
            self._shares[decay] = left.neg_().add_(1.0)
        return self._shares[decay]

    def _key(self, decay: float, mode: TraceMode) -> str:
        return f"{self.side}:{mode}:{decay!r}"

    def _before(self, key: str, shape: torch.Size) -> Tensor | None:
        value = self._carried.get(key)
        if value is None or value.shape != shape:
            return None
        return value.to(self.activity.device, self.dtype)


class Signal:
    """What one side of a connection contributes to a term: its activity, or a trace of it.

    A rule gets ``window.pre`` and ``window.post``, asks them for traces, and puts either into a
    :class:`~lightning_accum.learn.Term`. Nothing is computed before the engine has chosen
    the cheapest way.

    Args:
        source: the recorded activity.
        decay: of a trace, what is left after one step; ``None`` for the activity itself.
        mode: of a trace.
        weights: a factor for every value, of the activity or of the trace.
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

    def age(self) -> Tensor:
        """``[T, B, ...]`` time since this side's latest spike, in ms, infinite before the first.

        A spike's age is zero in the step in which it happens.
        """
        return self.source.age()

    def average(self, tc: float, power: int = 1) -> Tensor:
        r"""The running average of a neuron's activity, over samples and steps up to this one.

        .. math:: \bar y(t) = \frac{\sum_{s \le t} a^{t-s} \langle y(s)^p \rangle_b}
                                   {\sum_{s \le t} a^{t-s}}

        It belongs to the neuron, not to a sample: :meth:`~lightning_accum.CellTrainer.clear` keeps
        it, and it is saved with the rule.

        Args:
            tc: time constant, in ms.
            power: :math:`p`, to which activity is raised first.

        Returns:
            ``[T, 1, ...]``, which stands beside ``[T, B, ...]``; to be expanded where it stands in
            a term alone.
        """
        return self.source.average(decay_factor(tc, self.source.dt), power)

    @property
    def unit_dim(self) -> int:
        """Which dimension of ``[T, B, ...]`` counts neurons: the last, or channels."""
        return self.source.unit_dim

    def values(self) -> Tensor:
        """``[T, B, ...]`` the signal itself, in the dtype of the computation."""
        if self.decay is not None:
            values = self.source.values(self.decay, self.mode)
        else:
            values = as_numbers(self.activity, self.source.dtype)
        return values if self.weights is None else values * self.weights

    def before(self) -> Tensor:
        """``[T, B, ...]`` a trace as it was just before each step, decayed up to it.

        Raises:
            ValueError: if this is no trace.
        """
        if self.decay is None or self.weights is not None:
            raise ValueError(
                "Only a trace has a value before its step: ask for one of the activity, and scale"
                " it afterwards."
            )
        values = self.values()
        initial = self.source.initial(self.decay, self.mode)
        out = torch.zeros_like(values)
        out[1:] = values[:-1]
        if initial is not None:
            out[0] = initial
        return out.mul_(self.decay)

    def __mul__(self, factor: Tensor | float) -> Signal:
        """Scales every value, event by event where they are spikes, which stay spikes.

        Args:
            factor: broadcastable to ``[T, B, ...]``.
        """
        weights = factor if self.weights is None else self.weights * factor
        weights = torch.as_tensor(weights, device=self.activity.device)
        return Signal(self.source, self.decay, self.mode, weights)

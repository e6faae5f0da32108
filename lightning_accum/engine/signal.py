"""One side of a connection as a rule sees it: activity, or a trace of it."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum.engine.source import Source
from lightning_accum.functional.numbers import as_numbers
from lightning_accum.functional.traces import TraceMode, decay_factor
from lightning_accum.sparse.events import Events


class Signal:
    """What one side of a connection contributes to a term: its activity, or a trace of it.

    A rule gets ``window.pre`` and ``window.post``, asks them for traces, and puts either into a
    :class:`~lightning_accum.engine.Term`. Nothing is computed before the engine has chosen
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

    @classmethod
    def of(cls, operand: Signal | Tensor) -> Signal:
        """Returns a signal as it is, and a tensor ``[T, B, ...]`` as a signal without traces."""
        return operand if isinstance(operand, Signal) else cls(Source(operand))

    @property
    def activity(self) -> Tensor:
        """``[T, B, ...]`` what was recorded."""
        return self.source.activity

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which this is computed, float32 or wider."""
        return self.source.dtype

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

    def values_in(self, out: Tensor) -> Tensor:
        """Returns a trace's values without weights, in memory that may be overwritten later."""
        assert self.decay is not None
        return self.source.values_in(out, self.decay, self.mode)

    def initial(self) -> Tensor | None:
        """Returns a trace's value before the first step, ``None`` for zero."""
        assert self.decay is not None
        self.source.use(self.decay, self.mode)
        return self.source.initial(self.decay, self.mode)

    def events(self) -> Events:
        """Returns the spikes' indices in ``[K, neurons]``."""
        return self.source.events()

    @property
    def known_events(self) -> Events | None:
        """The spikes' indices, ``None`` if they were not searched for yet."""
        return self.source.known_events

    def shares_of_events(self) -> Tensor:
        """Returns ``[events]`` what each spike adds to the nearest trace: one, less the rest."""
        assert self.decay is not None
        return 1.0 - self.source.left_by_last_spike(self.decay)

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

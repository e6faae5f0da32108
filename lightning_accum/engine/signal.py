"""One side of a connection as a rule sees it: activity, or a trace of it."""

from __future__ import annotations

from typing import get_args

import torch
from torch import Tensor

from lightning_accum.engine.source import Source
from lightning_accum.functional.numbers import as_numbers
from lightning_accum.functional.traces import TraceMode, decay_factor
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.folding import Folding

_MODES = get_args(TraceMode)


class Signal:
    """One side of a connection in a term: its activity, or a trace of it.

    A rule combines ``window.pre`` and ``window.post``, or their traces, in a
    :class:`~lightning_accum.engine.Term`. A trace is computed only when the engine needs it.

    Args:
        source: the recorded activity.
        decay: the share of a trace that is left after one step; ``None`` for the activity itself.
        mode: the mode of a trace.
        weights: factors of the values of the activity or the trace.
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
        """Returns a signal unchanged, and a tensor ``[T, B, ...]`` as a signal of that activity."""
        return operand if isinstance(operand, Signal) else cls(Source(operand))

    @property
    def activity(self) -> Tensor:
        """The recorded activity, ``[T, B, ...]``."""
        return self.source.activity

    @property
    def shape(self) -> torch.Size:
        """The shape of the activity."""
        return self.source.given.shape

    @property
    def device(self) -> torch.device:
        """The device of the activity."""
        return self.source.given.device

    @property
    def folding(self) -> Folding | None:
        """The folding that computes the activity when it is read; otherwise ``None``."""
        return self.source.folding

    @property
    def is_raster(self) -> bool:
        """Whether the activity is spikes, kept as booleans."""
        return self.source.given.dtype == torch.bool

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which this is computed, float32 or wider."""
        return self.source.dtype

    def trace(self, tc: float, mode: TraceMode = "cumulative") -> Signal:
        """Returns the exponential trace of this side's activity.

        Args:
            tc: time constant, in ms.
            mode: ``"cumulative"`` or ``"nearest"``.

        Raises:
            ValueError: if this is a trace, or weighted.
        """
        if self.decay is not None or self.weights is not None:
            raise ValueError(
                "A trace should be one of recorded activity. Found one of a trace, or of weighted"
                " activity: give the term a tensor, `functional.trace(signal.values(), decay)`."
            )
        if mode not in _MODES:
            raise ValueError(f"Argument `mode` should be one of {_MODES}. Found `mode = {mode!r}`.")
        return Signal(self.source, decay_factor(tc, self.source.dt), mode)

    def age(self) -> Tensor:
        """Returns ``[T, B, ...]``, ms since the latest spike, infinite before the first.

        A spike's age is zero in the step in which it happens.
        """
        return self.source.age()

    def steps_before(self) -> Tensor | None:
        """Returns ``[B, ...]``, the steps since the latest spike before the first step.

        It is infinite where there was none, and ``None`` if there was none at all.
        """
        return self.source.steps_before()

    def steps_at_the_end(self) -> Tensor:
        """Returns memory for the steps since the latest spike, as counted at the last step."""
        return self.source.steps_at_the_end()

    def average(self, tc: float, power: int = 1) -> Tensor:
        r"""Returns the running average of each neuron's activity, over samples and earlier steps.

        .. math:: \bar y(t) = \frac{\sum_{s \le t} a^{t-s} \langle y(s)^p \rangle_b}
                                   {\sum_{s \le t} a^{t-s}}

        It belongs to the neuron, not to a sample: ``clear()`` keeps it, and it is saved with the
        rule.

        Args:
            tc: time constant, in ms.
            power: the power :math:`p` to which activity is raised first.

        Returns:
            ``[T, 1, ...]``; expand it to ``[T, B, ...]`` if a term has it as one side.
        """
        return self.source.average(decay_factor(tc, self.source.dt), power)

    @property
    def unit_dim(self) -> int:
        """The dimension of ``[T, B, ...]`` that counts neurons: the last, or channels."""
        return self.source.unit_dim

    def values(self) -> Tensor:
        """Returns the signal's values, ``[T, B, ...]``, in the dtype of the computation."""
        if self.decay is not None:
            values = self.source.values(self.decay, self.mode)
        else:
            values = as_numbers(self.activity, self.source.dtype)
        return values if self.weights is None else values * self.weights

    def values_in(self, out: Tensor) -> Tensor:
        """Returns a trace's values without weights, in memory that the caller may overwrite."""
        assert self.decay is not None
        return self.source.values_in(out, self.decay, self.mode)

    def initial(self) -> Tensor | None:
        """Returns a trace's value before the first step, ``None`` for zero."""
        assert self.decay is not None
        self.source.use(self.decay, self.mode)
        return self.source.initial(self.decay, self.mode)

    def edges(self) -> tuple[Tensor | None, Tensor] | None:
        """Returns a trace's value before the window, and memory for its value at the last step.

        The caller fills the memory. Returns ``None`` if the trace is computed already.
        """
        assert self.decay is not None
        return self.source.edges(self.decay, self.mode)

    def events(self) -> Events:
        """Returns the spikes' indices in ``[K, neurons]``."""
        return self.source.events()

    @property
    def known_events(self) -> Events | None:
        """The spikes' indices, ``None`` if they have not been searched for."""
        return self.source.known_events

    def shares_of_events(self) -> Tensor:
        """Returns ``[events]``, what each spike adds to the nearest trace: one, less the rest."""
        assert self.decay is not None
        return self.source.shares_of_events(self.decay)

    def before(self) -> Tensor:
        """Returns ``[T, B, ...]``, a trace just before each step, decayed up to that step.

        Raises:
            ValueError: if this is not a trace, or weighted.
        """
        if self.decay is None or self.weights is not None:
            raise ValueError(
                "A signal should be an unweighted trace to have a value before each step. Found"
                " another: call `trace(tc).before()`, and scale the result."
            )
        values = self.values()
        initial = self.source.initial(self.decay, self.mode)
        out = torch.zeros_like(values)
        out[1:] = values[:-1]
        if initial is not None:
            out[0] = initial
        return out.mul_(self.decay)

    def __mul__(self, factor: Tensor | float) -> Signal:
        """Returns the signal with every value scaled; spikes stay spikes, with weights.

        Args:
            factor: a number, or a tensor ``[T, B, ...]``, in which any dimension may be 1.

        Raises:
            ValueError: if it is a tensor of another shape, as a ``reward [B]`` is.
        """
        if isinstance(factor, Tensor) and factor.ndim and factor.shape != self.shape:
            _check_factor(factor.shape, self.shape)
        weights = factor if self.weights is None else self.weights * factor
        weights = torch.as_tensor(weights, device=self.activity.device)
        return Signal(self.source, self.decay, self.mode, weights)


def _check_factor(found: torch.Size, shape: torch.Size) -> None:
    """Raises a ``ValueError`` if a factor does not have the dimensions of a signal, or 1."""
    if len(found) == len(shape) and all(n in (1, m) for n, m in zip(found, shape, strict=True)):
        return
    samples = len(found) == 1 and found[0] == shape[1]
    one = ", ".join(["1, -1", *["1"] * (len(shape) - 2)])
    how = f"`x.view({one})`" if samples else "`x[None]` adds a first dimension"
    raise ValueError(
        "A signal should be multiplied by a number, or by a tensor of its shape [T, B, ...], here"
        f" {tuple(shape)}, in which any dimension may be 1. Found {tuple(found)}: give it"
        f" {'one value per sample, ' if samples else 'all dimensions, as '}{how}."
    )

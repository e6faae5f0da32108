"""Signals: names of one side of a connection, or of a trace of it, which terms combine."""

from __future__ import annotations

from typing import Any, NoReturn, get_args

import torch
from torch import Tensor
from typing_extensions import Never

from lightning_accum._checks import check_choice
from lightning_accum.functional.traces import TraceMode, decay_factor


class NeedsData(BaseException):  # not an Exception, which a rule may catch
    """Says that a rule reads numbers, so that its terms are asked for in every window."""


class SignalName:
    """Names the activity that a signal is of, such as ``"pre"``, without its data."""

    def __init__(self, side: str, dt: float = 1.0, unit_dim: int = -1) -> None:
        # the step in ms, and the dimension of `[T, B, ...]` that counts neurons
        self.side, self.dt, self.unit_dim = side, dt, unit_dim

    def ones(self) -> SignalName:
        """Returns the name of as many ones."""
        return SignalName(f"{self.side} ones", self.dt, self.unit_dim)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NeedsData


class Signal:
    """One side of a connection in a term: its activity, or a trace of it.

    A rule combines ``window.pre`` and ``window.post``, or their traces, in a
    :class:`~lightning_accum.engine.Term`. A signal is a name: nothing is computed until the engine
    needs it, or :meth:`values` is called, after which terms are asked for in every window.

    Args:
        source: the activity.
        decay: the share of a trace that is left after one step; ``None`` for the activity itself.
        mode: the mode of a trace.
        weights: factors of the values of the activity or the trace.
        shifted: whether it is a trace just before each step.
    """

    def __init__(
        self,
        source: Any,
        decay: float | None = None,
        mode: TraceMode = "cumulative",
        weights: Signal | Tensor | None = None,
        shifted: bool = False,
    ) -> None:
        self.source, self.decay, self.weights = source, decay, weights
        self.mode: TraceMode = mode
        self.shifted = shifted

    @property
    def activity(self) -> Tensor:
        """The recorded activity, ``[T, B, ...]``."""
        activity: Tensor = self.source.activity
        return activity

    @property
    def shape(self) -> torch.Size:
        """The shape of the activity, ``[T, B, ...]``."""
        shape: torch.Size = self.source.shape
        return shape

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which this is computed, float32 or wider."""
        dtype: torch.dtype = self.source.dtype
        return dtype

    @property
    def unit_dim(self) -> int:
        """The dimension of ``[T, B, ...]`` that counts neurons: the last, or channels."""
        unit_dim: int = self.source.unit_dim
        return unit_dim

    @property
    def is_named(self) -> bool:
        """Whether this is a name without data."""
        factors = self.weights is None or isinstance(self.weights, Signal)
        return type(self.source) is SignalName and factors

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
        check_choice("mode", mode, get_args(TraceMode))
        return Signal(self.source, decay_factor(tc, self.source.dt), mode)

    def before(self) -> Signal:
        """Returns a trace just before each step, decayed up to it, without the step's own spike.

        Raises:
            ValueError: if this is not a trace, or weighted.
        """
        if self.decay is None or self.weights is not None or self.shifted:
            raise ValueError(
                "A signal should be an unweighted trace to have a value before each step. Found"
                " another: call `trace(tc).before()`, and scale the result."
            )
        return Signal(self.source, self.decay, self.mode, shifted=True)

    def ones(self) -> Signal:
        """Returns a signal of this shape that is always one."""
        return Signal(self.source.ones())

    def derived(self, name: str, values: Tensor) -> Signal:
        """Returns another signal, of values that a rule computes of this one step by step.

        Its traces pass from window to window, as those of recorded activity do.

        Args:
            name: the name under which they pass, one for each formula.
            values: ``[T, B, ...]``.
        """
        return Signal(self.source.derived(name, values))

    def age(self) -> Tensor:
        """Returns ``[T, B, ...]``, ms since the latest spike, infinite before the first.

        A spike's age is zero in the step in which it happens.
        """
        age: Tensor = self.source.age()
        return age

    def average(self, tc: float, power: int = 1) -> Tensor:
        r"""Returns the running average of each neuron's activity, over samples and earlier steps.

        .. math:: \bar y(t) = \frac{\sum_{s \le t} a^{t-s} \langle y(s)^p \rangle_b}
                                   {\sum_{s \le t} a^{t-s}}

        It belongs to the neuron, not to a sample: ``clear()`` keeps it, and it is saved with the
        trainer.

        Args:
            tc: time constant, in ms.
            power: the power :math:`p` to which activity is raised first.

        Returns:
            ``[T, 1, ...]``; expand it to ``[T, B, ...]`` if a term has it as one side.
        """
        average: Tensor = self.source.average(decay_factor(tc, self.source.dt), power)
        return average

    def values(self) -> Tensor:
        """Returns the signal's values, ``[T, B, ...]``, in the dtype of the computation."""
        values: Tensor = self.source.values(self.decay, self.mode, self.shifted)
        return values if self.weights is None else values * values_of(self.weights)

    def __mul__(self, factor: Signal | Tensor | float) -> Signal:
        """Returns the signal with every value scaled; spikes stay spikes, with weights."""
        if isinstance(factor, Signal) and self.weights is None:
            return Signal(self.source, self.decay, self.mode, factor, self.shifted)
        factor = values_of(factor)
        if isinstance(factor, Tensor) and factor.ndim and factor.shape != self.shape:
            _check_factor(factor.shape, self.shape)
        product = factor if self.weights is None else values_of(self.weights) * factor
        weights = torch.as_tensor(product, device=self.source.device)
        return Signal(self.source, self.decay, self.mode, weights, self.shifted)

    __rmul__ = __mul__

    def __add__(self, other: Never) -> NoReturn:
        """Raises a ``TypeError`` that says how sums are written."""
        raise TypeError(
            "A sum with a signal should be several Terms, as `Term(rate, window.post, trace)` and"
            " `Term(-rate * 0.5, window.post, window.one)` for a trace minus 0.5. Found `+` or"
            " `-`: return a Term for each part, or add tensors, `signal.values()`."
        )

    __radd__ = __sub__ = __rsub__ = __add__


def values_of(factor: Any) -> Any:
    """Returns the values of a signal; anything else itself."""
    return factor.values() if isinstance(factor, Signal) else factor


def fits(found: torch.Size, shape: torch.Size) -> bool:
    """Returns whether a factor has the dimensions of a signal, or 1."""
    return len(found) == len(shape) and all(n in (1, m) for n, m in zip(found, shape, strict=True))


def _check_factor(found: torch.Size, shape: torch.Size) -> None:
    """Raises a ``ValueError`` if a factor does not have the dimensions of a signal, or 1."""
    if fits(found, shape):
        return
    samples = len(found) == 1 and found[0] == shape[1]
    one = ", ".join(["1, -1", *["1"] * (len(shape) - 2)])
    how = f"`x.view({one})`" if samples else "`x[None]` adds a first dimension"
    raise ValueError(
        "A signal should be multiplied by a number, or by a tensor of its shape [T, B, ...], here"
        f" {tuple(shape)}, in which any dimension may be 1. Found {tuple(found)}: give it"
        f" {'one value per sample, ' if samples else 'all dimensions, as '}{how}."
    )

"""The variance, the moving average, and the extremes of all values."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_numbers, check_value
from lightning_accum.accumulators.base import State, assign
from lightning_accum.accumulators.elementwise_base import ElementWise, add_to_both, by_parts

_SUMS = ("mean", "mean_rest", "squares", "squares_rest")


def with_value(count: int, value: Tensor, sums: Iterable[Tensor], narrow: bool) -> Any:
    """Adds a value to the sums of a stream, which has then ``count`` values, by the equations."""

    def update(value: Tensor, mean: Tensor, of_mean: Tensor, squares: Tensor, rest: Tensor) -> Any:
        before = value - mean
        if not narrow:  # sums that are wider than the values
            mean = torch.add(mean, before, alpha=1 / count)
            return mean, of_mean, torch.addcmul(squares, before, value - mean), rest
        before = before - of_mean
        mean, of_mean = add_to_both(mean, of_mean, before / count)
        return mean, of_mean, *add_to_both(squares, rest, before * (value - mean - of_mean))

    return by_parts(update, value, *sums)


class Variance(ElementWise):
    r"""The variance of all values, element by element, by Welford's updates.

    .. math::
        \bar x_n = \bar x_{n-1} + \frac{x_n - \bar x_{n-1}}{n}, \qquad
        M_n = M_{n-1} + (x_n - \bar x_{n-1})(x_n - \bar x_n), \qquad
        \sigma^2 = \frac{M_n}{n - c}

    and of complex values the mean of :math:`|x - m|^2`. The sums are in float64 and keep their
    rounding error, like :class:`Sum`, so they are exact after :math:`10^9` values. The result has
    the dtype of the values, or of their real part. Like :func:`torch.var`, it is nan if
    :math:`n \le c`, with one warning. The variances of several processes
    are combined exactly.

    Args:
        correction: number :math:`c` subtracted from the number of values; 1 for an unbiased
            variance.
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Variance
        >>> variance = Variance()
        >>> for value in (1.0, 3.0, 5.0):
        ...     variance.update(value)
        >>> variance.compute(), variance.mean
        (tensor(4., dtype=torch.float64), tensor(3., dtype=torch.float64))

    Source:
        Welford (1962), doi:10.1080/00401706.1962.10490022.
    """

    mean: Tensor
    mean_rest: Tensor
    squares: Tensor
    squares_rest: Tensor

    def __init__(self, correction: float = 1, **kwargs: Any) -> None:
        super().__init__({name: torch.tensor(0.0) for name in _SUMS}, torch.float32, **kwargs)
        check_numbers(correction=correction)
        self.correction = correction

    def update(self, value: Tensor | float) -> None:
        """Adds a tensor of any shape, the same in every call, or a number."""
        tensor, like, narrow = self._entering(value)
        self._check_shape(tensor, self.mean)
        sums = (getattr(self, name) for name in _SUMS)
        found = with_value(self._update_count + 1, tensor, sums, narrow)
        assign(self, like=like, **dict(zip(_SUMS, found, strict=True)))

    def compute(self) -> Tensor:
        """Returns the variance, of the values' shape."""
        if not self._update_count:
            return torch.full_like(self.squares.real, torch.nan)
        squares = self.squares
        if squares.is_complex():  # those of both parts
            squares = squares.real + squares.imag
        variance = squares / max(self._update_count - self.correction, 0)
        return variance.to(self.like.real.dtype)

    def _undefined(self, result: Any) -> str | None:
        if not self._update_count or self._update_count > self.correction:
            return super()._undefined(result)
        return (
            f"`Variance(correction={self.correction})` should have more than {self.correction}"
            f" values. Found {self._update_count}, of shape {tuple(self.squares.shape)}, so that"
            " the result is nan: each call of `update` adds one value, and the elements of a tensor"
            " are separate; pass `correction=0` for the variance of these values themselves."
        )

    def _joined(self, first: State, second: State) -> State:
        # With δ = b̄ - ā and s = n_b / (n_a + n_b), the mean is ā + δ s, and M_a + M_b + δ² n_a s.
        share = second["updates"] / (first["updates"] + second["updates"])

        def merge(*both: Tensor) -> tuple[Tensor, ...]:
            mean, of_mean, squares, rest, other, of_other, others, rest_of_others = both
            delta = (other - mean) + (of_other - of_mean)
            squares, rest = add_to_both(squares, rest + rest_of_others, others)
            squares, rest = add_to_both(squares, rest, delta * delta * (first["updates"] * share))
            return *add_to_both(mean, of_mean, delta * share), squares, rest

        both = (part[name] for part in (first, second) for name in _SUMS)
        return dict(zip(_SUMS, by_parts(merge, *both), strict=True))


class EMA(ElementWise):
    r"""The exponential moving average of the values, element by element, without a start-up bias.

    .. math::
        s_n = \beta s_{n-1} + (1 - \beta) x_n, \qquad
        w_n = \beta w_{n-1} + (1 - \beta), \qquad
        \mathrm{EMA}_n = \frac{s_n}{w_n}

    The average is computed in float64 if the device has it, and returned in the values' dtype.
    Before any value it is nan, with one warning. Over several processes it is the mean of their
    averages, weighed by :math:`w_n`.

    Args:
        decay: :math:`\beta`, in (0, 1): the average reaches back about :math:`1 / (1 - \beta)`
            values.
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if the decay is out of range.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import EMA
        >>> average = EMA(decay=0.5)
        >>> average(torch.tensor(1.0)), average(torch.tensor(4.0))
        (tensor(1.), tensor(3.))
    """

    scaled: Tensor
    weight: Tensor
    real = ("weight",)

    def __init__(self, decay: float = 0.9, **kwargs: Any) -> None:
        zero = torch.tensor(0.0)
        super().__init__({"scaled": zero, "weight": zero}, torch.float32, **kwargs)
        check_numbers(decay=decay)
        how = "give 0.9 for an average over about 10 values, 0.99 for 100"
        check_value(0 < decay < 1, "decay", decay, "between 0 and 1", how)
        self.decay = decay

    def update(self, value: Tensor | float) -> None:
        """Adds a tensor of any shape, the same in every call, or a number."""
        tensor, like, _ = self._entering(value)
        self._check_shape(tensor, self.scaled)
        share = 1 - self.decay
        scaled = by_parts(
            lambda s, x: torch.add(s * self.decay, x, alpha=share), self.scaled, tensor
        )
        # As wide as the values: a wider weight would not make the quotient more exact.
        weight = self.weight.to(scaled.real.dtype) * self.decay + share
        assign(self, scaled=scaled, weight=weight, like=like)

    def compute(self) -> Tensor:
        """Returns the average, of the values' shape."""
        average: Tensor = by_parts(lambda part: part / self.weight, self.scaled)
        return average.to(self.like.dtype)

    def _joined(self, first: State, second: State) -> State:
        scaled = by_parts(torch.add, first["scaled"], second["scaled"])
        return {"scaled": scaled, "weight": first["weight"] + second["weight"]}


class _Extreme(ElementWise):
    """The base of the largest and the smallest value, element by element."""

    integers = torch.int64
    real = ("extreme",)
    extreme: Tensor
    _pick: Callable[..., Tensor]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__({"extreme": torch.tensor(torch.nan)}, **kwargs)

    def update(self, value: Tensor | float) -> None:
        """Adds a real tensor of any shape, the same in every call, or a number."""
        tensor = self._value(value)
        if tensor.is_complex():
            raise TypeError(
                "Argument `value` should be real, since complex numbers have no order. Found"
                f" `value.dtype = {tensor.dtype}`: pass its absolute value or its parts."
            )
        self._check_shape(tensor, self.extreme)
        extreme = self._pick(self.extreme, tensor) if self._update_count else tensor.clone()
        assign(self, extreme=extreme)

    def compute(self) -> Tensor:
        """Returns the extreme, of the values' shape."""
        return self.extreme.clone()

    def _joined(self, first: State, second: State) -> State:
        return {"extreme": self._pick(first["extreme"], second["extreme"])}


class Max(_Extreme):
    r"""The largest of all values, element by element.

    .. math:: \max_i x_i

    If a value is nan, so is the result. The dtype is float32 for half precision, and int64 for
    integers. Before any value, the result is nan, with one warning.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Max
        >>> largest = Max()
        >>> largest.update(torch.tensor([1.0, 5.0]))
        >>> largest(torch.tensor([2.0, 3.0]))
        tensor([2., 5.])
    """

    _pick = staticmethod(torch.maximum)


class Min(_Extreme):
    r"""The smallest of all values, :math:`\min_i x_i`; otherwise as :class:`Max`."""

    _pick = staticmethod(torch.minimum)

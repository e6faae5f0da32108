"""The running variance."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_numbers
from lightning_accum.accumulators._arithmetic import Moments, merge_moments, with_value
from lightning_accum.accumulators._base import State
from lightning_accum.accumulators._elementwise import Summed
from lightning_accum.sparse.attributes import assign

_SUMS = Moments._fields[1:]


class Variance(Summed):
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
    real = ("squares", "squares_rest")

    def __init__(self, correction: float = 1, **kwargs: Any) -> None:
        super().__init__({name: torch.tensor(0.0) for name in _SUMS}, **kwargs)
        check_numbers(correction=correction)
        self.correction = correction

    def update(self, value: Tensor | float) -> None:
        """Adds a value.

        Args:
            value: a tensor of any shape, the same in every call, or a number.

        Raises:
            ValueError: if the shape differs from that of the values before.
        """
        tensor, like, narrow = self._entering(value)
        self._check_shape(tensor, self.mean)
        moments = Moments(self._update_count, *(getattr(self, name) for name in _SUMS))
        found = with_value(moments, tensor, narrow)[1:]
        assign(self, like=like, **dict(zip(_SUMS, found, strict=True)))

    def compute(self) -> Tensor:
        """Returns the variance, of the values' shape."""
        if self._is_empty():
            return torch.full_like(self.squares, torch.nan)
        variance = self.squares / max(self._update_count - self.correction, 0)
        return variance.to(self.like.real.dtype)

    def _undefined(self) -> str | None:
        if self._is_empty() or self._update_count > self.correction:
            return super()._undefined()
        return (
            f"`Variance(correction={self.correction})` should have more than {self.correction}"
            f" values. Found {self._update_count}, of shape {tuple(self.squares.shape)}, so that"
            " the result is nan: each call of `update` adds one value, and the elements of a tensor"
            " are separate; pass `correction=0` for the variance of these values themselves."
        )

    def _combined(self, parts: list[State]) -> State:
        moments = (Moments(int(p["updates"]), *(p[name] for name in _SUMS)) for p in parts)
        return dict(zip(_SUMS, reduce(merge_moments, moments)[1:], strict=True))

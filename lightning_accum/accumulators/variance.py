"""The running variance."""

from __future__ import annotations

from functools import reduce
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_numbers
from lightning_accum.accumulators._arithmetic import merge_moments
from lightning_accum.accumulators._base import State
from lightning_accum.accumulators._elementwise import ElementWise


class Variance(ElementWise):
    r"""The variance of all values, element by element, by Welford's updates.

    .. math::
        \bar x_n = \bar x_{n-1} + \frac{x_n - \bar x_{n-1}}{n}, \qquad
        M_n = M_{n-1} + (x_n - \bar x_{n-1})(x_n - \bar x_n), \qquad
        \sigma^2 = \frac{M_n}{n - c}

    Streamed in at least float32. As :func:`torch.var`, it is nan where :math:`n = c`; of nothing it
    is nan with one warning. The parts of several processes are joined exactly.

    Args:
        correction: what is taken from the number of values, :math:`c`; 1 for an unbiased variance.
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Variance
        >>> variance = Variance()
        >>> for value in (1.0, 3.0, 5.0):
        ...     variance.update(value)
        >>> variance.compute(), variance.mean
        (tensor(4.), tensor(3.))

    Source:
        Welford (1962), doi:10.1080/00401706.1962.10490022.
    """

    mean: Tensor
    squares: Tensor

    def __init__(self, correction: float = 1, **kwargs: Any) -> None:
        super().__init__({"mean": torch.tensor(0.0), "squares": torch.tensor(0.0)}, **kwargs)
        check_numbers(correction=correction)
        self.correction = correction

    def update(self, value: Tensor | float) -> None:
        """Adds a value.

        Args:
            value: a tensor of any shape, the same in every call, or a number.

        Raises:
            ValueError: if the shape is another than before.
        """
        tensor = self._value(value)
        self._check_shape(tensor, self.mean)
        delta = tensor - self.mean
        mean = self.mean + delta / (self._update_count + 1)
        self._put(mean=mean, squares=self.squares + delta * (tensor - mean))

    def compute(self) -> Tensor:
        """The variance, of the values' shape."""
        if self._is_empty():
            return torch.full_like(self.squares, torch.nan)
        return self.squares / max(self._update_count - self.correction, 0)

    def _combined(self, parts: list[State]) -> State:
        moments = ((int(p["updates"]), p["mean"], p["squares"]) for p in parts)
        _, mean, squares = reduce(merge_moments, moments)
        return {"mean": mean, "squares": squares}

"""The largest and the smallest of all values."""

from __future__ import annotations

from abc import abstractmethod
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from lightning_accum.accumulators._base import State
from lightning_accum.accumulators._elementwise import ElementWise
from lightning_accum.sparse.attributes import assign


class _Extreme(ElementWise):
    """The base of the largest and the smallest value, element by element."""

    integers = torch.int64
    # The name differs by class, since a collection shares states of equal names and values.
    state: str

    def __init__(self, **kwargs: Any) -> None:
        super().__init__({self.state: torch.tensor(torch.nan)}, **kwargs)
        self.real = (self.state,)

    @staticmethod
    @abstractmethod
    def _pick(first: Tensor, second: Tensor) -> Tensor:
        """Returns the extreme of two values."""

    def update(self, value: Tensor | float) -> None:
        """Adds a value.

        Args:
            value: a tensor of any shape, the same in every call, or a number.

        Raises:
            TypeError: if the value is complex.
            ValueError: if the shape differs from that of the values before.
        """
        tensor, before = self._value(value), getattr(self, self.state)
        if tensor.is_complex():
            raise TypeError(
                "Argument `value` should be real, since complex numbers have no order. Found"
                f" `value.dtype = {tensor.dtype}`: pass its absolute value or its parts."
            )
        self._check_shape(tensor, before)
        assign(
            self,
            **{self.state: self._pick(before, tensor) if self._update_count else tensor.clone()},
        )

    def compute(self) -> Tensor:
        """Returns the extreme, of the values' shape."""
        extreme: Tensor = getattr(self, self.state)
        return extreme.clone()

    def _combined(self, parts: list[State]) -> State:
        return {self.state: reduce(self._pick, (part[self.state] for part in parts))}


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

    state = "maximum"
    maximum: Tensor

    @staticmethod
    def _pick(first: Tensor, second: Tensor) -> Tensor:
        return torch.maximum(first, second)


class Min(_Extreme):
    r"""The smallest of all values, element by element.

    .. math:: \min_i x_i

    If a value is nan, so is the result. The dtype is float32 for half precision, and int64 for
    integers. Before any value, the result is nan, with one warning.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Min
        >>> smallest = Min()
        >>> smallest.update(torch.tensor([1.0, 5.0]))
        >>> smallest(torch.tensor([2.0, 3.0]))
        tensor([1., 3.])
    """

    state = "minimum"
    minimum: Tensor

    @staticmethod
    def _pick(first: Tensor, second: Tensor) -> Tensor:
        return torch.minimum(first, second)

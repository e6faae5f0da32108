"""The running sum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_accum.accumulators._arithmetic import finished, two_sum
from lightning_accum.accumulators._base import State
from lightning_accum.accumulators._elementwise import ElementWise


class Sum(ElementWise):
    r"""The sum of all values, element by element.

    .. math:: s = \sum_i x_i

    It is kept with what rounding took from it, so that a long stream in float32 comes out as exact
    as one value. Half precision is streamed in float32, integers in int64; the sum of nothing is 0.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Sum
        >>> total = Sum()
        >>> total(torch.tensor([1.0, 2.0]))
        tensor([1., 2.])
        >>> total(torch.tensor([3.0, 4.0]))
        tensor([4., 6.])
    """

    integers = torch.int64
    total: Tensor
    rest: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__({"total": torch.tensor(0), "rest": torch.tensor(0)}, **kwargs)

    def update(self, value: Tensor | float) -> None:
        """Adds a value.

        Args:
            value: a tensor of any shape, the same in every call, or a number.

        Raises:
            ValueError: if the shape is another than before.
        """
        tensor = self._value(value)
        self._check_shape(tensor, self.total)
        total, rest = two_sum(self.total, self.rest, tensor)
        self._put(total=total, rest=rest)

    def compute(self) -> Tensor:
        """The sum, of the values' shape."""
        return finished(self.total, self.rest)

    def _is_empty(self) -> bool:
        return False

    def _combined(self, parts: list[State]) -> State:
        total, rest = parts[0]["total"], parts[0]["rest"]
        for part in parts[1:]:
            total, rest = two_sum(total, rest + part["rest"], part["total"])
        return {"total": total, "rest": rest}

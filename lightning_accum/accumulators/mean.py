"""The running mean."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_integers
from lightning_accum.accumulators._arithmetic import finished, two_sum
from lightning_accum.accumulators._base import State
from lightning_accum.accumulators._elementwise import ElementWise
from lightning_accum.accumulators._values import as_tensor


class Mean(ElementWise):
    r"""The mean of all values, element by element, each weighed.

    .. math:: \bar x = \frac{\sum_i w_i x_i}{\sum_i w_i}

    The sum is kept with what rounding took from it, so that a long stream in float32 comes out as
    exact as one value. Half precision is streamed in float32. The mean of nothing is nan, with one
    warning.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Example:
        A last batch that is smaller counts for less, where its size is the weight.

        >>> import torch
        >>> from lightning_accum.accumulators import Mean
        >>> mean = Mean()
        >>> mean(torch.tensor(1.0), weight=32)
        tensor(1.)
        >>> mean(torch.tensor(4.0), weight=16)
        tensor(2.)
    """

    total: Tensor
    rest: Tensor
    weight: Tensor

    def __init__(self, **kwargs: Any) -> None:
        zero = torch.tensor(0.0)
        # The weight is an integer while it can be: a float32 count would stop at 2 ** 24.
        super().__init__({"total": zero, "rest": zero, "weight": torch.tensor(0)}, **kwargs)

    def update(self, value: Tensor | float, weight: Tensor | float = 1) -> None:
        """Adds a value.

        Args:
            value: a tensor of any shape, the same in every call, or a number.
            weight: what the value counts for, such as the size of its batch: a number, or a tensor
                that broadcasts with ``value``.

        Raises:
            ValueError: if the shape is another than before.
        """
        tensor = self._value(value)
        if isinstance(weight, int):
            check_integers(weight=int(weight))
            tensor = tensor if weight == 1 else tensor * weight
        else:
            weight = self._weight(weight)
            tensor = tensor * weight.to(tensor.dtype)
        self._check_shape(tensor, self.total)
        total, rest = two_sum(self.total, self.rest, tensor)
        self._put(total=total, rest=rest, weight=self.weight + weight)

    def compute(self) -> Tensor:
        """The mean, of the values' shape."""
        if self._is_empty():
            return torch.full_like(self.total, torch.nan)
        total = finished(self.total, self.rest)
        return total / self.weight.to(total.real.dtype)

    def _weight(self, weight: Tensor | float) -> Tensor:
        """The weight, in float64 where the device has it: a float32 sum of many would stop."""
        if not isinstance(weight, Tensor):
            double = torch.float64 if self.device.type != "mps" else torch.float32
            if isinstance(weight, float):
                weight = torch.as_tensor(weight, dtype=double, device=self.device)
            else:
                weight = as_tensor("weight", weight, self.device)
        elif weight.is_floating_point() and weight.device.type != "mps":
            weight = weight.double()
        if weight.is_complex():
            raise TypeError(f"Argument `weight` should be real. Found `{weight.dtype = }`.")
        return weight.detach()

    def _shaped(self) -> list[str]:
        return ["total"]

    def _combined(self, parts: list[State]) -> State:
        total, rest, weight = (parts[0][name] for name in ("total", "rest", "weight"))
        for part in parts[1:]:
            total, rest = two_sum(total, rest + part["rest"], part["total"])
            weight = weight + part["weight"]
        return {"total": total, "rest": rest, "weight": weight}

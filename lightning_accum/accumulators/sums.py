"""The running sum and the running mean."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_integers
from lightning_accum.accumulators._arithmetic import add, by_parts
from lightning_accum.accumulators._base import State
from lightning_accum.accumulators._elementwise import Summed
from lightning_accum.accumulators._values import as_tensor, double


class _Summing(Summed):
    """An accumulator whose first state is a sum, of tensors or of whatever can be added."""

    total: Any
    rest: Tensor

    def _is_object(self, value: Any) -> bool:
        """Whether a value is added as what it is, since no tensor can hold it."""
        if not isinstance(self.total, Tensor):
            return True
        if isinstance(value, Tensor | int | float):
            return False
        try:
            as_tensor("value", value, self.device)
        except TypeError:
            if not _is_addable(value):
                raise
            return True
        return False

    def _with_object(self, value: Any) -> Any:
        """The sum with an object."""
        if not self._update_count:
            return copy.deepcopy(value)
        try:
            return self.total + value
        except TypeError:
            raise TypeError(
                f"Argument `value` should be of a type that can be added to those before, of which"
                f" the sum is a `{type(self.total).__name__}`. Found `{type(value).__name__}`: keep"
                f" one `{type(self).__name__}` for each."
            ) from None

    def _check_state(self, name: str, state: Any, default: Any) -> None:
        if (
            name != "total"
            or isinstance(state, Tensor | int | float | complex)
            or not _is_addable(state)
        ):
            super()._check_state(name, state, default)

    def _combined(self, parts: list[State]) -> State:
        total, rest = parts[0]["total"], parts[0]["rest"]
        for part in parts[1:]:
            if isinstance(total, Tensor) and isinstance(part["total"], Tensor):
                rest = by_parts(torch.add, rest, part["rest"])
                total, rest = add(total, rest, part["total"], narrow=True)
            else:
                total = total + part["total"]
        return {"total": total, "rest": rest}


def _is_addable(value: Any) -> bool:
    # As `sum` has it, text and sequences are joined and not added.
    return hasattr(value, "__add__") and not isinstance(value, str | bytes | Sequence)


class Sum(_Summing):
    r"""The sum of all values, element by element.

    .. math:: s = \sum_i x_i

    Summed in float64, and with what rounding took from it where the values are of float64
    themselves or the device has none, so that :math:`10^9` values come out as exact as one. The
    sum has the dtype of the values: a Python float counts as float64, half precision comes out as
    float32, integers as int64. The sum of nothing is 0. Objects that are not numbers, such as a
    ``Fraction``, are added as they are.

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

    def __init__(self, **kwargs: Any) -> None:
        zero = torch.tensor(0)
        super().__init__({"total": zero, "rest": zero}, like=torch.int64, **kwargs)

    def update(self, value: Any) -> None:
        """Adds a value.

        Args:
            value: a tensor of any shape, the same in every call, a number, or any object that can
                be added to those before.

        Raises:
            TypeError: if it cannot be added.
            ValueError: if the shape is another than before.
        """
        if self._is_object(value):
            self._put(total=self._with_object(value))
            return
        tensor, like, narrow = self._entering(value)
        self._check_shape(tensor, self.total)
        total, rest = add(self.total, self.rest, tensor, narrow)
        self._put(total=total, rest=rest, like=like)

    def compute(self) -> Any:
        """The sum, of the values' shape and dtype."""
        if isinstance(self.total, Tensor):
            return self.total.to(self.like.dtype, copy=True)
        return copy.deepcopy(self.total)

    def _is_empty(self) -> bool:
        return False


class Mean(_Summing):
    r"""The mean of all values, element by element, each weighed.

    .. math:: \bar x = \frac{\sum_i w_i x_i}{\sum_i w_i}

    Summed as a :class:`Sum` is. The mean has the dtype of the values: a Python float and integers
    count as float64, half precision comes out as float32. The mean of nothing is nan, with one
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

    weight: Tensor
    real = ("weight",)

    def __init__(self, **kwargs: Any) -> None:
        zero = torch.tensor(0.0)
        # The weight is an integer while it can be: a float32 count would stop at 2 ** 24.
        super().__init__({"total": zero, "rest": zero, "weight": torch.tensor(0)}, **kwargs)

    def update(self, value: Any, weight: Tensor | float = 1) -> None:
        """Adds a value.

        Args:
            value: a tensor of any shape, the same in every call, a number, or any object that can
                be added to those before and divided by a number.
            weight: what the value counts for, such as the size of its batch: a number, or a tensor
                that broadcasts with ``value``.

        Raises:
            TypeError: if the value cannot be added, or the weight is not real.
            ValueError: if the shape is another than before.
        """
        if isinstance(weight, int):
            check_integers(weight=int(weight))
        else:
            weight = self._weight(weight)
        if self._is_object(value):
            number = weight.item() if isinstance(weight, Tensor) else weight
            total = self._with_object(value if number == 1 else value * number)
            self._put(total=total, weight=self.weight + weight)
            return
        tensor, like, narrow = self._entering(value)
        if isinstance(weight, Tensor) or weight != 1:
            tensor = by_parts(lambda part: part * weight, tensor).to(tensor.dtype)
        self._check_shape(tensor, self.total)
        total, rest = add(self.total, self.rest, tensor, narrow)
        self._put(total=total, rest=rest, weight=self.weight + weight, like=like)

    def compute(self) -> Any:
        """The mean, of the values' shape and dtype."""
        if not isinstance(self.total, Tensor):
            return self.total / self.weight.item()
        if self._is_empty():
            return torch.full_like(self.total, torch.nan)
        weight = self.weight.to(self.total.real.dtype)
        mean: Tensor = by_parts(lambda part: part / weight, self.total)
        return mean.to(self.like.dtype)

    def _weight(self, weight: Any) -> Tensor:
        """The weight, in float64 where the device has it: a float32 sum of many would stop."""
        if not isinstance(weight, Tensor):
            weight = as_tensor("weight", weight, self.device)
        if weight.is_complex():
            raise TypeError(f"Argument `weight` should be real. Found `{weight.dtype = }`.")
        if weight.is_floating_point():
            weight = weight.to(double(torch.float32, weight.device))
        real: Tensor = weight.detach()
        return real

    def _combined(self, parts: list[State]) -> State:
        weight = parts[0]["weight"]
        for part in parts[1:]:
            weight = weight + part["weight"]
        return {**super()._combined(parts), "weight": weight}

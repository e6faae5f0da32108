"""The sum and the mean of all values."""

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checked_state import Kind
from lightning_accum._checks import check_integers
from lightning_accum.accumulators.base import State, assign
from lightning_accum.accumulators.elementwise_base import (
    NUMBERS,
    ElementWise,
    add,
    as_tensor,
    by_parts,
    double,
)


class _Summing(ElementWise):
    """An accumulator whose first state is a sum of tensors or of other objects."""

    total: Any
    rest: Tensor

    def _is_object(self, value: Any) -> bool:
        """Returns whether a value is an object that no tensor can hold."""
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

    def _add(self, value: Any, weight: Tensor | float = 1) -> None:
        """Adds a value times a weight."""
        if self._is_object(value):
            number = weight.item() if isinstance(weight, Tensor) else weight
            assign(self, total=self._with_object(value if number == 1 else value * number))
            return
        tensor, like, narrow = self._entering(value)
        if isinstance(weight, Tensor) or weight != 1:
            tensor = by_parts(lambda part: part * weight, tensor).to(tensor.dtype)
        self._check_shape(tensor, self.total)
        total, rest = add(self.total, self.rest, tensor, narrow)
        assign(self, total=total, rest=rest, like=like)

    def _with_object(self, value: Any) -> Any:
        """Returns the sum after adding an object."""
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

    def _kinds(self) -> dict[str, Kind]:
        return {**super()._kinds(), "total": _TOTAL}

    def _joined(self, first: State, second: State) -> State:
        total, more = first["total"], second["total"]
        if not isinstance(total, Tensor) or not isinstance(more, Tensor):
            return {"total": total + more, "rest": first["rest"]}
        rest = by_parts(torch.add, first["rest"], second["rest"])
        total, rest = add(total, rest, more, narrow=True)
        return {"total": total, "rest": rest}


def _is_addable(value: Any) -> bool:
    """Returns whether objects can be added; like Python's `sum`, not text and sequences."""
    return hasattr(value, "__add__") and not isinstance(value, str | bytes | Sequence)


_TOTAL = Kind(
    f"{NUMBERS.should}, or an object that can be added",
    lambda value: (
        NUMBERS.fits(value)
        or (not isinstance(value, Tensor | int | float | complex) and _is_addable(value))
    ),
)


class Sum(_Summing):
    r"""The sum of all values, element by element.

    .. math:: s = \sum_i x_i

    The sum is computed in float64. If the values are in float64 too, or the device does not have
    it, the sum keeps its rounding error, so it is as exact after :math:`10^9` values as after one.
    It has the dtype of the values: float64 for Python's floats, float32 for half precision and
    int64 for integers. Before any value it is 0. Objects other than numbers, such as a
    ``Fraction``, are added by their own ``+``.

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
            ValueError: if the shape differs from that of the values before.
        """
        self._add(value)

    def compute(self) -> Any:
        """Returns the sum, of the values' shape and dtype."""
        if isinstance(self.total, Tensor):
            return self.total.to(self.like.dtype, copy=True)
        return copy.deepcopy(self.total)


class Mean(_Summing):
    r"""The weighted mean of all values, element by element.

    .. math:: \bar x = \frac{\sum_i w_i x_i}{\sum_i w_i}

    The sums are those of :class:`Sum`. The mean has the dtype of the values: float64 for Python's
    floats and integers, and float32 for half precision. It is taken element by element, also in
    torchmetrics' ``BootStrapper`` and ``MultioutputWrapper``, which select samples; ``MeanMetric``
    averages over all elements, as ``update(value.mean(), weight=value.numel())`` does. Before any
    value it is nan, with one warning; with weights that sum to zero it is nan or infinite,
    likewise with one warning if the weights are on the CPU.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Example:
        With its size as the weight, a smaller last batch counts for less.

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
    _warned = False  # that weights sum to zero

    def __init__(self, **kwargs: Any) -> None:
        zero = torch.tensor(0.0)
        # The weight is an integer while it can be: a float32 count would stop at 2 ** 24.
        states = {"total": zero, "rest": zero, "weight": torch.tensor(0)}
        super().__init__(states, torch.float32, **kwargs)

    def update(self, value: Any, weight: Tensor | float = 1) -> None:
        """Adds a value.

        Args:
            value: as for :meth:`Sum.update`; an object also has to be divisible by a number.
            weight: weight of the value, such as the size of its batch: a number, or a tensor that
                broadcasts with ``value``.

        Raises:
            TypeError: if the value cannot be added, or the weight is not real.
            ValueError: if the shape differs from that of the values before.
        """
        if isinstance(weight, int):
            check_integers(weight=int(weight))
        else:
            weight = self._weight(weight)
        self._add(value, weight)
        assign(self, weight=self.weight + weight)

    def compute(self) -> Any:
        """Returns the mean, of the values' shape and dtype."""
        if not isinstance(self.total, Tensor):
            return self.total / self.weight.item()
        if not self._update_count:
            return torch.full_like(self.total, torch.nan)
        self._warn_of_no_weight()
        weight = self.weight.to(self.total.real.dtype)
        mean: Tensor = by_parts(lambda part: part / weight, self.total)
        return mean.to(self.like.dtype)

    def _warn_of_no_weight(self) -> None:
        """Warns, once, if weights sum to zero; reads them on the CPU only."""
        weight = self.weight
        if self._warned or not weight.is_cpu or not weight.numel() or bool(weight.any()):
            return
        self._warned = True
        warnings.warn(
            f"The weights of a `{type(self).__name__}` should sum to more than 0. Found a sum of 0"
            f" over {self._update_count} values, of which the mean is nan or infinite: look at how"
            " `weight` is computed, or leave out a value that has none.",
            UserWarning,
            stacklevel=4,
        )

    def _weight(self, weight: Any) -> Tensor:
        """Returns the weight in float64 if the device has it, since float32 sums stop growing."""
        if not isinstance(weight, Tensor):
            weight = as_tensor("weight", weight, self.device)
        if weight.is_complex():
            raise TypeError(f"Argument `weight` should be real. Found `{weight.dtype = }`.")
        if weight.is_floating_point():
            weight = weight.to(double(torch.float32, weight.device))
        real: Tensor = weight.detach()
        return real

    def _joined(self, first: State, second: State) -> State:
        return {**super()._joined(first, second), "weight": first["weight"] + second["weight"]}

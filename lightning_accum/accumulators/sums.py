"""Sums element by element: their arithmetic, their base, the sum and the mean."""

import copy
import warnings
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_accum._checks import check_integers, check_shape
from lightning_accum._metric import has_double, representable
from lightning_accum._state_module import TENSOR, Kind, check_that
from lightning_accum.accumulators.base import State, StreamAccumulator
from lightning_accum.sparse.attribute_assignment import assign

_DOUBLE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_KEPT = {*_DOUBLE, *_DOUBLE.values()}

NUMBERS = Kind(
    "a dense tensor of numbers",
    lambda value: TENSOR.fits(value) and value.dtype in {torch.int64, *_KEPT},
)
"""The tensors that values are converted to."""
_REAL_NUMBERS = Kind(
    "a dense tensor of real numbers", lambda value: NUMBERS.fits(value) and not value.is_complex()
)
_EMPTY = Kind("an empty tensor", lambda value: NUMBERS.fits(value) and value.shape == (0,))


def double(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Returns the dtype of sums of a dtype, which is double precision if the device has it."""
    return _DOUBLE.get(dtype, dtype) if has_double(device) else dtype


def wide(value: Any, device: torch.device, integers: torch.dtype | None = None) -> Tensor:
    """Returns the value as a tensor without a graph, in at least single precision."""
    # integers and booleans become floats of double precision by default
    tensor = value.detach() if isinstance(value, Tensor) else as_tensor("value", value, device)
    if tensor.dtype in _KEPT:
        return tensor
    if tensor.is_floating_point():
        return tensor.float()
    if tensor.is_complex():
        return tensor.to(torch.complex64)
    return tensor.to(integers or double(torch.float32, tensor.device))


def as_tensor(name: str, value: Any, device: torch.device) -> Tensor:
    """Returns what torch can make a tensor of as one; floats of Python become double."""
    try:
        tensor = torch.as_tensor(value, device="cpu")
        if tensor.dtype in _DOUBLE and not isinstance(value, np.ndarray | np.generic):
            tensor = torch.as_tensor(value, dtype=_DOUBLE[tensor.dtype], device="cpu")
    except (TypeError, RuntimeError, OverflowError, ValueError) as error:
        raise TypeError(
            f"Argument `{name}` should be a tensor or a number. Found `{type(value).__name__}`:"
            f" {error}."
        ) from None
    return representable(tensor, device).to(device)


def check_like(owner: str, value: Tensor, before: Tensor) -> None:
    """Raises a ``ValueError`` if a value has another shape than the values before."""
    fits, should = value.shape == before.shape, f"shape {tuple(before.shape)}, as before"
    mend = (
        f"keep one `{owner}` for each shape, reset it, or reduce ragged batches to one value each"
    )
    check_shape(fits, "value", value, should, mend)


def add(total: Tensor, rest: Tensor, value: Tensor, narrow: bool) -> tuple[Tensor, Tensor]:
    """Adds a value to a sum that holds at a billion values; it is two numbers if it is narrow."""
    # A sum that is wider than its values, as float64 of float32, loses less than their rounding.
    # One that is as wide is kept as t = fl(s + x), e = s + x - t, s' = fl(t + (r + e)) and the
    # rest r' = t + (r + e) - s', with the error e computed exactly, so that nothing is lost.
    if not narrow:
        return by_parts(torch.add, total, value), rest
    added: tuple[Tensor, Tensor] = by_parts(add_to_both, total, rest, value)
    return added


def add_to_both(total: Tensor, rest: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Adds a real value to a sum that is kept as two numbers."""
    added = total + value
    shift = added - total
    rest = rest + ((total - (added - shift)) + (value - shift))
    # An infinite sum has no rest.
    rest = rest.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    total = added + rest
    return total, rest - (total - added)


def by_parts(function: Callable[..., Any], *tensors: Tensor) -> Any:
    """Evaluates a function, element by element, for both parts of complex tensors separately."""
    # torch adds and subtracts complex tensors with a multiplication by a complex 1, which spreads
    # NaN and infinity from one part to the other.
    if not any(map(Tensor.is_complex, tensors)):
        return function(*tensors)
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
    tensors = tuple(tensor.to(dtype) for tensor in tensors)
    real = function(*(tensor.real for tensor in tensors))
    imag = function(*(tensor.imag for tensor in tensors))
    if isinstance(real, Tensor):
        return torch.complex(real, imag)
    return tuple(torch.complex(*both) for both in zip(real, imag, strict=True))


class ElementWise(StreamAccumulator):
    """An accumulator whose states are tensors of the values' shape, which the first value sets."""

    # The first state has the values' shape. A dtype `like` is for states wider than the values: it
    # is the dtype of the result before any value, which the dtypes of values widen.

    like: Tensor
    # The dtype of integers and booleans; by default they become floats of double precision.
    integers: torch.dtype | None = None
    # Names of the states that are never complex.
    real: tuple[str, ...] = ()

    def __init__(self, states: State, like: torch.dtype | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if like is not None:
            states = {**states, "like": torch.empty(0, dtype=like)}
        for name, default in states.items():
            self.add_state(name, default)
        self._shaped = next(iter(states))

    def _value(self, value: Any) -> Tensor:
        """Returns a value as a tensor of a dtype that is streamed."""
        return wide(value, self.device, self.integers)

    def _entering(self, value: Any) -> tuple[Tensor, Tensor, bool]:
        """Returns a value in the dtype of sums, the new ``like``, and whether both are as wide."""
        tensor, like = self._value(value), self.like
        if tensor.dtype != like.dtype:
            like = like.new_empty(0, dtype=torch.promote_types(like.dtype, tensor.dtype))
        tensor = tensor.to(double(like.dtype, tensor.device))
        return tensor, like, tensor.dtype == like.dtype != torch.int64

    def _check_shape(self, value: Tensor, before: Tensor) -> None:
        """Raises if a value has another shape than the values before."""
        if value.shape != before.shape and self._update_count:
            check_like(type(self).__name__, value, before)

    def _merged(self, parts: Sequence[State]) -> State:
        shaped = (part[self._shaped] for part in parts if part["updates"])
        found = sorted({tuple(getattr(each, "shape", ())) for each in shaped})
        if len(found) > 1:
            raise ValueError(
                f"State `{self._shaped}` should have one shape in all parts that are merged. Found"
                f" shapes {found}: give every process values of the same shape."
            )
        merged = super()._merged(parts)
        if "like" in self._initial:
            like = reduce(torch.promote_types, (part["like"].dtype for part in parts))
            merged["like"] = self.like.new_empty(0, dtype=like)
        return merged

    def _kinds(self) -> dict[str, Kind]:
        kinds = dict.fromkeys(self._initial, NUMBERS) | dict.fromkeys(self.real, _REAL_NUMBERS)
        return {**super()._kinds(), **kinds, **({"like": _EMPTY} if "like" in kinds else {})}

    def _check_states(self, place: str, states: State) -> None:
        super()._check_states(place, states)
        value, like = states[self._shaped], states.get("like")
        shapes = {k: tuple(getattr(states[k], "shape", ())) for k in self._initial if k != "like"}
        first = shapes[self._shaped] if states["updates"] else ()
        fits = all(_joined(shape, first) == first for shape in shapes.values())
        check_that(fits, place, "states of the values' shape", str(shapes))
        if like is not None and isinstance(value, Tensor):
            fits = value.is_complex() == like.is_complex()
            fits = fits and value.is_floating_point() == like.is_floating_point()
            check_that(fits, place, f"a tensor like {value.dtype} as `like`", str(like.dtype))


def _joined(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...] | None:
    """Returns the shape to which two broadcast, if they do."""
    try:
        return tuple(torch.broadcast_shapes(first, second))
    except RuntimeError:
        return None


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
            value = value if number == 1 else value * number
            try:
                total = self.total + value if self._update_count else copy.deepcopy(value)
            except TypeError:
                raise TypeError(
                    "Argument `value` should be of a type that can be added to those before, of"
                    f" which the sum is a `{type(self.total).__name__}`. Found"
                    f" `{type(value).__name__}`: keep one `{type(self).__name__}` for each."
                ) from None
            assign(self, total=total)
            return
        tensor, like, narrow = self._entering(value)
        if isinstance(weight, Tensor) or weight != 1:
            tensor = by_parts(lambda part: part * weight, tensor).to(tensor.dtype)
        self._check_shape(tensor, self.total)
        total, rest = add(self.total, self.rest, tensor, narrow)
        assign(self, total=total, rest=rest, like=like)

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
    others = str, bytes, Sequence, Tensor, int, float, complex
    return hasattr(value, "__add__") and not isinstance(value, others)


_TOTAL = Kind(
    f"{NUMBERS.should}, or an object that can be added",
    lambda value: NUMBERS.fits(value) or _is_addable(value),
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
            if not isinstance(weight, Tensor):
                weight = as_tensor("weight", weight, self.device)
            if weight.is_complex():
                raise TypeError(f"Argument `weight` should be real. Found `{weight.dtype = }`.")
            if weight.is_floating_point():  # sums in float32 stop growing
                weight = weight.to(double(torch.float32, weight.device))
            weight = weight.detach()
        self._add(value, weight)
        assign(self, weight=self.weight + weight)

    def compute(self) -> Any:
        """Returns the mean, of the values' shape and dtype."""
        if not isinstance(self.total, Tensor):
            return self.total / self.weight.item()
        if not self._update_count:
            return torch.full_like(self.total, torch.nan)
        weight = self.weight
        if weight.is_cpu and weight.numel() and not self._warned and not bool(weight.any()):
            self._warned = True
            warnings.warn(
                f"The weights of a `{type(self).__name__}` should sum to more than 0. Found a sum"
                f" of 0 over {self._update_count} values, of which the mean is nan or infinite:"
                " look at how `weight` is computed, or leave out a value that has none.",
                UserWarning,
                stacklevel=3,
            )
        weight = weight.to(self.total.real.dtype)
        mean: Tensor = by_parts(lambda part: part / weight, self.total)
        return mean.to(self.like.dtype)

    def _joined(self, first: State, second: State) -> State:
        return {**super()._joined(first, second), "weight": first["weight"] + second["weight"]}

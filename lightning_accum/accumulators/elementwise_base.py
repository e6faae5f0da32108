"""The base of accumulators that keep the values' shape, and the arithmetic of their sums."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_accum._checked_state import TENSOR, Kind, check_that
from lightning_accum._checks import check_shape
from lightning_accum._persistent_metric import has_double, representable
from lightning_accum.accumulators.base import State, StreamAccumulator

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
    r"""Adds a value to a sum that holds at :math:`10^9` values.

    A sum that is wider than its values, such as a float64 sum of float32 values, loses less than
    the rounding of the values. A sum that is as wide as its values is kept as two numbers,

    .. math::
        t = \mathrm{fl}(s + x), \qquad e = s + x - t, \qquad
        s' = \mathrm{fl}(t + (r + e)), \qquad r' = t + (r + e) - s'

    with the error :math:`e` of the addition computed exactly, so that no small value is lost.
    """
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
        fits = all(
            len(shape) <= len(first)
            and all(n in (1, m) for n, m in zip(shape[::-1], first[::-1], strict=False))
            for shape in shapes.values()
        )
        check_that(fits, place, "states of the values' shape", str(shapes))
        if like is not None and isinstance(value, Tensor):
            fits = value.is_complex() == like.is_complex()
            fits = fits and value.is_floating_point() == like.is_floating_point()
            check_that(fits, place, f"a tensor like {value.dtype} as `like`", str(like.dtype))

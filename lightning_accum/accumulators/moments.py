"""Sums and moments of long streams."""

from collections.abc import Callable
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor


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
    added: tuple[Tensor, Tensor] = by_parts(_add_to_both, total, rest, value)
    return added


def _add_to_both(total: Tensor, rest: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
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


class Moments(NamedTuple):
    """Number of values, their mean, and the sum of squared deviations; sums with their rests."""

    # Those of complex values are those of their two parts, as complex numbers.

    number: int
    mean: Tensor
    mean_rest: Tensor
    squares: Tensor
    squares_rest: Tensor


def with_value(moments: Moments, value: Tensor, narrow: bool) -> Moments:
    """Adds a value to the moments of a stream, by the equations of :class:`Variance`."""
    count = moments.number + 1

    def update(value: Tensor, mean: Tensor, of_mean: Tensor, squares: Tensor, rest: Tensor) -> Any:
        before = value - mean
        if not narrow:  # sums that are wider than the values
            mean = torch.add(mean, before, alpha=1 / count)
            return mean, of_mean, torch.addcmul(squares, before, value - mean), rest
        before = before - of_mean
        mean, of_mean = _add_to_both(mean, of_mean, before / count)
        return mean, of_mean, *_add_to_both(squares, rest, before * (value - mean - of_mean))

    return Moments(count, *by_parts(update, value, *moments[1:]))


def merge_moments(first: Moments, second: Moments) -> Moments:
    r"""Joins the moments of two streams.

    .. math::
        \delta = \bar b - \bar a, \qquad
        \bar{ab} = \bar a + \delta \frac{n_b}{n_a + n_b}, \qquad
        M_{ab} = M_a + M_b + \delta^2 \frac{n_a n_b}{n_a + n_b}
    """
    count = first.number + second.number
    share = second.number / count

    def merge(*both: Tensor) -> tuple[Tensor, ...]:
        mean, of_mean, squares, rest, other, of_other, others, rest_of_others = both
        delta = (other - mean) + (of_other - of_mean)
        squares, rest = _add_to_both(squares, rest + rest_of_others, others)
        squares, rest = _add_to_both(squares, rest, delta * delta * (first.number * share))
        return *_add_to_both(mean, of_mean, delta * share), squares, rest

    return Moments(count, *by_parts(merge, *first[1:], *second[1:]))

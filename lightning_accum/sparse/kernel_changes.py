"""The kernel's sums over the weights and their change, for the statistics of an update."""

from __future__ import annotations

import ctypes
import math
from typing import NamedTuple

from torch import Tensor

from lightning_accum.sparse.compiled import Int, Real, are_values, is_plain, kernel_for, pointer

_SUMS, _COUNTS = 7, 4


class ChangeSums(NamedTuple):
    """Sums of squares of the finite values, sums of the parts' sizes, and counts.

    Attributes:
        moved: of the change that was applied.
        before: of the weights before.
        after: of the weights after.
        up: of the potentiating part.
        down: of the depressing part.
        up_size: the sum of the sizes in the potentiating part.
        down_size: the sum of the sizes in the depressing part.
        zeros: the number of weights that have not changed.
        nonfinite: the number of NaN and Inf in the change and in both parts.
        at_lower: the number of weights at or beyond the lower limit.
        at_upper: the number of weights at or beyond the upper limit.
    """

    moved: float
    before: float
    after: float
    up: float
    down: float
    up_size: float
    down_size: float
    zeros: float
    nonfinite: float
    at_lower: float
    at_upper: float


def change_sums(
    before: Tensor,
    after: Tensor,
    pos: Tensor | None,
    neg: Tensor | None,
    lower: float | None,
    upper: float | None,
) -> ChangeSums | None:
    """Returns the sums over one update, ``None`` if there is no kernel for it.

    Args:
        before: the parameter before the update.
        after: the parameter after it, of the same shape.
        pos: the potentiating part, of the same shape.
        neg: the depressing part, of the same shape.
        lower: the lower limit.
        upper: the upper limit.
    """
    kernel = _kernel_for(before, after, pos, neg)
    if kernel is None:
        return None
    found = (ctypes.c_double * (_SUMS + _COUNTS))()
    kernel.change_sums(*_arguments((before, after, pos, neg), (lower, upper)), found)
    return ChangeSums(*found)


def lost_sums(
    before: Tensor,
    after: Tensor,
    parts: tuple[Tensor | None, Tensor | None],
    limits: tuple[float | None, float | None],
    near: float,
) -> tuple[float, float] | None:
    """Returns how much of a change had no effect, and how much there was; ``None`` as above.

    Args:
        before: the parameter before the update.
        after: the parameter after it, of the same shape.
        parts: the potentiating and the depressing part, of the same shape.
        limits: the lower and the upper limit.
        near: the distance from a limit, in terms of the largest weight, up to which a weight does
            not count.
    """
    kernel = _kernel_for(before, after, *parts)
    if kernel is None:
        return None
    found = (ctypes.c_double * 2)()
    kernel.lost_sums(*_arguments((before, after, *parts), limits), Real(near), found)
    return found[0], found[1]


def _kernel_for(before: Tensor, *others: Tensor | None) -> ctypes.CDLL | None:
    if not is_plain(before):
        return None
    shape, dtype = before.shape, before.dtype
    for each in others:
        if each is not None and not are_values(each, shape, dtype):
            return None
    return kernel_for(dtype)


def _arguments(
    tensors: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    limits: tuple[float | None, float | None],
) -> list[object]:
    """Returns where tensors begin, their size, and the limits, NaN for one that is not set."""
    ends = (Real(math.nan if limit is None else limit) for limit in limits)
    return [*map(pointer, tensors), Int(tensors[0].numel()), *ends]

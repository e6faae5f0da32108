"""The statistics of an update, in one pass over the weights if there is a kernel."""

from __future__ import annotations

import ctypes
import math
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum._checks import check_numbers
from lightning_accum.functional.statistics import AVERAGED, NEAR, lost_change, update_statistics
from lightning_accum.sparse.library import Int, Real, are_values, is_plain, kernel_for, pointers

_SUMS, _COUNTS = 7, 4


class ChangeSums(NamedTuple):
    """Sums of squares of the finite values, sums of the parts' sizes, and counts."""

    moved: float  # of the change that was applied
    before: float  # of the weights before
    after: float  # of the weights after
    up: float  # of the potentiating part
    down: float  # of the depressing part
    up_size: float  # the sum of the sizes in the potentiating part
    down_size: float  # the sum of the sizes in the depressing part
    zeros: float  # the number of weights that have not changed
    nonfinite: float  # the number of NaN and Inf in the change and in both parts
    at_lower: float  # the number of weights at or beyond the lower limit
    at_upper: float  # the number of weights at or beyond the upper limit


def change_sums(
    before: Tensor,  # the parameter before the update
    after: Tensor,  # the parameter after it, of the same shape
    pos: Tensor | None,  # the potentiating part, of the same shape
    neg: Tensor | None,  # the depressing part, of the same shape
    lower: float | None,  # the lower limit
    upper: float | None,  # the upper limit
) -> ChangeSums | None:
    """Returns the sums over one update, ``None`` if there is no kernel for it."""
    kernel = _kernel_for(before, after, pos, neg)
    if kernel is None:
        return None
    found = (ctypes.c_double * (_SUMS + _COUNTS))()
    kernel.change_sums(*_arguments((before, after, pos, neg), (lower, upper)), found)
    return ChangeSums(*found)


def lost_sums(
    before: Tensor,  # the parameter before the update
    after: Tensor,  # the parameter after it, of the same shape
    parts: tuple[Tensor | None, Tensor | None],
    limits: tuple[float | None, float | None],  # the lower and the upper limit
    near: float,  # distance from a limit, of the largest weight, in which weights do not count
) -> tuple[float, float] | None:
    """Returns how much of a change had no effect, and how much there was; ``None`` as above."""
    kernel = _kernel_for(before, after, *parts)
    if kernel is None:
        return None
    found = (ctypes.c_double * 2)()
    kernel.lost_sums(*_arguments((before, after, *parts), limits), Real(near), found)
    return found[0], found[1]


def _kernel_for(before: Tensor, *others: Tensor | None) -> ctypes.CDLL | None:
    if not is_plain(before):
        return None
    values = ((each, before.shape) for each in others)
    return kernel_for(before.dtype) if are_values(before.dtype, *values) else None


def _arguments(
    tensors: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    limits: tuple[float | None, float | None],
) -> list[object]:
    """Returns where tensors begin, their size, and the limits, NaN for one that is not set."""
    ends = (Real(math.nan if limit is None else limit) for limit in limits)
    return [*pointers(*tensors), Int(tensors[0].numel()), *ends]


def fast_statistics(
    before: Tensor,
    after: Tensor,
    pos: Tensor | None = None,
    neg: Tensor | None = None,
    lower: float | None = None,
    upper: float | None = None,
) -> dict[str, Tensor]:
    """Returns the statistics of the change that was applied to a parameter.

    The plain form is :func:`~lightning_accum.functional.statistics.update_statistics`, which has
    these arguments, and takes some thirty operations of torch.
    """
    found = summed_statistics(before, after, pos, neg, lower, upper)
    if found is None:
        return update_statistics(before, after, pos, neg, lower, upper)
    values = torch.tensor([found[name] for name in AVERAGED], dtype=before.dtype).unbind()
    nonfinite = torch.tensor(int(found["nonfinite"]))
    return {**dict(zip(AVERAGED, values, strict=True)), "nonfinite": nonfinite}


def summed_statistics(
    before: Tensor,
    after: Tensor,
    pos: Tensor | None,
    neg: Tensor | None,
    lower: float | None,
    upper: float | None,
) -> dict[str, float] | None:
    """Returns these statistics as numbers, ``None`` if there is no kernel for the parameter."""
    check_numbers(**{k: v for k, v in (("lower", lower), ("upper", upper)) if v is not None})
    sums = change_sums(before, after, pos, neg, lower, upper)
    if sums is None:
        return None
    size, both = max(before.numel(), 1), sums.up_size + sums.down_size
    moved, was = math.sqrt(sums.moved), math.sqrt(sums.before)
    lows, highs = sums.at_lower / size, sums.at_upper / size
    return {
        "update_norm": moved,
        "weight_norm": math.sqrt(sums.after),
        "ratio": (moved / was if was else math.inf) if moved else 0.0,
        "pos_norm": math.sqrt(sums.up),
        "neg_norm": math.sqrt(sums.down),
        "balance": (sums.up_size - sums.down_size) / both if both else 0.0,
        "at_lower": lows,
        "at_upper": highs,
        "at_bound": lows + highs,
        "zero_share": sums.zeros / size,
        "nonfinite": sums.nonfinite,
    }


def fast_lost_change(
    before: Tensor,
    after: Tensor,
    parts: tuple[Tensor | None, Tensor | None],
    limits: tuple[float | None, float | None] = (None, None),
) -> tuple[Tensor, Tensor] | tuple[float, float]:
    """Returns how much of a pending change had no effect, and how much there was.

    The plain form is :func:`~lightning_accum.functional.statistics.lost_change`, which has these
    arguments. The kernel's sums are numbers.
    """
    sums = lost_sums(before, after, parts, limits, NEAR)
    return lost_change(before, after, parts, limits) if sums is None else sums

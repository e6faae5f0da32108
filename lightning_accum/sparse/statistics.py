"""The statistics of an update, in one pass over the weights if there is a kernel."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lightning_accum._checks import check_numbers
from lightning_accum.functional.statistics import AVERAGED, NEAR, lost_change, update_statistics
from lightning_accum.sparse.kernel_changes import change_sums, lost_sums


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

    Example:
        >>> w = torch.tensor([3.0, 4.0])
        >>> found = fast_statistics(w, torch.tensor([3.0, 4.5]), upper=4.5)
        >>> {name: float(found[name]) for name in ("update_norm", "zero_share", "at_upper")}
        {'update_norm': 0.5, 'zero_share': 0.5, 'at_upper': 0.5}
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

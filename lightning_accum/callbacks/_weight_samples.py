"""What samples of weights around an update tell of what is done to them between updates."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_accum.functional.numbers import Fingerprint, widened

_EQUAL = 1e-3  # spread of weights that are practically equal, relative to their size
_ELSE = 0.01  # times an update, what else may happen to weights that are moved back along it


def correlation(one: Tensor, other: Tensor) -> Tensor:
    """Returns the correlation of two samples; NaN if all values of one are practically equal."""
    wide = [widened(one), widened(other)]
    x, y = (each - each.mean() for each in wide)
    vary = [part.norm() > _EQUAL * each.norm() for part, each in zip((x, y), wide, strict=True)]
    found = (x * y).sum() / (torch.linalg.vector_norm(x) * torch.linalg.vector_norm(y))
    return torch.where(vary[0] & vary[1], found, torch.nan)


def taken_back(since: Tensor, left: Tensor, now: Tensor) -> Tensor:
    """Returns the share of an update that something has taken back, NaN if it did anything else.

    Args:
        since: the weights before the update.
        left: the weights after it.
        now: the weights before the next one.
    """
    made, back = widened(left) - widened(since), widened(left) - widened(now)
    share = (made * back).sum() / made.square().sum()
    other = torch.linalg.vector_norm(back - share * made)
    return torch.where(other <= _ELSE * torch.linalg.vector_norm(made), share, torch.nan)


def times_back(steps: Sequence[tuple[Fingerprint, Fingerprint]]) -> int:
    """Counts the updates that found a parameter back at a value that an earlier one changed."""
    changed: set[tuple[float, ...]] = set()
    undone = 0
    for marks in steps:
        before, after = (tuple(map(float, mark)) for mark in marks)
        undone += before in changed
        if before != after:
            changed.add(before)
    return undone

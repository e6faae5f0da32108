"""The part of a change that had no effect on the weights."""

from __future__ import annotations

import torch
from torch import Tensor

#: The distance from a limit up to which a weight does not count, in terms of the largest weight.
NEAR = 0.01


@torch.no_grad()
def lost_change(
    before: Tensor,
    after: Tensor,
    parts: tuple[Tensor | None, Tensor | None],
    limits: tuple[float | None, float | None] = (None, None),
) -> tuple[Tensor, Tensor]:
    """Returns how much of a pending change had no effect, and how much there was.

    Weights near a limit or beyond it do not count: what a limit or a soft bound holds back is not
    lost.

    Args:
        before: the parameter before the update.
        after: the parameter after it, of the same shape.
        parts: the potentiating and the depressing part that were pending, of the same shape.
        limits: the lower and the upper limit.

    Example:
        >>> large = torch.tensor([1e8, 1.0])
        >>> lost, wanted = lost_change(large, large + 0.5, (torch.tensor([0.5, 0.5]), None))
        >>> float(lost), float(wanted)
        (0.5, 1.0)
    """
    pos, neg = (torch.zeros_like(after) if part is None else part for part in parts)
    wanted, near, (lower, upper) = (pos - neg).abs(), NEAR * after.abs().max(), limits
    if lower is not None:
        wanted = wanted.masked_fill(after <= lower + near, 0.0)
    if upper is not None:
        wanted = wanted.masked_fill(after >= upper - near, 0.0)
    return wanted.masked_fill(after != before, 0.0).sum(), wanted.sum()

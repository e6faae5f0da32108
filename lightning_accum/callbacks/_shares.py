"""Shares of the weights of a parameter; each waits for the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from lightning_accum.functional.numbers import SAMPLE, widened

_EQUAL = 1e-3  # spread of weights that are practically equal, relative to the largest
_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)

Compare: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def share_still(same: Tensor, shape: torch.Size) -> float:
    """Returns the share of neurons none of whose weights has changed.

    Args:
        same: which weights of an evenly spaced sample are as they were.
        shape: the shape of all weights.
    """
    total = shape.numel()
    if not total:
        return 0.0
    step = -(-total // SAMPLE)
    neuron = torch.arange(0, total, step, device=same.device) // (total // shape[0])
    changed, seen = torch.zeros(2, shape[0], device=same.device)
    changed.index_add_(0, neuron, (~same).float())
    seen.index_add_(0, neuron, torch.ones_like(same, dtype=torch.float32))
    return float(((changed == 0) & (seen > 0)).sum() / (seen > 0).sum())


def share_in_common(value: Tensor, module: nn.Module) -> float:
    """Returns the share of the weights' variance that is the same for all neurons, or filters.

    Args:
        value: the weights; the share is 1 if all of them are practically equal.
        module: the linear layer or convolution that they are of; it is 0 for any other module.

    Example:
        >>> twins, layer = torch.tensor([[1.0, 2.0], [1.0, 2.0]]), nn.Linear(2, 2)
        >>> share_in_common(twins, layer), share_in_common(torch.eye(2), layer)
        (1.0, 0.0)
        >>> share_in_common(0.125 + 1e-7 * torch.eye(2), layer)
        1.0
    """
    if not isinstance(module, _LAYERS) or getattr(module, "groups", 1) > 1 or value.ndim < 2:
        return 0.0
    wide = widened(value).flatten(1)
    if min(wide.shape) < 2:
        return 0.0
    of_each = float((wide - wide.mean(0)).square().mean())
    of_all = float((wide - wide.mean()).square().mean())
    return 1.0 - of_each / of_all if of_all > (_EQUAL * float(wide.abs().max())) ** 2 else 1.0


def share(
    value: Tensor, below: Compare, lower: float | None, above: Compare, upper: float | None
) -> float:
    """Returns the share of weights that are below a lower limit or above an upper one.

    Args:
        value: the weights.
        below: compares weights with the lower limit.
        lower: the lower limit, if there is one.
        above: compares weights with the upper limit.
        upper: the upper limit, if there is one.
    """
    found = torch.zeros_like(value, dtype=torch.bool)
    for compare, limit in ((below, lower), (above, upper)):
        if limit is not None:
            found |= compare(value, value.new_full((), limit))
    return share_of(found)


def share_of(flags: Tensor) -> float:
    """Returns the share of flags that are set, 0 if there are none."""
    return float(flags.float().mean()) if flags.numel() else 0.0

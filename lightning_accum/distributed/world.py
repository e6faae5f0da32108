"""The number of processes that train together, and the first of them."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor


def processes(group: Any = None) -> int:
    """Returns how many processes train together, 1 if training is not distributed.

    Args:
        group: the process group; the default one when ``None``.

    Example:
        >>> processes()
        1
    """
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def is_first(group: Any = None) -> bool:
    """Returns whether this process has rank 0, or trains without others.

    Args:
        group: the process group; the default one when ``None``.

    Example:
        >>> is_first()
        True
    """
    return processes(group) == 1 or dist.get_rank(group) == 0


def summed(tensor: Tensor, group: Any = None) -> Tensor:
    """Returns the sum over processes of a tensor, which it may change in place.

    Args:
        tensor: of the same shape in every process.
        group: the process group; the default one when ``None``.

    Example:
        >>> import torch
        >>> summed(torch.ones(2))
        tensor([1., 1.])
    """
    if processes(group) > 1:
        dist.all_reduce(tensor, group=group)
    return tensor

"""Which processes train together."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist


def processes(group: Any = None) -> int:
    """How many processes train together, 1 without any distributed run.

    Example:
        >>> processes()
        1
    """
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def is_first(group: Any = None) -> bool:
    """Whether this process is the first of those that train together, or alone.

    Example:
        >>> is_first()
        True
    """
    return processes(group) == 1 or dist.get_rank(group) == 0

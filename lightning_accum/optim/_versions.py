"""Tells autograd of changes that it does not see."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Before, it takes one tensor only.
_TAKES_LISTS = torch.__version__ >= "2.6"


def count_versions(tensors: Sequence[Tensor]) -> None:
    """Increments the version of each tensor, so a backward pass that needs its old values raises.

    Args:
        tensors: tensors that were changed in place.
    """
    if _TAKES_LISTS:
        torch.autograd.graph.increment_version(tensors)  # type: ignore[arg-type, unused-ignore]
        return
    for tensor in tensors:
        torch.autograd.graph.increment_version(tensor)

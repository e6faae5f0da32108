"""Telling autograd of changes that it does not see."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Earlier, it takes one tensor at a time.
_TAKES_LISTS = torch.__version__ >= "2.6"


def count_versions(tensors: Sequence[Tensor]) -> None:
    """Counts a change of each tensor, so that a backward pass that needs its old values raises.

    Args:
        tensors: those that were changed in place.
    """
    if _TAKES_LISTS:
        torch.autograd.graph.increment_version(tensors)  # type: ignore[arg-type, unused-ignore]
        return
    for tensor in tensors:
        torch.autograd.graph.increment_version(tensor)

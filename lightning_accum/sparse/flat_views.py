"""Dense tensors as lines of memory."""

from __future__ import annotations

import torch
from torch import Tensor


def dense(tensor: Tensor) -> bool:
    """Returns whether the elements fill a contiguous range of memory, in any order."""
    return tensor.is_contiguous() or torch.empty_like(tensor).stride() == tensor.stride()


def same_layout(tensor: Tensor, other: Tensor) -> bool:
    """Returns whether two tensors of one shape have their elements in the same order in memory."""
    return all(
        size == 1 or one == two
        for size, one, two in zip(tensor.shape, tensor.stride(), other.stride(), strict=True)
    )


def flat_view(tensor: Tensor) -> Tensor:
    """Returns a view of the elements of a dense tensor in their order in memory."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    return tensor.as_strided((tensor.numel(),), (1,))


def flat_alias(tensor: Tensor) -> Tensor:
    """Returns :func:`flat_view` without a base, for whose every shape torch would recompile."""
    alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    start, size = tensor.storage_offset(), tensor.numel()
    return alias.set_(tensor.untyped_storage(), start, (size,), (1,))

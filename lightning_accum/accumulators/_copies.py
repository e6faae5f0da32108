"""Copies of values, and their moves to another device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from lightning_utilities import apply_to_collection
from torch import Tensor

from lightning_accum._metric import representable


def copied(value: Any) -> Any:
    """Returns a value with copies of its tensors."""
    return (
        value.clone()
        if isinstance(value, Tensor)
        else apply_to_collection(value, Tensor, torch.clone)
    )


class Moves:
    """Moves a tensor as ``fn`` does, but keeps its dtype, as with ``.to(torch.bfloat16)``."""

    def __init__(self, fn: Callable[[Tensor], Tensor]) -> None:
        self.fn = fn

    def __call__(self, tensor: Tensor) -> Tensor:
        device = self.fn(torch.empty(0, device=tensor.device)).device
        tensor = representable(tensor, device)
        moved = self.fn(tensor)
        return moved if moved.dtype == tensor.dtype else tensor.to(moved.device)

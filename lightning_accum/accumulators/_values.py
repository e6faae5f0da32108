"""What a value is turned into before it is added."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_WIDE = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def wide(value: Any, device: torch.device, integers: torch.dtype | None = None) -> Tensor:
    """The value as a tensor without a graph, in at least float32.

    Args:
        value: a tensor, a number, or what else ``torch.as_tensor`` takes.
        device: where a value that is no tensor goes.
        integers: dtype of integers and booleans; the default dtype when missing.
    """
    tensor = value if isinstance(value, Tensor) else as_tensor("value", value, device)
    if tensor.dtype not in _WIDE:
        narrow = torch.float32 if tensor.dtype.is_floating_point else None
        tensor = tensor.to(narrow or integers or torch.get_default_dtype())
    return tensor.detach()


def as_tensor(name: str, value: Any, device: torch.device) -> Tensor:
    """A number, or what else ``torch.as_tensor`` takes, as a tensor.

    Raises:
        TypeError: if it takes no such thing.
    """
    try:
        return torch.as_tensor(value, device=device)
    except (RuntimeError, OverflowError, ValueError) as error:
        raise TypeError(
            f"Argument `{name}` should be a tensor or a number. Found `{type(value).__name__}`:"
            f" {error}."
        ) from None


def check_shape(owner: str, value: Tensor, before: Tensor) -> None:
    """Raises a ValueError where a value has another shape than those before."""
    if value.shape != before.shape:
        raise ValueError(
            f"Argument `value` should have shape {tuple(before.shape)}, as before. Found"
            f" `value.shape = {tuple(value.shape)}`: keep one `{owner}` for each shape, reset it,"
            " or reduce ragged batches to one value each."
        )

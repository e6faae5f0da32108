"""Spikes as numbers."""

from __future__ import annotations

import torch
from torch import Tensor

_level = torch._C._functorch.maybe_current_level


def is_traced() -> bool:
    """Whether what runs is compiled, or transformed as by `torch.func.vmap`: no place for tricks.

    Example:
        >>> is_traced()
        False
    """
    return torch.compiler.is_compiling() or _level() is not None


def as_bytes(values: Tensor) -> Tensor:
    """Booleans as bytes of 0 and 1, which torch converts ten times as fast; others as they are.

    Args:
        values: of any dtype.

    Example:
        >>> import torch
        >>> as_bytes(torch.tensor([True, False]))
        tensor([1, 0], dtype=torch.uint8)
    """
    # vmap has no such view
    return values if values.dtype != torch.bool or is_traced() else values.view(torch.uint8)


def as_numbers(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Spikes or values in a dtype, themselves where they are so.

    Args:
        values: of any dtype.
        dtype: a floating-point dtype.

    Example:
        >>> import torch
        >>> as_numbers(torch.tensor([True, False]), torch.float32)
        tensor([1., 0.])
    """
    return as_bytes(values).to(dtype)

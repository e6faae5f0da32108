"""The dtypes in which spikes and values are computed."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from lightning_accum._compat.torch_internals import is_traced


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Returns float32, or ``dtype`` if it is wider or complex."""
    return torch.promote_types(dtype, torch.float32)


def widened(values: Tensor) -> Tensor:
    """Converts values to float32, unless their dtype is wider already."""
    return values.to(at_least_float32(values.dtype))


def as_bytes(values: Tensor) -> Tensor:
    """Views booleans as bytes of 0 and 1, without a copy; returns other values unchanged."""
    # vmap does not support this view
    return values if values.dtype != torch.bool or is_traced() else values.view(torch.uint8)


def as_numbers(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Converts spikes or values to a floating-point dtype, without a copy if they have it."""
    return as_bytes(values).to(dtype)


def in_full_precision(device: str) -> AbstractContextManager[object]:
    """Suspends the autocast of a mixed-precision step on a type of device, such as ``"cpu"``."""
    narrowed = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if narrowed else nullcontext()

"""The dtypes in which spikes and values are computed, and the comparison of values."""

from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

import torch
from torch import Tensor

from lightning_accum._compat.torch import is_traced

SAMPLE = 1 << 16  # the largest number of weights in a sample

Fingerprint: TypeAlias = tuple[Tensor, Tensor]  # the norm and the sum of a tensor


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


def sample_of(value: Tensor, most: int = SAMPLE) -> Tensor:
    """Returns all values of a tensor, or an evenly spaced sample of many, as a view if possible."""
    return value.reshape(-1)[:: -(-value.numel() // most) or 1]


def fingerprint(values: Tensor) -> Fingerprint:
    """Returns the norm and the sum of values, one of which changes with any value."""
    # in float64 where the device has it, without waiting for the device
    wide = values.to(torch.float32 if values.device.type == "mps" else torch.float64)
    norm: Tensor = torch.linalg.vector_norm(wide)
    return norm, wide.sum()


def same_fingerprints(first: Fingerprint, second: Fingerprint, equal_nan: bool = False) -> bool:
    """Returns whether two fingerprints are equal; waits for the device."""
    pairs = zip(first, second, strict=True)
    return all(torch.allclose(a, b, rtol=0.0, atol=0.0, equal_nan=equal_nan) for a, b in pairs)


def relative_distance(value: Tensor, other: Tensor) -> Tensor:
    """Returns the norm of a difference as a share of that of ``other``; not finite if it is 0."""
    wide = widened(other)
    distance: Tensor = torch.linalg.vector_norm(widened(value) - wide)
    size: Tensor = torch.linalg.vector_norm(wide)
    return distance / size


def rounding(dtype: torch.dtype) -> float:
    """Returns the largest relative distance that is taken for rounding."""
    # 0 below 32 bits: there, a few updates do not change weights by more than they round
    return 2 * torch.finfo(dtype).eps if dtype in (torch.float32, torch.float64) else 0.0

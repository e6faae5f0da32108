"""The dtypes in which spikes and values are computed."""

from __future__ import annotations

from typing import TypeAlias

import torch
from torch import Tensor

from lightning_accum._compat import is_traced

SAMPLE = 1 << 16
"""The largest number of weights in a sample."""

Fingerprint: TypeAlias = tuple[Tensor, Tensor]
"""The norm and the sum of a tensor."""


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """Returns float32, or ``dtype`` if it is wider or complex.

    Args:
        dtype: the dtype of a parameter or of values.

    Example:
        >>> import torch
        >>> at_least_float32(torch.bfloat16), at_least_float32(torch.float64)
        (torch.float32, torch.float64)
    """
    return torch.promote_types(dtype, torch.float32)


def widened(values: Tensor) -> Tensor:
    """Converts values to float32, unless their dtype is wider already.

    Args:
        values: a tensor of any dtype.

    Example:
        >>> import torch
        >>> widened(torch.tensor([True, False]))
        tensor([1., 0.])
    """
    return values.to(at_least_float32(values.dtype))


def is_narrowed(device: str) -> bool:
    """Returns whether autocast narrows operations on a type of device, such as ``"cpu"``."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def sample_of(value: Tensor, most: int = SAMPLE) -> Tensor:
    """Returns all values of a tensor, or an evenly spaced sample of many, as a view if possible.

    Args:
        value: the tensor.
        most: the largest number of values in a sample.

    Example:
        >>> import torch
        >>> sample_of(torch.ones(1000, 1000)).shape
        torch.Size([62500])
    """
    return value.reshape(-1)[:: -(-value.numel() // most) or 1]


def fingerprint(values: Tensor) -> Fingerprint:
    """Returns the norm and the sum of values, one of which changes with any value.

    Both are computed in float64 where the device has it, without waiting for the device.

    Args:
        values: a tensor of any dtype.

    Example:
        >>> import torch
        >>> [float(each) for each in fingerprint(torch.tensor([3.0, 4.0]))]
        [5.0, 7.0]
    """
    wide = values.to(torch.float32 if values.device.type == "mps" else torch.float64)
    norm: Tensor = torch.linalg.vector_norm(wide)
    return norm, wide.sum()


def same_fingerprints(first: Fingerprint, second: Fingerprint, equal_nan: bool = False) -> bool:
    """Returns whether two fingerprints are equal; waits for the device.

    Args:
        first: one fingerprint.
        second: the other one.
        equal_nan: whether NaN equals NaN.

    Example:
        >>> import torch
        >>> same_fingerprints(fingerprint(torch.ones(2)), fingerprint(torch.ones(3)))
        False
    """
    pairs = zip(first, second, strict=True)
    return all(torch.allclose(a, b, rtol=0.0, atol=0.0, equal_nan=equal_nan) for a, b in pairs)


def relative_distance(value: Tensor, other: Tensor) -> Tensor:
    """Returns the norm of a difference as a share of that of the other tensor.

    Args:
        value: one tensor.
        other: the other one; the distance is not finite if it is zero.

    Example:
        >>> import torch
        >>> relative_distance(torch.tensor([3.0, 5.0]), torch.tensor([3.0, 4.0]))
        tensor(0.2000)
    """
    wide = widened(other)
    distance: Tensor = torch.linalg.vector_norm(widened(value) - wide)
    size: Tensor = torch.linalg.vector_norm(wide)
    return distance / size


def rounding(dtype: torch.dtype) -> float:
    """Returns the largest relative distance that is taken for rounding.

    It is 0 below 32 bits: there, a few updates do not change weights by more than they round.

    Args:
        dtype: the dtype of the tensors.

    Example:
        >>> import torch
        >>> rounding(torch.float32) > rounding(torch.float64) > rounding(torch.bfloat16) == 0
        True
    """
    return 2 * torch.finfo(dtype).eps if dtype in (torch.float32, torch.float64) else 0.0


def as_bytes(values: Tensor) -> Tensor:
    """Views booleans as bytes of 0 and 1, without a copy.

    Args:
        values: a tensor of any dtype; all but booleans are returned unchanged.

    Example:
        >>> import torch
        >>> as_bytes(torch.tensor([True, False]))
        tensor([1, 0], dtype=torch.uint8)
    """
    # vmap does not support this view
    return values if values.dtype != torch.bool or is_traced() else values.view(torch.uint8)


def as_numbers(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Converts spikes or values to a dtype.

    Args:
        values: a tensor of any dtype; it is returned itself if it has ``dtype`` already.
        dtype: a floating-point dtype.

    Example:
        >>> import torch
        >>> as_numbers(torch.tensor([True, False]), torch.float32)
        tensor([1., 0.])
    """
    return as_bytes(values).to(dtype)

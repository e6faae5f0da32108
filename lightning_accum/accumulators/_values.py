"""Conversions of values to tensors, and the check of their shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_accum._metric import has_double, representable

_DOUBLE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_KEPT = {*_DOUBLE, *_DOUBLE.values()}
#: The dtypes that values are converted to.
STREAMED = {torch.int64, *_KEPT}


def double(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Returns the dtype of sums of a dtype, which is double precision if the device has it."""
    return _DOUBLE.get(dtype, dtype) if has_double(device) else dtype


def wide(value: Any, device: torch.device, integers: torch.dtype | None = None) -> Tensor:
    """Returns the value as a tensor without a graph, in at least single precision.

    Args:
        value: a tensor, a number, or another argument of ``torch.as_tensor``.
        device: device of a value that is not a tensor.
        integers: dtype of integers and booleans; by default floats of double precision.
    """
    tensor = value.detach() if isinstance(value, Tensor) else as_tensor("value", value, device)
    if tensor.dtype not in _KEPT:
        if tensor.is_floating_point():
            tensor = tensor.float()
        elif tensor.is_complex():
            tensor = tensor.to(torch.complex64)
        else:
            tensor = tensor.to(integers or double(torch.float32, tensor.device))
    return tensor


def as_tensor(name: str, value: Any, device: torch.device) -> Tensor:
    """Returns an argument of ``torch.as_tensor`` as a tensor; floats of Python become double.

    Args:
        name: name of the argument, for the message.
        value: a number, an array or a sequence.
        device: device of the tensor.

    Raises:
        TypeError: if torch cannot make a tensor of it.
    """
    try:
        tensor = torch.as_tensor(value, device="cpu")
        if tensor.dtype in _DOUBLE and not isinstance(value, np.ndarray | np.generic):
            tensor = torch.as_tensor(value, dtype=_DOUBLE[tensor.dtype], device="cpu")
    except (TypeError, RuntimeError, OverflowError, ValueError) as error:
        raise TypeError(
            f"Argument `{name}` should be a tensor or a number. Found `{type(value).__name__}`:"
            f" {error}."
        ) from None
    return representable(tensor, device).to(device)


def check_shape(owner: str, value: Tensor, before: Tensor) -> None:
    """Raises a ``ValueError`` if a value has another shape than the values before."""
    if value.shape != before.shape:
        raise ValueError(
            f"Argument `value` should have shape {tuple(before.shape)}, as before. Found"
            f" `value.shape = {tuple(value.shape)}`: keep one `{owner}` for each shape, reset it,"
            " or reduce ragged batches to one value each."
        )

"""Memory that reducers write to, in inference mode and outside it."""

from __future__ import annotations

import torch
from torch import Tensor


def allocate(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns an uninitialized tensor that may be written to in inference mode and outside it.

    Args:
        shape: shape of the tensor.
        dtype: dtype of the tensor.
        device: device of the tensor.

    Example:
        >>> import torch
        >>> with torch.inference_mode():
        ...     memory = allocate((2,), torch.float32, torch.device("cpu"))
        >>> memory.zero_()
        tensor([0., 0.])
    """
    with torch.inference_mode(False):
        return torch.empty(shape, dtype=dtype, device=device)

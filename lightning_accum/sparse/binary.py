"""The number of spikes in activity that should be 0 or 1, in one fast pass."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lightning_accum.sparse.kernel_search import count_ones

# A chunk stays in cache between the passes over it, and its sum is exact in single precision.
_CHUNK = 1 << 16


def count_spikes(activity: Tensor) -> int | None:
    """Returns how many elements are 1, or ``None`` if any element is neither 0 nor 1.

    The plain form is ``activity.sum()`` if ``((activity == 0) | (activity == 1)).all()``.

    Args:
        activity: real numbers of any shape, on the CPU.

    Example:
        >>> import torch
        >>> count_spikes(torch.tensor([0.0, 1.0, 1.0])), count_spikes(torch.tensor([1.0, 0.5]))
        (2, None)
    """
    found = count_ones(activity)
    if found is not None:
        return None if found < 0 else found
    total = 0
    dtype = torch.float64 if activity.dtype == torch.float64 else torch.float32
    for chunk in activity.reshape(-1).split(_CHUNK):
        values = chunk.to(dtype)
        count = int(np.count_nonzero(values.bool().numpy()))
        # If n numbers are not zero, and both they and their squares sum to n, all of them are 1.
        if not values.sum() == torch.dot(values, values) == count:
            return None
        total += count
    return total

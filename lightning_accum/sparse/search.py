"""Finds the non-zero entries of a raster, and puts them in order.

The compiled kernel does it where there is one. Without, on the CPU, NumPy searches booleans,
sorts small integers, and divides integers by one integer, all of which it does faster than torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_accum._checks import check_matrix
from lightning_accum._compat import is_traced
from lightning_accum.sparse import kernel_search

# Entries from which, and density up to which, a search by words of eight entries is faster.
_MANY, _RARE = 1 << 18, 0.15
_ROWS = 64  # of a raster, at most, in which its density is counted


def density(raster: Tensor) -> float:
    """Returns the share of non-zero entries, estimated from rows spread over the raster.

    Args:
        raster: ``[K, N]``.

    Example:
        >>> import torch
        >>> density(torch.eye(4))
        0.25
    """
    check_matrix("raster", raster)
    if raster.numel() == 0:
        return 0.0
    sample = raster[:: -(-raster.shape[0] // _ROWS)]
    if sample.is_cpu and sample.dtype == torch.bool and not is_traced():
        return np.count_nonzero(sample.numpy()) / sample.numel()
    return sample.count_nonzero().item() / sample.numel()


def find(raster: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns the row and the column of each non-zero entry, in the order of rows.

    The third tensor is the place of each row's first entry if it is known; see `first_of_each`. The
    plain form is ``raster.nonzero().unbind(1)``.

    Args:
        raster: ``[K, E]``.
    """
    found = kernel_search.find_events(raster)
    if found is not None:
        return found
    whole = raster.is_cpu and raster.is_contiguous() and raster.numel() < 2**31
    if raster.dtype != torch.bool or not whole or is_traced():
        rows, columns = raster.nonzero().unbind(1)
        return rows, columns, None
    flat: Any = raster.view(-1).numpy()
    wordy = len(flat) > _MANY and density(raster) < _RARE
    place = (_by_words(flat) if wordy else np.flatnonzero(flat)).astype(np.int32, copy=False)
    width = np.int32(max(1, raster.shape[1]))
    rows = place // width
    return torch.from_numpy(rows), torch.from_numpy(place - rows * width), None


def _by_words(flat: Any) -> Any:
    """Returns the true entries, which are searched for only in words of eight that hold any."""
    end = len(flat) // 8 * 8
    words = flat[:end].view(np.int64)
    at = np.flatnonzero(words != 0)
    found = np.flatnonzero(words.take(at).view(np.bool_)).astype(np.int32)
    place = (8 * at.astype(np.int32)).take(found >> 3)
    place += found & 7
    return np.concatenate([place, (np.flatnonzero(flat[end:]) + end).astype(np.int32)])


def stable_order(columns: Tensor, count: int) -> Tensor:
    """Returns the permutation that sorts events by column, and keeps the order within a column.

    The plain form is ``torch.sort(columns, stable=True)[1]``.

    Args:
        columns: ``[events]`` the column of each event.
        count: the number of columns.
    """
    if columns.is_cpu and count <= 1 << 16 and not is_traced():
        return torch.from_numpy(np.argsort(columns.numpy().astype(np.uint16), kind="stable"))
    return torch.sort(columns, stable=True)[1]


def first_of_each(ordered: Tensor, count: int) -> Tensor:
    """Returns ``[count]``, the place of the first event of each row or column.

    Args:
        ordered: ``[events]`` rows or columns in increasing order.
        count: the number of rows or columns.
    """
    starts = kernel_search.first_places(ordered, count)
    if starts is not None:
        return starts
    every = torch.arange(count, dtype=ordered.dtype, device=ordered.device)
    return torch.searchsorted(ordered, every, out_int32=ordered.dtype == torch.int32)

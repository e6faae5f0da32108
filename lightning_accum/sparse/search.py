"""Finds, orders and counts spikes, by the compiled kernel where there is one."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lightning_accum._compat.torch import is_traced
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.kernel_library import Int, pointer, pointers

AT_ONCE = 4  # events that the kernel writes at a time
USUAL = 8  # entries for each event that there is room for at first

_ROWS = 64  # of a raster, at most, in which its density is counted


def count_ones(values: Tensor) -> int | None:
    """Returns how many values are 1, -1 if any is neither 0 nor 1; ``None`` without a kernel."""
    kernel = library.kernel_for(values.dtype) if library.is_plain(values) else None
    return None if kernel is None else int(kernel.count_ones(pointer(values), Int(values.numel())))


def order_events(
    rows: Tensor, columns: Tensor, count: int, order: bool
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Returns rows in the order of columns, each column's first place, and the order if wanted."""
    both = library.are_places(rows, columns) and rows.shape == columns.shape
    kernel = library.kernel_for(torch.float32) if both else None
    if kernel is None:
        return None
    ordered, starts = torch.empty_like(rows), torch.empty(count, dtype=torch.int32)
    permutation = torch.empty_like(rows) if order else None
    places = pointers(ordered, starts, permutation)
    sizes = Int(len(rows)), Int(count)
    library.check_done(kernel.order_events(pointer(rows), pointer(columns), *sizes, *places))
    return ordered, starts, permutation


def density(raster: Tensor) -> float:
    """Returns the share of non-zero entries, estimated from rows spread over the raster."""
    if raster.numel() == 0:
        return 0.0
    sample = raster[:: -(-raster.shape[0] // _ROWS)]
    if sample.is_cpu and sample.dtype == torch.bool and not is_traced():
        return np.count_nonzero(sample.numpy()) / sample.numel()
    return sample.count_nonzero().item() / sample.numel()


def find(raster: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns the row and the column of each non-zero entry, in the order of rows."""
    # The third tensor is the place of each row's first entry if it is known; see `first_of_each`.
    # The plain form is `raster.nonzero().unbind(1)`.
    fits = raster.dtype == torch.bool and raster.ndim == 2 and library.is_plain(raster)
    kernel = library.kernel_for(torch.float32) if fits and raster.numel() < 2**31 else None
    if kernel is not None:
        starts, room = torch.empty(len(raster), dtype=torch.int32), raster.numel() // USUAL
        threads = Int(max(1, library.threads_among(len(raster), raster.numel() // 8)))
        while True:  # a second time if there are more than usual
            row, column = torch.empty(2, room + AT_ONCE, dtype=torch.int32).unbind(0)
            places = *pointers(row, column, starts), Int(room), threads
            count = kernel.find_events(pointer(raster), *map(Int, raster.shape), *places)
            if count <= room:
                return row[:count], column[:count], starts
            room = count
    rows, columns = raster.nonzero().unbind(1)
    return rows, columns, None


def first_of_each(ordered: Tensor, count: int) -> Tensor:
    """Returns ``[count]``, the place of the first event of each row or column."""
    every = torch.arange(count, dtype=ordered.dtype, device=ordered.device)
    return torch.searchsorted(ordered, every, out_int32=ordered.dtype == torch.int32)


def count_spikes(activity: Tensor) -> int | None:
    """Returns how many elements are 1, or ``None`` if any element is neither 0 nor 1."""
    # The plain form is `activity.sum()` if `((activity == 0) | (activity == 1)).all()`.
    found = count_ones(activity)
    if found is None:
        binary = bool(((activity == 0) | (activity == 1)).all())
        return int(activity.count_nonzero()) if binary else None
    return None if found < 0 else found

"""The kernel's search for the events of a raster."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum.sparse.compiled import (
    At,
    Int,
    are_places,
    check_done,
    is_plain,
    kernel_for,
    pointer,
)

_AT_ONCE = 4  # events that are written at a time


def find_events(raster: Tensor) -> tuple[Tensor, Tensor] | None:
    """Returns the row and the column of each true entry of ``[K, E]``, in the order of rows."""
    if not (raster.dtype == torch.bool and is_plain(raster)) or raster.numel() >= 2**31:
        return None
    kernel = kernel_for(torch.float32)
    if kernel is None:
        return None
    (rows, columns), data = raster.shape, At(raster.data_ptr())
    count = kernel.count_events(data, Int(rows * columns))
    found = torch.empty(2, count + _AT_ONCE, dtype=torch.int32)
    row, column = found.unbind(0)
    shape = Int(rows), Int(columns)
    count = kernel.find_events(data, *shape, pointer(row), pointer(column), Int(count))
    return row[:count], column[:count]


def count_events(values: Tensor) -> Tensor:
    """Returns the number of non-zero values, without waiting for a device.

    The plain form is ``values.count_nonzero()``, which takes ten times as long.

    Args:
        values: any shape.
    """
    fits = values.dtype == torch.bool and is_plain(values)
    kernel = kernel_for(torch.float32) if fits else None
    if kernel is None:
        return values.count_nonzero()
    return torch.tensor(kernel.count_events(pointer(values), Int(values.numel())))


def count_ones(values: Tensor) -> int | None:
    """Returns how many values are 1, -1 if any is neither 0 nor 1; ``None`` without a kernel."""
    kernel = kernel_for(values.dtype) if is_plain(values) else None
    return None if kernel is None else int(kernel.count_ones(pointer(values), Int(values.numel())))


def first_places(ordered: Tensor, count: int) -> Tensor | None:
    """Returns ``[count]``, the place of the first event of each row."""
    kernel = kernel_for(torch.float32) if are_places(ordered) else None
    if kernel is None:
        return None
    starts = torch.empty(count, dtype=torch.int32)
    kernel.first_places(pointer(ordered), Int(len(ordered)), Int(count), pointer(starts))
    return starts


def order_events(rows: Tensor, columns: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor] | None:
    """Returns rows in the order of columns, each column's first place, and the order.

    Raises:
        IndexError: if an event is in none of the columns.
    """
    both = are_places(rows) and are_places(columns) and rows.shape == columns.shape
    kernel = kernel_for(torch.float32) if both else None
    if kernel is None:
        return None
    ordered, order = torch.empty(2, len(rows), dtype=torch.int32).unbind(0)
    starts = torch.empty(count, dtype=torch.int32)
    places = map(pointer, (ordered, starts, order))
    sizes = Int(len(rows)), Int(count)
    check_done(kernel.order_events(pointer(rows), pointer(columns), *sizes, *places))
    return ordered, starts, order

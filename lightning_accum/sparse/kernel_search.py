"""The kernel's search for the events of a raster."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum.sparse.compiled import (
    Int,
    are_places,
    check_done,
    is_plain,
    kernel_for,
    pointer,
)

AT_ONCE = 4
"""Events that the kernel writes at a time."""
USUAL = 8
"""Entries for each event that there is room for at first."""


def find_events(raster: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Returns the row and the column of each true entry of ``[K, E]``, in the order of rows.

    It also returns ``[K]``, the place of each row's first entry.
    """
    fits = raster.dtype == torch.bool and raster.ndim == 2 and is_plain(raster)
    kernel = kernel_for(torch.float32) if fits and raster.numel() < 2**31 else None
    if kernel is None:
        return None
    starts, room = torch.empty(len(raster), dtype=torch.int32), raster.numel() // USUAL
    while True:  # a second time if there are more than usual
        row, column = torch.empty(2, room + AT_ONCE, dtype=torch.int32).unbind(0)
        places = map(pointer, (row, column, starts))
        count = kernel.find_events(pointer(raster), *map(Int, raster.shape), *places, Int(room))
        if count <= room:
            return row[:count], column[:count], starts
        room = count


def count_events(values: Tensor) -> Tensor | int:
    """Returns the number of non-zero values, without waiting for a device.

    The plain form is ``values.count_nonzero()``, which takes longer.

    Args:
        values: any shape.
    """
    fits = values.dtype == torch.bool and is_plain(values)
    kernel = kernel_for(torch.float32) if fits else None
    if kernel is None:
        return values.count_nonzero()
    return int(kernel.count_events(pointer(values), Int(values.numel())))


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


def last_trace(
    rows: Tensor, columns: Tensor, left: Tensor, nearest: bool, initial: Tensor
) -> Tensor | None:
    """Returns ``[B, E]``, the trace after the last step.

    Args:
        rows: ``[events]`` the row of each event in ``[T * B, E]``, in order.
        columns: ``[events]`` the column of each event.
        left: ``[T]`` what the trace has left of a spike in each step.
        nearest: whether a spike replaces what is left of earlier ones.
        initial: ``[B, E]`` what is left of the trace before the first step.

    Raises:
        IndexError: if an event is outside.
    """
    both = are_places(rows) and are_places(columns) and rows.shape == columns.shape
    fits = both and initial.is_cpu and initial.ndim == 2 and left.ndim == 1
    kernel = kernel_for(initial.dtype) if fits else None
    if kernel is None:
        return None
    x = initial.clone(memory_format=torch.contiguous_format)
    left = left.to("cpu", initial.dtype).contiguous()
    sizes = map(Int, (len(rows), len(left), *x.shape))
    places = pointer(rows), pointer(columns)
    check_done(kernel.last_trace(*places, *sizes, pointer(left), Int(nearest), pointer(x)))
    return x


def order_events(
    rows: Tensor, columns: Tensor, count: int, order: bool
) -> tuple[Tensor, Tensor, Tensor | None] | None:
    """Returns rows in the order of columns, each column's first place, and the order if wanted.

    Raises:
        IndexError: if an event is in none of the columns.
    """
    both = are_places(rows) and are_places(columns) and rows.shape == columns.shape
    kernel = kernel_for(torch.float32) if both else None
    if kernel is None:
        return None
    ordered, starts = torch.empty_like(rows), torch.empty(count, dtype=torch.int32)
    permutation = torch.empty_like(rows) if order else None
    places = map(pointer, (ordered, starts, permutation))
    sizes = Int(len(rows)), Int(count)
    check_done(kernel.order_events(pointer(rows), pointer(columns), *sizes, *places))
    return ordered, starts, permutation

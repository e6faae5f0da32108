"""The events of a raster, found, counted and ordered; their recording and traces."""

from __future__ import annotations

import ctypes

import numpy as np
import torch
from torch import Tensor, nn

from lightning_accum._checks import check_matrix
from lightning_accum._compat.torch_internals import is_traced
from lightning_accum.functional.traces import TraceMode, decays_to_the_end
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.kernel_library import At, Int, arguments, fields

AT_ONCE = 4  # events that the kernel writes at a time
USUAL = 8  # entries for each event that there is room for at first

_ROWS = 64  # of a raster, at most, in which its density is counted
_FEWEST_ROWS, _MOST_SPIKES = 64, 0.33  # with fewer rows, or more spikes, a dense product is faster


class Events:
    """The events of a raster, ordered by rows and by columns."""

    _by_column: tuple[Tensor, Tensor, Tensor | None] | None = None

    def __init__(self, raster: Tensor) -> None:
        if not isinstance(raster, Tensor) or raster.ndim != 2:
            check_matrix("raster", raster)
        rows, columns, starts = find(raster)
        # sums read half as much memory
        dtype = torch.int32 if max(raster.shape) < 2**31 else torch.int64
        rows, columns = rows.to(dtype).contiguous(), columns.to(dtype).contiguous()
        self.rows, self.columns, self.shape = rows, columns, tuple(raster.shape)
        self._row_starts = starts

    @classmethod
    def known(
        cls, rows: Tensor, columns: Tensor, starts: Tensor | None, shape: tuple[int, int]
    ) -> Events:
        """Returns the events of a raster in which they have been found."""
        events = cls.__new__(cls)
        events.rows, events.columns, events.shape = rows, columns, shape
        events._row_starts = starts
        return events

    def __len__(self) -> int:
        return len(self.rows)

    def row_starts(self) -> Tensor:
        """Returns ``[K]``, the place of each row's first event in the order of rows."""
        if self._row_starts is None:
            self._row_starts = first_of_each(self.rows, self.shape[0])
        return self._row_starts.clone()  # kernels read memory at the original

    def ordered(self) -> tuple[Tensor, Tensor]:
        """Returns rows and each column's first place, in the order of columns, to be read only."""
        rows, starts, _ = self._by_column or self._sort(order=False)
        return rows, starts

    def order(self) -> Tensor:
        """Returns ``[events]``, the permutation from the order of rows to the order of columns."""
        order = None if self._by_column is None else self._by_column[2]
        if order is None:
            order = self._sort(order=True)[2]
            assert order is not None
        return order

    def _sort(self, order: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Sorts by column; in a stable order, sums do not depend on how spikes were found."""
        rows, columns, count = self.rows, self.columns, self.shape[1]
        both = library.are_places(rows, columns) and rows.shape == columns.shape
        kernel = library.kernel_for(torch.float32) if both else None
        found: tuple[Tensor, Tensor, Tensor | None]
        if kernel is None:
            inorder, places = torch.sort(columns, stable=True)
            found = rows[places], first_of_each(inorder, count), places
        else:
            starts, permutation = torch.empty(count, dtype=torch.int32), torch.empty_like(rows)
            found = torch.empty_like(rows), starts, permutation if order else None
            values = arguments(rows, columns, len(rows), count, *found)
            library.check_done(kernel.order_events(*values))
        self._by_column = found
        return found

    def weights(self, values: Tensor) -> Tensor:
        """Returns the value of each event in the order of columns, of those of rows or a raster."""
        if values.ndim > 1:
            values = values.flatten()[self.rows.long() * self.shape[1] + self.columns]
        return values[self.order()]

    def part(self, start: int, stop: int) -> Events:
        """Returns the events of some rows, which are then numbered from zero."""
        starts, end = self.row_starts(), len(self)
        first, last = (int(starts[k]) if k < len(starts) else end for k in (start, stop))
        rows, columns = self.rows[first:last] - start, self.columns[first:last]
        return Events.known(
            rows, columns, starts[start:stop] - first, (stop - start, self.shape[1])
        )


def density(raster: Tensor) -> float:
    """Returns the share of non-zero entries, estimated from rows spread over the raster."""
    if raster.numel() == 0:
        return 0.0
    sample = raster[:: -(-raster.shape[0] // _ROWS)]
    if sample.is_cpu and sample.dtype == torch.bool and not is_traced():
        return np.count_nonzero(sample.numpy()) / sample.numel()
    return sample.count_nonzero().item() / sample.numel()


def events_pay(raster: Tensor, weight: Tensor) -> bool:
    """Returns whether a product of a raster with weights takes less time by events than dense."""
    # Elsewhere than on the CPU, counting events would wait for the device.
    if raster.dtype != torch.bool or not raster.is_cpu or torch.is_autocast_enabled("cpu"):
        return False
    # A subclass of a tensor computes the product in its own way.
    if type(weight) not in (Tensor, nn.Parameter) or library.kernel_for(weight.dtype) is None:
        return False
    return len(raster) >= _FEWEST_ROWS and density(raster) <= _MOST_SPIKES


def find(raster: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Returns the row and the column of each non-zero entry, in the order of rows."""
    # The third tensor is the place of each row's first entry if it is known; see `first_of_each`.
    # The plain form is `raster.nonzero().unbind(1)`.
    fits = raster.dtype == torch.bool and raster.ndim == 2 and library.is_plain(raster)
    kernel = library.kernel_for(torch.float32) if fits and raster.numel() < 2**31 else None
    if kernel is not None:
        starts, room = torch.empty(len(raster), dtype=torch.int32), raster.numel() // USUAL
        threads = library.threads_among(len(raster), raster.numel() // 8)
        while True:  # a second time if there are more than usual
            row, column = torch.empty(2, room + AT_ONCE, dtype=torch.int32).unbind(0)
            values = arguments(raster, *raster.shape, row, column, starts, room, threads)
            count = kernel.find_events(*values)
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
    kernel = library.kernel_for(activity.dtype) if library.is_plain(activity) else None
    if kernel is None:
        binary = bool(((activity == 0) | (activity == 1)).all())
        return int(activity.count_nonzero()) if binary else None
    found = int(kernel.count_ones(*arguments(activity, activity.numel())))
    return None if found < 0 else found


class _Record(ctypes.Structure):
    _fields_ = (*fields(At, "raster rows columns starts"), *fields(Int, "B E room count steps"))


class SpikeRows:
    """The rows of a raster into which steps of spikes are written."""

    # The plain form of `write(i, step)` is `raster[i].copy_(step)`, and `count_spikes` of the step;
    # that of `events(n)` is `Events(raster[:n].flatten(0, -2))`.

    def __init__(self, raster: Tensor, dtype: torch.dtype) -> None:
        fits = raster.dtype == torch.bool and raster.ndim > 1 and library.is_plain(raster)
        kernel = library.kernel_for(dtype) if fits and raster.numel() < 2**31 else None
        self.exist = kernel is not None
        self.dtype = dtype
        if kernel is not None:
            self._raster = raster
            self._length, self._shape = len(raster), raster.shape[1:]
            samples, room = self._shape[:-1].numel(), raster.numel() // USUAL
            sizes = 2 * [room + AT_ONCE] + [self._length * samples]
            self._memory = torch.empty(sum(sizes), dtype=torch.int32)
            *self._events, self._starts = self._memory.split(sizes)
            self._record = _Record(B=samples, E=self._shape[-1], room=room)
            self._places: tuple[int, int] | None = None
            self._at = At(ctypes.addressof(self._record))

    def write(self, row: int, step: Tensor) -> int | None:
        """Keeps a step, and returns how many spikes it has; row 0 begins a new window of events."""
        # `None` if there is no kernel for the step, or no such row; -1 if any value is neither 0
        # nor 1, and the row is then undefined.
        if not self.exist or not 0 <= row < self._length or step.dtype is not self.dtype:
            return None
        kernel = library.kernel_for(self.dtype)
        if kernel is None or not library.is_plain(step) or step.shape != self._shape:
            return None
        places = self._raster.data_ptr(), self._memory.data_ptr()
        if places != self._places:  # as `share_memory_` of a window moves it
            record, self._places = self._record, places
            found = arguments(self._raster, *self._events, self._starts)
            record.raster, record.rows, record.columns, record.starts = found
        count: int = kernel.record_step(self._at, *arguments(step, row))
        return count

    def forget(self) -> None:
        """Drops the events."""
        if self.exist:
            self._record.steps = -1

    def events(self, rows: int) -> Events | None:
        """Returns the events of the first rows, ``None`` if they are unknown or more than usual."""
        # They share memory with those of the next window.
        if not self.exist or self._record.steps != rows or self._record.count > self._record.room:
            return None
        raster, count = self._raster[:rows].flatten(0, -2), self._record.count
        found, columns = (each[:count] for each in self._events)
        shape = len(raster), raster.shape[1]
        return Events.known(found, columns, self._starts[: len(raster)], shape)


def last_trace_of_events(
    events: Events,  # the events of the activity as [K, neurons]
    shape: torch.Size,  # the shape of the activity, [T, ..., neurons]
    decay: float,  # the share that is left after one step
    mode: TraceMode,  # the mode of the trace
    initial: Tensor | None,  # [..., neurons] the trace before the first step
    dtype: torch.dtype,  # the dtype of the trace
) -> Tensor | None:
    """Returns the last step of an exponential trace of spikes; ``None`` without a kernel."""
    # The plain form is `last_trace`.
    steps, state = shape[0], shape[1:]
    left = decays_to_the_end(decay, steps, events.rows.device)
    before = torch.zeros(state, dtype=dtype, device=left.device)
    if initial is not None:
        before += initial * decay**steps
    rows, columns = events.rows, events.columns
    fits = library.are_places(rows, columns) and rows.shape == columns.shape
    kernel = library.kernel_for(dtype) if fits else None
    if kernel is None:
        return None
    sizes, left = (len(rows), steps, state[:-1].numel(), state[-1]), left.to(dtype).contiguous()
    values = arguments(rows, columns, *sizes, left, mode == "nearest", before)
    library.check_done(kernel.last_trace(*values))
    return before


def trace_before_events(
    events: Events, shape: torch.Size, decay: float, initial: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """Returns ``[events]``, the nearest trace just before each spike of ``[T, ..., neurons]``."""
    neurons, size = shape[-1], shape[1:].numel()
    rows = max(1, size // max(1, neurons))
    step = torch.div(events.rows, rows, rounding_mode="floor").long()
    place = (events.rows - step * rows) * neurons + events.columns  # among those of all samples
    place, order = torch.sort(place, stable=True)  # those of one place stay in the order of time
    step = step[order]
    since, first = torch.ones_like(step), torch.ones_like(step, dtype=torch.bool)
    torch.sub(step[1:], step[:-1], out=since[1:])
    torch.ne(place[1:], place[:-1], out=first[1:])
    left = (decay ** since.to(dtype)).masked_fill_(first, 0)
    if initial is not None:
        begun = initial.reshape(-1)[place].to(dtype) * decay ** (step + 1).to(dtype)
        left = torch.where(first, begun, left)
    return torch.empty_like(left).scatter_(0, order, left)

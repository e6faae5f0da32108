"""The kernel's changes by pairs of spikes."""

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import Self

from lightning_accum.functional.kernels import Coefficients
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.kernel_library import At, Int, Real, Scratch, arguments, fields


class LatestSpikes(NamedTuple):
    """The side of the latest spikes."""

    spikes: Tensor  # [T, B, ..., D]
    before: Tensor | None  # [B, ..., D] steps since the latest spike before the first step, or inf
    last: Tensor  # [B, ..., D] receives the same of the last step


class Visit(NamedTuple):
    """How the spikes of one side visit the latest ones of the other side."""

    dt: float  # what a step adds to the difference of time; negative if post spikes are latest
    least: int  # the least number of steps since the latest spike that makes a pair
    # the change for a difference of time, or a table by steps, whose last is for those farther
    change: Coefficients | Tensor
    by_spike: bool  # whether a row of the sum belongs to spikes of the visiting side


class _Change(ctypes.Structure):
    _fields_ = *fields(Real * 2, "a l"), *fields(Real, "c offset"), ("table", At), ("length", Int)

    @classmethod
    def of(cls, change: Coefficients | Tensor, delayed: bool, dtype: torch.dtype) -> Self | None:
        """Returns a change as C has it; ``None`` for a table that it cannot read."""
        made = cls()
        if not isinstance(change, Tensor):
            made.a[:], made.l[:] = change.heights, change.slopes
            made.c, made.offset = change.curve, change.offset
            return made
        # places in the table are exact in float32
        fits = not delayed and 0 < change.numel() < 2**24
        if not fits or not library.are_values(dtype, (change, (change.numel(),))):
            return None
        made.table, made.length = arguments(change, len(change))
        return made


def pair_events(
    up: Tensor,  # receives the sum of positive changes, [E, D] if it is by spike, otherwise [D, E]
    down: Tensor,  # receives the sum of negative changes, with the sign reversed
    onto: bool,  # whether sums are added to what is there, or replace it
    events: Events,  # the visiting spikes, of a raster [T * B, E]
    latest: LatestSpikes,  # the other side
    visit: Visit,  # how differences of time make changes
    delay: Tensor | None = None,  # is subtracted from the differences of time, of the shape of up
) -> bool:
    """Sums the changes by pairs of each spike with the latest ones; returns if a kernel can."""
    dtype, spikes = up.dtype, latest.spikes
    rows, starts = events.ordered()
    sizes = (len(starts), *spikes.shape[-1:])
    shape = sizes if visit.by_spike else sizes[::-1]
    edges = (latest.last, latest.before)
    values = [*((each, shape) for each in (up, down, delay))]
    values += ((each, spikes.shape[1:]) for each in edges)
    fits = spikes.ndim > 1 and library.are_places(rows, starts)
    fits = fits and library.are_values(torch.bool, (spikes, spikes.shape))
    kernel = library.kernel_for(dtype, *values) if fits else None
    made = _Change.of(visit.change, delay is not None, dtype)
    if kernel is None or made is None:
        return False
    steps, batch, width = spikes.shape[0], spikes.shape[1:-1].numel(), spikes.shape[-1]
    pieces = -(-width * dtype.itemsize // library.COLUMN_BYTES)
    threads = library.threads_among(pieces, (len(rows) + steps * batch) * width // 8)
    index = starts, rows, len(rows), len(starts), steps, batch, width, spikes, *edges[::-1]
    with Scratch() as scratch:
        bits = scratch.empty((pieces, steps * batch), torch.int32, up.device)
        memory = library.work_memory(threads * (steps + 1) * batch * library.COLUMN_BYTES)
        how = float(visit.dt), visit.least, ctypes.byref(made), visit.by_spike, onto
        values = arguments(*index, bits, delay, *how, up, down, memory, threads)
        library.check_done(kernel.pair_events(*values))
    return True

"""The kernel that checks, counts, keeps and searches one step of spikes in one pass."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from lightning_accum.sparse.compiled import At, Int, is_plain, kernel_for, pointer
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.kernel_search import AT_ONCE, USUAL


class _Record(ctypes.Structure):
    _fields_ = (
        *((name, At) for name in ("raster", "rows", "columns", "starts")),
        *((name, Int) for name in ("B", "E", "room", "count", "steps")),
    )  # fmt: skip


class SpikeRows:
    """The rows of a raster into which steps of spikes are written.

    The plain form of ``write(i, step)`` is ``raster[i].copy_(step)``, and
    :func:`~lightning_accum.sparse.binary.count_spikes` of the step; that of ``events(n)`` is
    ``Events(raster[:n].flatten(0, -2))``.

    Args:
        raster: booleans ``[T, B, ..., E]``, whose memory this object writes to.
        dtype: the dtype of the steps.

    Example:
        >>> raster = torch.zeros(2, 3, dtype=torch.bool)
        >>> rows = SpikeRows(raster, torch.float32)
        >>> rows.write(1, torch.tensor([0.0, 1.0, 1.0])) if rows.exist else 2
        2
    """

    def __init__(self, raster: Tensor, dtype: torch.dtype) -> None:
        fits = raster.dtype == torch.bool and raster.ndim > 1 and is_plain(raster)
        kernel = kernel_for(dtype) if fits and raster.numel() < 2**31 else None
        self.exist = kernel is not None
        self.dtype = dtype
        if kernel is not None:
            self._raster = raster
            self._length, self._shape = len(raster), raster.shape[1:]
            samples, room = self._shape[:-1].numel(), raster.numel() // USUAL
            self._events = torch.empty(2, room + AT_ONCE, dtype=torch.int32).unbind(0)
            self._starts = torch.empty(self._length * samples, dtype=torch.int32)
            places = map(pointer, (raster, *self._events, self._starts))
            self._record = _Record(*places, samples, self._shape[-1], room)
            self._at = At(ctypes.addressof(self._record))
            self._write = kernel.record_step

    def write(self, row: int, step: Tensor) -> int | None:
        """Keeps a step, and returns how many spikes it has; ``None`` if it was not written.

        Args:
            row: the number of the row; 0 begins a new window of events.
            step: of the shape of a row.

        Returns:
            The number of spikes; -1 if any value is neither 0 nor 1, and the row is then
            undefined; ``None`` if there is no kernel for the step, or no such row.
        """
        if not self.exist or not 0 <= row < self._length or step.dtype is not self.dtype:
            return None
        if not is_plain(step) or step.shape != self._shape:
            return None
        count: int = self._write(self._at, pointer(step), Int(row))
        return count

    def forget(self) -> None:
        """Drops the events."""
        if self.exist:
            self._record.steps = -1

    def events(self, rows: int) -> Events | None:
        """Returns the events of the first rows, which share memory with those of the next window.

        Args:
            rows: how many of the rows.

        Returns:
            ``None`` if they are not known, because the steps were not written one after the other,
            or because there are more than usual.
        """
        if not self.exist or self._record.steps != rows or self._record.count > self._record.room:
            return None
        raster, count = self._raster[:rows].flatten(0, -2), self._record.count
        found, columns = (each[:count] for each in self._events)
        shape = len(raster), raster.shape[1]
        return Events.known(found, columns, self._starts[: len(raster)], shape)

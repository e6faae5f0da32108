"""The kernel that checks, counts and keeps one step of spikes in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_accum.sparse.compiled import Int, is_plain, kernel_for, pointer


class SpikeRows:
    """The rows of a raster into which steps of spikes are written.

    The plain form of ``write(i, step)`` is ``rows[i].copy_(step)``, and
    :func:`~lightning_accum.sparse.binary.count_spikes` of the step.

    Args:
        rows: tensors of booleans, of one shape, whose memory stays as long as this object is used.
        dtype: the dtype of the steps.

    Example:
        >>> raster = torch.zeros(2, 3, dtype=torch.bool)
        >>> rows = SpikeRows(raster.unbind(0), torch.float32)
        >>> rows.write(1, torch.tensor([0.0, 1.0, 1.0])) if rows.exist else 2
        2
    """

    def __init__(self, rows: Sequence[Tensor], dtype: torch.dtype) -> None:
        fits = bool(rows) and all(row.dtype == torch.bool and is_plain(row) for row in rows)
        kernel = kernel_for(dtype) if fits else None
        self.exist = kernel is not None
        self.dtype = dtype
        if kernel is not None:
            self._rows = rows
            self._shape = rows[0].shape
            self._size = Int(rows[0].numel())
            self._places = [pointer(row) for row in rows]
            self._store = kernel.store_ones

    def write(self, row: int, step: Tensor) -> int | None:
        """Keeps a step, and returns how many spikes it has; ``None`` if it was not written.

        Args:
            row: the number of the row.
            step: of the shape of a row.

        Returns:
            The number of spikes; -1 if any value is neither 0 nor 1, and the row then holds
            nothing that counts; ``None`` if there is no kernel for the step.
        """
        if not self.exist or not is_plain(step):
            return None
        if step.dtype is not self.dtype or step.shape != self._shape:
            return None
        count: int = self._store(pointer(step), self._places[row], self._size)
        return count

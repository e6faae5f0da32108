"""The events of a raster: row and column of each non-zero entry."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum._checks import check_integers, check_matrix
from lightning_accum.sparse.kernel_search import order_events
from lightning_accum.sparse.search import find, first_of_each, stable_order


class Events:
    """The events of a raster, ordered by rows and by columns.

    Args:
        raster: ``[K, E]``; each non-zero entry is one event.

    Attributes:
        rows: ``[events]`` the row of each event, ordered by rows.
        columns: ``[events]`` the column of each event.
        shape: the shape of the raster, ``(K, E)``.

    Example:
        >>> import torch
        >>> events = Events(torch.tensor([[True, False], [True, True]]))
        >>> events.rows.tolist(), events.columns.tolist()
        ([0, 1, 1], [0, 0, 1])
        >>> [part.tolist() for part in events.ordered()]
        [[0, 1, 1], [0, 2]]
    """

    def __init__(self, raster: Tensor) -> None:
        check_matrix("raster", raster)
        rows, columns, starts = find(raster)
        # sums read half as much memory
        dtype = torch.int32 if max(raster.shape) < 2**31 else torch.int64
        rows, columns = rows.to(dtype).contiguous(), columns.to(dtype).contiguous()
        self._set(rows, columns, tuple(raster.shape), starts)

    @classmethod
    def known(
        cls, rows: Tensor, columns: Tensor, starts: Tensor | None, shape: tuple[int, int]
    ) -> Events:
        """Returns the events of a raster in which they have been found.

        Args:
            rows: ``[events]`` the row of each event, in order.
            columns: ``[events]`` the column of each event.
            starts: ``[K]`` the place of each row's first event; found when needed if ``None``.
            shape: the shape of the raster.
        """
        events = cls.__new__(cls)
        events._set(rows, columns, shape, starts)
        return events

    def _set(
        self, rows: Tensor, columns: Tensor, shape: tuple[int, ...], starts: Tensor | None = None
    ) -> None:
        self.rows = rows
        self.columns = columns
        self.shape = shape
        self._row_starts = starts
        self._by_column: tuple[Tensor, Tensor, Tensor | None] | None = None

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
        found = order_events(self.rows, self.columns, self.shape[1], order)
        if found is None:
            places = stable_order(self.columns, self.shape[1])
            rows, columns = (side.index_select(0, places) for side in (self.rows, self.columns))
            found = rows, first_of_each(columns, self.shape[1]), places
        self._by_column = found
        return found

    def weights(self, values: Tensor) -> Tensor:
        """Returns the value of each event, in the order of columns.

        Args:
            values: ``[K, E]``, or ``[events]`` in the order of rows.
        """
        if values.ndim > 1:
            values = values[self.rows, self.columns]
        return values[self.order()]

    def part(self, start: int, stop: int) -> Events:
        """Returns the events of some rows, which are then numbered from zero.

        Args:
            start: the first of the rows.
            stop: the first row after them.

        Raises:
            ValueError: if these are not rows of the raster.
        """
        check_integers(start=start, stop=stop)
        if not 0 <= start <= stop <= self.shape[0]:
            raise ValueError(
                f"Arguments `start` and `stop` should be rows from 0 to {self.shape[0]}, in order."
                f" Found `{start = }` and `{stop = }`."
            )
        edges = torch.tensor([start, stop], dtype=self.rows.dtype, device=self.rows.device)
        first, last = torch.searchsorted(self.rows, edges).tolist()
        rows, columns = self.rows[first:last] - start, self.columns[first:last]
        return Events.known(rows, columns, None, (stop - start, self.shape[1]))

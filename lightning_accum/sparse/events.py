"""Events of a raster: found once, and all that is then summed over them alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_accum._checks import check_integers, check_matrix, check_tensors
from lightning_accum._compat import is_traced

# The gathered rows should stay in cache: measured best near 400 columns.
_CHUNK = 400
# Entries and density from which, and up to which, a search by words of eight entries is faster.
_MANY, _RARE = 1 << 18, 0.15


class Events:
    """The events of a raster, in the order of its rows and in that of its columns.

    Args:
        raster: ``[K, E]``; each non-zero entry is one event.

    Attributes:
        rows: ``[events]`` the row of each event, ordered by rows.
        columns: ``[events]`` the column of each event.
        shape: of the raster, ``(K, E)``.

    Example:
        >>> import torch
        >>> events = Events(torch.tensor([[True, False], [True, True]]))
        >>> events.rows.tolist(), events.columns.tolist()
        ([0, 1, 1], [0, 0, 1])
        >>> [part.tolist() for part in events.by_column()]
        [[0, 1, 1], [0, 0, 1], [0, 2]]
    """

    def __init__(self, raster: Tensor) -> None:
        check_matrix("raster", raster)
        whole = raster.is_cpu and raster.is_contiguous() and raster.numel() < 2**31
        plain = whole and raster.dtype == torch.bool and not is_traced()
        rows, columns = _found(raster) if plain else raster.nonzero().unbind(1)
        # half the size goes twice as fast through every sum
        dtype = torch.int32 if max(raster.shape) < 2**31 else torch.int64
        self._set(rows.to(dtype).contiguous(), columns.to(dtype).contiguous(), tuple(raster.shape))

    def _set(self, rows: Tensor, columns: Tensor, shape: tuple[int, ...]) -> None:
        self.rows = rows
        self.columns = columns
        self.shape = shape
        self._by_column: tuple[Tensor, Tensor, Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def row_starts(self) -> Tensor:
        """``[K]`` where each row's events begin, in the order of rows."""
        return _starts(self.rows, self.shape[0])

    def by_column(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows and columns in the order of columns, and ``[E]`` where each column's begin."""
        rows, columns, starts, _ = self._ordered()
        return rows, columns, starts.clone()  # a kernel reads memory at those that stay

    def _ordered(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self._by_column is None:
            # stable, so that a column's rows come in their order: sums are those of every raster
            order = _stable_order(self.columns, self.shape[1])
            rows, columns = (side.index_select(0, order) for side in (self.rows, self.columns))
            self._by_column = rows, columns, _starts(columns, self.shape[1]), order
        return self._by_column

    def order(self) -> Tensor:
        """``[events]`` the place of each event of the order of columns in that of rows."""
        return self._ordered()[3]

    def part(self, start: int, stop: int) -> Events:
        """The events of some rows, which then count from zero.

        Args:
            start: the first of the rows.
            stop: the first row after them.

        Raises:
            ValueError: if these are not rows of the raster.
        """
        check_integers(start=start, stop=stop)
        if not 0 <= start <= stop <= self.shape[0]:
            rows = (
                f"Arguments `start` and `stop` should be rows from 0 to {self.shape[0]}, in order."
            )
            raise ValueError(f"{rows} Found `{start = }` and `{stop = }`.")
        edges = torch.tensor([start, stop], dtype=self.rows.dtype, device=self.rows.device)
        first, last = torch.searchsorted(self.rows, edges).tolist()
        part = Events.__new__(Events)
        part._set(
            self.rows[first:last] - start, self.columns[first:last], (stop - start, self.shape[1])
        )
        return part


def density(raster: Tensor, rows: int = 64) -> float:
    """The share of non-zero entries, from at most ``rows`` rows spread over the raster.

    Args:
        raster: ``[K, N]``.
        rows: how many rows to look at.

    Example:
        >>> import torch
        >>> density(torch.eye(4))
        0.25
    """
    check_integers(rows=rows)
    if rows < 1:
        raise ValueError(f"Argument `rows` should be a positive number of rows. Found `{rows = }`.")
    check_matrix("raster", raster)
    if raster.numel() == 0:
        return 0.0
    sample = raster[:: -(-raster.shape[0] // rows)]
    return sample.count_nonzero().item() / sample.numel()


def event_matmul(events: Tensor | Events, table: Tensor) -> Tensor:
    r"""A raster times a matrix, by its events alone: :math:`Y_{kd} = \sum_e s_{ke} W_{ed}`.

    Args:
        events: ``[K, E]`` raster of events, or its :class:`Events`.
        table: ``[E, D]`` what an event in column ``e`` adds, :math:`W`, floating point.

    Returns:
        ``[K, D]`` in the dtype of ``table``, for which gradients are followed.

    Raises:
        ValueError: if ``table`` does not have a row for each column of the raster.

    Example:
        >>> import torch
        >>> raster = torch.tensor([[True, False], [True, True]])
        >>> event_matmul(raster, torch.tensor([[1.0], [10.0]]))
        tensor([[ 1.],
                [11.]])
    """
    found = events if isinstance(events, Events) else Events(events)
    _check_floating("table", table)
    _check_rows("table", table, found.shape[1], "column")
    return F.embedding_bag(found.columns, table.contiguous(), found.row_starts(), mode="sum")


def event_outer_sum(events: Tensor | Events, rows: Tensor, values: Tensor | None = None) -> Tensor:
    r"""Visits events alone: :math:`D_{ed} = \sum_k s_{ke} v_{ke} Y_{kd}`, a row per event.

    Args:
        events: ``[K, E]`` raster of events, or its :class:`Events`.
        rows: ``[K, D]`` what an event at ``k`` adds, :math:`Y`, floating point.
        values: ``[K, E]`` weights :math:`v` of the events, or ``[events]`` of each in the order of
            rows; one when ``None``.

    Returns:
        ``[E, D]`` in the dtype of ``rows``.

    Raises:
        ValueError: if ``rows`` or ``values`` are not of the raster's size.

    Example:
        >>> import torch
        >>> raster = torch.tensor([[True, False], [True, True]])
        >>> event_outer_sum(raster, torch.tensor([[1.0], [10.0]]))
        tensor([[11.],
                [10.]])
    """
    found = events if isinstance(events, Events) else Events(events)
    _check_floating("rows", rows)
    _check_rows("rows", rows, found.shape[0], "row")
    at, columns, starts, _ = found._ordered()
    weights = None
    if values is not None:
        check_tensors(values=values)
        shape = (rows.shape[0], found.shape[1])
        each = values.ndim == 1 and len(values) == len(found)
        if not (each or values.shape == shape) or values.is_complex():
            raise ValueError(
                f"Argument `values` should be real, of the shape of the events, {shape}. Found"
                f" `values.shape = {tuple(values.shape)}` of {values.dtype}."
            )
        weights = (values[found.order()] if each else values[at, columns]).to(rows.dtype)
    chunks = [
        F.embedding_bag(at, chunk.contiguous(), starts, mode="sum", per_sample_weights=weights)
        for chunk in rows.split(_CHUNK, dim=1)
    ]
    return chunks[0] if len(chunks) == 1 else torch.cat(chunks, dim=1)


# On the CPU it is NumPy that looks through booleans, and puts small integers in order, several
# times as fast as torch; and dividing by one integer, ten times.


def _found(raster: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the events of a boolean raster on the CPU, in the order of rows."""
    flat: Any = raster.view(-1).numpy()
    wordy = len(flat) > _MANY and density(raster) < _RARE
    place = (_by_words(flat) if wordy else np.flatnonzero(flat)).astype(np.int32, copy=False)
    width = np.int32(max(1, raster.shape[1]))
    rows = place // width
    return torch.from_numpy(rows), torch.from_numpy(place - rows * width)


def _by_words(flat: Any) -> Any:
    """Where entries are true, by way of the words of eight that hold any."""
    end = len(flat) // 8 * 8
    words = flat[:end].view(np.int64)
    at = np.flatnonzero(words != 0)
    found = np.flatnonzero(words.take(at).view(np.bool_)).astype(np.int32)
    place = (8 * at.astype(np.int32)).take(found >> 3)
    place += found & 7
    return np.concatenate([place, (np.flatnonzero(flat[end:]) + end).astype(np.int32)])


def _stable_order(columns: Tensor, count: int) -> Tensor:
    """Which events to take, in turn, to have them by columns, those of each as they come."""
    if columns.is_cpu and count <= 1 << 16 and not is_traced():
        return torch.from_numpy(np.argsort(columns.numpy().astype(np.uint16), kind="stable"))
    return torch.sort(columns, stable=True)[1]


def _starts(ordered: Tensor, count: int) -> Tensor:
    every = torch.arange(count, dtype=ordered.dtype, device=ordered.device)
    return torch.searchsorted(ordered, every, out_int32=ordered.dtype == torch.int32)


def _check_rows(name: str, value: Tensor, count: int, of: str) -> None:
    if value.shape[0] != count:
        raise ValueError(
            f"Argument `{name}` should have a row for each {of} of the events, {count}. Found"
            f" `{name}.shape = {tuple(value.shape)}`."
        )


def _check_floating(name: str, value: Tensor) -> None:
    check_matrix(name, value)
    if not value.is_floating_point():
        raise TypeError(
            f"Argument `{name}` should be of floating point. Found `{name}.dtype = {value.dtype}`."
        )

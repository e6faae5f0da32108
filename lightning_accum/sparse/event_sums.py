"""Products with a raster, computed by its events."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_accum._checks import check_matrix, check_tensors
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.kernel_sums import Rows, multiply_events, outer_events

# The rows that events add should stay in the cache: so many elements are gathered from at a time.
_CACHED = 1 << 18
_FEWEST, _MOST = 64, 400  # columns


def event_matmul(events: Tensor | Events, table: Tensor, bias: Tensor | None = None) -> Tensor:
    r"""Multiplies a raster by a matrix: :math:`Y_{kd} = \sum_e s_{ke} W_{ed} + b_d`.

    The plain form is ``raster.to(table.dtype) @ table``; this adds one row for each event.

    Args:
        events: ``[K, E]`` raster of events, or its :class:`Events`.
        table: ``[E, D]`` the row :math:`W_e` that an event in column ``e`` adds, floating point; it
            is fastest if its transpose is contiguous.
        bias: ``[D]`` what is added to every row; nothing when ``None``.

    Returns:
        ``[K, D]`` in the dtype of ``table``, and differentiable by it and ``bias``.

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
    starts = found.row_starts()
    out = multiply_events(starts, found.columns, table.t(), bias)
    if out is None:
        out = F.embedding_bag(found.columns, table.contiguous(), starts, mode="sum")
        out = out if bias is None else out + bias
    return out


def event_outer_sum(events: Tensor | Events, rows: Tensor, values: Tensor | None = None) -> Tensor:
    r"""Sums outer products: :math:`D_{ed} = \sum_k s_{ke} v_{ke} Y_{kd}`.

    The plain form is ``(raster * values).T @ rows``; this adds one row for each event.

    Args:
        events: ``[K, E]`` raster of events, or its :class:`Events`.
        rows: ``[K, D]`` the row :math:`Y_k` that an event in row ``k`` adds, floating point.
        values: ``[K, E]`` weights :math:`v` of entries, or ``[events]`` of events in the order of
            rows; one when ``None``.

    Returns:
        ``[E, D]`` in the dtype of ``rows``.

    Raises:
        ValueError: if ``rows`` or ``values`` do not have the raster's size.

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
        weights = found.weights(values).to(rows.dtype)
    at, starts = found.ordered()
    columns = max(_FEWEST, min(_MOST, _CACHED // max(1, rows.shape[0])))
    chunks = [
        F.embedding_bag(at, chunk.contiguous(), starts, mode="sum", per_sample_weights=weights)
        for chunk in rows.split(columns, dim=1)
    ]
    return chunks[0] if len(chunks) == 1 else torch.cat(chunks, dim=1)


def _check_rows(name: str, value: Tensor, count: int, of: str) -> None:
    if value.shape[0] != count:
        raise ValueError(
            f"Argument `{name}` should have a row for each {of} of the events, {count}. Found"
            f" `{name}.shape = {tuple(value.shape)}`."
        )


def outer_sum_into(
    total: Tensor,
    onto: bool,
    events: Events,
    sources: Sequence[tuple[float, Rows]],
    values: Tensor | None = None,
    by_event: bool = False,
) -> bool:
    r"""Sums outer products with rows that are made on the way, and never kept.

    Its plain form is :func:`event_outer_sum` of the sum of all sources, transposed.

    Args:
        total: ``[D, E]`` receives the sum; ``[E, D]`` if it is ``by_event``.
        onto: whether the sum is added to the values of ``total``, or replaces them.
        events: the events of a raster ``[K, E]``.
        sources: what the rows are the sum of, each with a factor.
        values: weights as in :func:`event_outer_sum`.
        by_event: whether a row of the sum belongs to events, instead of a column.

    Returns:
        Whether it is done; if there is no compiled kernel for these, ``total`` has not changed.
    """
    weights = None if values is None else events.weights(values).to(total.dtype)
    at, starts = events.ordered()
    return outer_events(total, onto, starts, at, weights, sources, by_event)


def _check_floating(name: str, value: Tensor) -> None:
    check_matrix(name, value)
    if not value.is_floating_point():
        raise TypeError(
            f"Argument `{name}` should be of floating point. Found `{name}.dtype = {value.dtype}`."
        )

"""Sums of outer products over time and batch: the one operation under every rule."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum._checks import check_integers, check_tensors

# The gathered rows should stay in cache: measured best near 400 columns.
_CHUNK = 400


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
    _check_matrix("raster", raster)
    if raster.numel() == 0:
        return 0.0
    sample = raster[:: -(-raster.shape[0] // rows)]
    return sample.nonzero().shape[0] / sample.numel()


class Events(NamedTuple):
    """Where the events of a raster are: what is built once and serves every sum over them.

    Args:
        rows: ``[events]`` the row ``k`` of each event, ordered by column.
        columns: ``[events]`` the column ``e`` of each event.
        offsets: ``[E]`` where each column's events begin.
    """

    rows: Tensor
    columns: Tensor
    offsets: Tensor


def events_of(raster: Tensor) -> Events:
    """Finds the events of a raster.

    Args:
        raster: ``[K, E]``; each non-zero entry is one event.

    Example:
        >>> import torch
        >>> events_of(torch.tensor([[True, False], [True, True]])).rows
        tensor([0, 1, 1])
    """
    _check_matrix("raster", raster)
    # From the transposed raster the events come ordered by what they add to, with no sort.
    columns, rows = raster.t().contiguous().nonzero().t().contiguous().unbind(0)
    every = torch.arange(raster.shape[1], device=columns.device)
    return Events(rows, columns, torch.searchsorted(columns, every))


def event_outer_sum(events: Tensor | Events, rows: Tensor, values: Tensor | None = None) -> Tensor:
    r"""Visits events alone: :math:`D_{ed} = \sum_k s_{ke} v_{ke} Y_{kd}`, a row per event.

    Args:
        events: ``[K, E]`` raster of events, or what :func:`events_of` made of it.
        rows: ``[K, D]`` what an event at ``k`` adds, :math:`Y`, floating point.
        values: ``[K, E]`` weights :math:`v` of the events; one when ``None``.

    Returns:
        ``[E, D]`` in the dtype of ``rows``.

    Example:
        >>> import torch
        >>> raster = torch.tensor([[True, False], [True, True]])
        >>> event_outer_sum(raster, torch.tensor([[1.0], [10.0]]))
        tensor([[11.],
                [10.]])
    """
    found = events if isinstance(events, Events) else events_of(events)
    _check_matrix("rows", rows)
    if not rows.is_floating_point():
        raise TypeError(
            f"Argument `rows` should be of floating point. Found `rows.dtype = {rows.dtype}`."
        )
    if values is not None:
        _check_values(values, (rows.shape[0], len(found.offsets)))
    weights = None if values is None else values[found.rows, found.columns].to(rows.dtype)
    chunks = [
        torch.nn.functional.embedding_bag(
            found.rows, chunk.contiguous(), found.offsets, mode="sum", per_sample_weights=weights
        )
        for chunk in rows.split(_CHUNK, dim=1)
    ]
    return chunks[0] if len(chunks) == 1 else torch.cat(chunks, dim=1)


def _check_values(values: Tensor, shape: tuple[int, int]) -> None:
    check_tensors(values=values)
    if values.shape != shape or values.is_complex():
        raise ValueError(
            f"Argument `values` should be real, of the shape of the events, {shape}. Found"
            f" `values.shape = {tuple(values.shape)}` of {values.dtype}."
        )


def _check_matrix(name: str, value: Tensor) -> None:
    check_tensors(**{name: value})
    if value.ndim != 2:
        raise ValueError(
            f"Argument `{name}` should have two dimensions. Found `{name}.shape ="
            f" {tuple(value.shape)}`: flatten time and batch into one."
        )

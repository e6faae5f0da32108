"""Sums of outer products over time and batch: the one operation under every rule."""

from __future__ import annotations

import torch
from torch import Tensor

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
    if raster.numel() == 0:
        return 0.0
    sample = raster[:: max(1, raster.shape[0] // rows)]
    return sample.nonzero().shape[0] / sample.numel()


def event_outer_sum(raster: Tensor, rows: Tensor, values: Tensor | None = None) -> Tensor:
    r"""Visits events alone: :math:`D_{ed} = \sum_k s_{ke} v_{ke} Y_{kd}`, a row per event.

    Args:
        raster: ``[K, E]``; each non-zero entry is one event, of weight one.
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
    k, e = raster.nonzero(as_tuple=True)
    order = torch.argsort(e, stable=True)
    k, e = k[order], e[order]
    counts = torch.bincount(e, minlength=raster.shape[1])
    offsets = counts.cumsum(0) - counts
    weights = None if values is None else values[k, e].to(rows.dtype)
    chunks = [
        torch.nn.functional.embedding_bag(
            k, chunk.contiguous(), offsets, mode="sum", per_sample_weights=weights
        )
        for chunk in rows.split(_CHUNK, dim=1)
    ]
    return chunks[0] if len(chunks) == 1 else torch.cat(chunks, dim=1)

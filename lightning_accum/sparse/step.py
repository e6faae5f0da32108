"""The products of a single step, which has no sum over time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_accum.functional.numbers import as_numbers
from lightning_accum.functional.traces import TraceMode, trace
from lightning_accum.sparse.products import Factor, Product, Sink


def add_step(sink: Sink, products: Sequence[Product], scale: float) -> None:
    """Adds products of a single step, which has no sum over time."""
    dtype = widest(products)
    for negative in (False, True):
        own = [product for product in products if (product.rate < 0) == negative]
        if own:
            sides = [[flat(_plain(side, dtype)) for side in each.operands] for each in own]
            sink.accumulate_outer(
                [post for post, _ in sides],
                [pre for _, pre in sides],
                [abs(product.rate) * scale for product in own],
                negative=negative,
            )


def widest(products: Sequence[Product]) -> torch.dtype:
    """Returns the dtype in which all products are computed, float32 or wider."""
    dtype = torch.float32
    for product in products:
        for side in product.operands:
            dtype = torch.promote_types(dtype, side.dtype)
    return dtype


def flat(tensor: Tensor) -> Tensor:
    """Returns ``[T, B, ..., N]`` as ``[K, N]``."""
    return tensor.flatten(0, -2)


def next_trace(step: Tensor, decay: float, mode: TraceMode, before: Tensor | None) -> Tensor:
    """Returns a trace after one step; the plain form is :func:`~.functional.traces.trace`.

    Args:
        step: ``[B, ...]`` in floating point.
        decay: the factor of the decay over one step.
        mode: the mode of the trace.
        before: ``[B, ...]`` the trace before the step; ignored if it is of other samples.

    Returns:
        ``[B, ...]`` in memory of its own.
    """
    before = None if before is None or before.shape != step.shape else before.to(step)
    if before is None or mode == "nearest":
        return trace(step.unsqueeze(0), decay, mode, before, step.dtype)[0]
    return torch.add(step, before, alpha=decay)


def _plain(factor: Factor, dtype: torch.dtype) -> Tensor:
    """Returns values in ``dtype``, or spikes if the product converts them to it by itself."""
    if factor.decay is None and factor.weights is None and dtype == torch.float32:
        return factor.activity
    return as_numbers(factor.values(), dtype)

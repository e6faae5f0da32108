"""Products that need no visits and no moved traces: of a single step, and of every sample."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_accum.functional.numbers import as_numbers
from lightning_accum.functional.reductions import Reduction
from lightning_accum.functional.traces import TraceMode, trace
from lightning_accum.sparse.products import Factor, Product, Sink

_BLOCK_ELEMENTS = 1 << 24


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


def add_per_sample(sink: Sink, products: Sequence[Product], batch: Reduction) -> None:
    """Adds each part of the reduced change of a matrix ``[out, in]``, in bounded memory."""
    dtype = widest(products)
    for negative in (False, True):
        sides = []
        for product in products:
            if (product.rate < 0) == negative:
                post, pre = (_by_sample(side.values().to(dtype)) for side in product.operands)
                sides.append((abs(product.rate) * post, pre))
        if sides:
            sink.accumulate(**{"neg" if negative else "pos": _reduced(sides, batch)})


def _reduced(sides: Sequence[tuple[Tensor, Tensor]], batch: Reduction) -> Tensor:
    (size, _, outputs), inputs = sides[0][0].shape, sides[0][1].shape[2]
    block = max(1, _BLOCK_ELEMENTS // max(1, size * inputs))
    reduced = []
    for start in range(0, max(1, outputs), block):  # one empty block if there are no outputs
        found = [post[..., start : start + block].transpose(1, 2) @ pre for post, pre in sides]
        reduced.append(batch.of(torch.stack(found).sum(0)))
    return torch.cat(reduced)


def _by_sample(tensor: Tensor) -> Tensor:
    """Returns ``[T, B, ..., N]`` as ``[B, K, N]``."""
    return tensor.movedim(1, 0).flatten(1, -2)

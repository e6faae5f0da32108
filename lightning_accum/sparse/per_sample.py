"""Reduces the products of every sample over the batch, in blocks of the matrix's rows."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_accum.functional.reductions import Reduction
from lightning_accum.sparse.products import Product, Sink
from lightning_accum.sparse.step import widest

_BLOCK_ELEMENTS = 1 << 24


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

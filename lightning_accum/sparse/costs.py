"""The cost model: whether dense products or visits to spikes are cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, TypeVar

import torch
from torch import Tensor

from lightning_accum.sparse.compiled import has_kernel
from lightning_accum.sparse.products import Factor, Product, Side, weighs_rows
from lightning_accum.sparse.search import density

Choice: TypeAlias = Literal["dense", "pre", "post", "step"]
"""Dense products, the spikes of one side, or the dense products of a single step."""

P = TypeVar("P", bound=Product)

# Nanoseconds, measured on one core with AVX-512; their ratios decide.
MULTIPLY = 0.02
"""A multiply-add of a dense product."""
CONVERT = 0.5
"""An entry of a raster converted to floating point, and read again from memory."""
PREPARE = 2.0
"""The same for the dense products of a window, in which traces are read and written too."""
SEARCH = 0.1
"""An entry searched for events."""
EVENT = 8.0
"""An event found and sorted."""
NEAREST = 80.0
"""What a nearest trace adds to an event: the time since the one before."""
ADD = 0.04
"""An element that an event adds."""
TRACE = 0.36
"""An element of a trace."""
TRANSPOSE = 1.2
"""An element of a matrix transposed."""
CALLS = 60_000.0
"""The additional calls of torch that visits to events take."""


def events_pay(raster: Tensor, width: int) -> bool:
    """Returns whether a product of a raster with a matrix is cheaper by events than dense.

    It is never cheaper on other devices than the CPU, because counting events waits for the device.

    Args:
        raster: ``[K, E]`` spikes.
        width: the number of columns of the matrix.
    """
    if raster.dtype != torch.bool or not raster.is_cpu:
        return False
    rows, inputs = raster.shape
    dense = rows * inputs * (width * MULTIPLY + CONVERT)
    fixed = inputs * width * TRANSPOSE + CALLS
    search = rows * inputs * SEARCH
    if dense <= fixed + search:
        return False
    return dense > fixed + search + density(raster) * rows * inputs * (EVENT + width * ADD)


def alike(products: Sequence[P]) -> list[list[P]]:
    """Returns products in groups that have spikes on the same sides."""
    groups: dict[tuple[bool, ...], list[P]] = {}
    for product in products:
        kind = tuple(_is_raster(side) for side in product.operands)
        groups.setdefault(kind, []).append(product)
    return list(groups.values())


def cheapest(products: Sequence[Product]) -> Choice:
    """Returns the choice of the lowest estimated cost.

    Spikes are counted only on the CPU, because counting waits for other devices.
    """
    post, pre = products[0].operands
    inputs, outputs, n = pre.shape[-1], post.shape[-1], len(products)
    costs: dict[Choice, float] = {
        "dense": n * inputs * outputs * MULTIPLY
        + max(inputs, outputs) * PREPARE
        + n * min(inputs, outputs) * TRACE
    }
    sides: tuple[tuple[Side, int, int, int], ...] = (
        ("pre", 1, inputs, outputs),
        ("post", 0, outputs, inputs),
    )
    for side, place, own, other in sides:
        factors = [product.operands[place] for product in products]
        if not all(_is_raster(factor) for factor in factors):
            continue
        if len({id(factor.activity) for factor in factors}) != 1:
            continue
        nearest = any(f.decay is not None and f.mode == "nearest" for f in factors)
        known, activity = factors[0].known_events, factors[0].activity
        flat = activity.flatten(0, -2)
        events = density(flat) * own if known is None else len(known) / max(1, len(flat))
        costs[side] = (
            CALLS / max(1, len(flat))
            + own * (known is None) * SEARCH
            + events * (EVENT + nearest * NEAREST + n * other * ADD)
            + n * other * TRACE
            + sum(_stays(factor) for factor in factors) * own * other * MULTIPLY
        )
    return min(costs, key=lambda choice: costs[choice])


def larger_side(products: Sequence[Product]) -> Side:
    """Returns the side to leave unconverted, while traces move to the other side."""
    post, pre = products[0].operands
    values = pre.activity
    indices = values.dtype != torch.bool and not values.is_floating_point()  # they have no trace
    return "pre" if indices or pre.shape.numel() >= post.shape.numel() else "post"


def _stays(factor: Factor) -> bool:
    """Returns whether a factor cannot move to the other side: the trace of it is weighted.

    Only the kernel moves weights that all neurons of a sample share.
    """
    moved = weighs_rows(factor) and has_kernel(factor.device, factor.dtype)
    return factor.decay is not None and factor.weights is not None and not moved


def _is_raster(factor: Factor) -> bool:
    return factor.is_raster and factor.device.type == "cpu"

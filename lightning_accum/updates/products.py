"""Matrix products that are part of a pending change: when they are deferred or multiplied."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from lightning_accum.functional.numbers import as_bytes, as_numbers

Product: TypeAlias = tuple[Tensor, Tensor, float]
"""``post`` of shape ``[K, out]``, ``pre`` of shape ``[K, in]``, and a factor of ``postᵀ · pre``."""


class StackedProducts:
    """Products of which both sides are stacked too, so that one product adds them all.

    Args:
        raised: the products of the potentiating part.
        lowered: the products of the depressing part.
        left: ``[K, out]`` the postsynaptic sides of all, multiplied by their signed factors.
        right: ``[K, in]`` the presynaptic sides of all.
    """

    def __init__(
        self, raised: list[Product], lowered: list[Product], left: Tensor, right: Tensor
    ) -> None:
        self.raised, self.lowered = raised, lowered
        self.left, self.right = left.T, right
        self.bound = math.inf
        """A bound of the change's elements, set by the code that writes the sides."""


# Rows that are converted and multiplied at a time, so that the converted rows stay in the cache.
_ROWS = 2048


def product_shape(product: Product) -> torch.Size:
    """Returns the shape ``[out, in]`` of a product."""
    left, right, _ = product
    return torch.Size((left.shape[1], right.shape[1]))


def product_dtype(products: Sequence[Product]) -> torch.dtype:
    """Returns the dtype in which products are multiplied: float32, or a wider one of a side."""
    dtype = torch.float32
    for left, right, _ in products:
        dtype = torch.promote_types(dtype, torch.promote_types(left.dtype, right.dtype))
    return dtype


def multiply_into(total: Tensor, products: Sequence[Product], onto: bool) -> Tensor:
    """Writes the sum of products to a tensor of their shape and dtype, or adds it ``onto`` it."""
    beta = float(onto)
    for left, right, factor in products:
        left, right = left.detach(), right.detach()
        for at in range(0, left.shape[0], _ROWS) or (0,):
            rows, columns = left[at : at + _ROWS], right[at : at + _ROWS]
            if rows.dtype is not total.dtype:
                rows = as_numbers(rows, total.dtype)
            if columns.dtype is not total.dtype:
                columns = as_numbers(columns, total.dtype)
            total.addmm_(rows.T, columns, beta=beta, alpha=factor)
            beta = 1.0
    return total


def are_worth_deferring(products: Sequence[Product]) -> bool:
    """Returns whether copies of both sides, in float32, take less memory than the product."""
    rows = outputs = inputs = 0
    for left, right, _ in products:
        (steps, outputs), inputs = left.shape, right.shape[1]
        rows += steps
        for side in (left, right):
            if not (side.is_cpu and side.dtype in (torch.bool, torch.float32)):
                return False
    return rows * (outputs + inputs) <= outputs * inputs


def copied(products: Sequence[Product]) -> list[Product]:
    """Copies the sides of products, in float32."""
    return [(_copy(left), _copy(right), float(factor)) for left, right, factor in products]


def _copy(side: Tensor) -> Tensor:
    side = side.detach() if side.requires_grad else side
    return as_bytes(side).to(torch.float32, copy=True)

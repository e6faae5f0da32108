"""The parts of a pending change: contributions and their running sum, or products that wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from lightning_accum._checked_state import (
    COUNT,
    REAL,
    Kind,
    check_state,
    check_that,
    list_of,
    optional,
)
from lightning_accum.functional.dtypes import as_numbers, at_least_float32
from lightning_accum.functional.reductions import Reduction
from lightning_accum.functional.reductions import reduction as find_reduction

Product: TypeAlias = tuple[Tensor, Tensor, float]
"""``post`` of shape ``[K, out]``, ``pre`` of shape ``[K, in]``, and a factor of ``postᵀ · pre``."""

Write: TypeAlias = Callable[..., object]
"""Writes a sum to a tensor, or adds it there: ``write(total, onto=...)``."""


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


def may_wait(pos: Sequence[Product], neg: Sequence[Product], any_size: bool = False) -> bool:
    """Returns whether copies of the sides, in float32, take less memory than their products."""
    shape: tuple[int, int] | None = None
    for products in (pos, neg):
        rows = outputs = inputs = 0
        for left, right, _ in products:
            (steps, outputs), inputs = left.shape, right.shape[1]
            rows += steps
            if not steps or shape not in (None, (outputs, inputs)):
                return False
            shape = outputs, inputs
            for side in (left, right):
                if not (side.is_cpu and (any_size or side.dtype in (torch.bool, torch.float32))):
                    return False
        if rows * (outputs + inputs) > outputs * inputs and not any_size:
            return False
    return shape is not None


@dataclass(eq=False)
class StackedProducts:
    """Products for both parts, stacked, so that one product adds them all to the parameter."""

    left: Tensor  # [out, K], with signed factors
    right: Tensor  # [K, in]
    raised: int  # the first rows, which are of the potentiating part
    bound: float | None = None

    @classmethod
    def of(cls, pos: Sequence[Product], neg: Sequence[Product]) -> StackedProducts:
        """Copies the sides of products for both parts."""
        numbers = partial(as_numbers, dtype=product_dtype([*pos, *neg]))
        signed = [*((each, 1.0) for each in pos), *((each, -1.0) for each in neg)]
        left = [numbers(a.detach()) * (sign * float(by)) for (a, _, by), sign in signed]
        right = [numbers(b.detach()) for (_, b, _), _ in signed]
        return cls(torch.cat(left).T, torch.cat(right), sum(len(a) for a, _, _ in pos))

    @property
    def shape(self) -> torch.Size:
        """The shape ``[out, in]`` of the change."""
        return torch.Size((self.left.shape[0], self.right.shape[1]))

    def products(self) -> tuple[list[Product], list[Product]]:
        """Returns a product for each part; none for a part without rows."""
        rows = (self.raised, len(self.right) - self.raised)
        sides = zip(self.left.T.split(rows), self.right.split(rows), (1.0, -1.0), strict=True)
        pos, neg = ([each] if len(each[0]) else [] for each in sides)
        return pos, neg

    def parts(self) -> list[Tensor | None]:
        """Returns the sum of each part; ``None`` for a part without rows."""
        new = partial(self.left.new_empty, self.shape)
        return [multiply_into(new(), each, False) if each else None for each in self.products()]

    def most(self) -> float:
        """Returns a bound of the absolute elements of the change; NaN if a factor is."""
        if self.bound is None:
            ends = [side.aminmax() for side in (self.left, self.right)]
            most = (max(-low.item(), high.item()) for low, high in ends)
            self.bound = math.prod(most, start=len(self.right))
        return self.bound

    def __reduce__(self) -> tuple[Any, ...]:
        # Views of memory that steps write over are copied without the rest of it.
        return StackedProducts, (self.left.clone(), self.right.clone(), self.raised, self.bound)


class Part:
    """The contributions to the potentiating or to the depressing part of a parameter's change."""

    # The pending value is held as a running value, if the reduction streams, and as the
    # contributions themselves if it needs all of them. The running value keeps its memory when the
    # part is cleared, and the next contribution writes over it: a training loop allocates it once.

    def __init__(self, reduction: Reduction | None = None) -> None:
        self.reduction = find_reduction(None) if reduction is None else reduction
        self.count = 0
        self._total: Tensor | None = None
        self._kept: list[Tensor] = []

    @property
    def shape(self) -> torch.Size | None:
        """The shape of the pending value, ``None`` if there is none."""
        if self.count == 0:
            return None
        pending = self._kept if self._kept or self._total is None else [self._total]
        shape: torch.Size = torch.broadcast_shapes(*(value.shape for value in pending))
        return shape

    def add(self, value: Tensor) -> None:
        """Adds a copy of ``value`` as one contribution."""
        if self.count == 0:
            self.clear()
        value = value.detach()
        dtype = at_least_float32(value.dtype)
        if self.reduction.merge is None:
            self._kept.append(value.to(dtype, copy=True))
        else:
            total = self._writable_total(value.shape, dtype, value.device, onto=self.count > 0)
            if self.count == 0:
                total.copy_(value)
            else:
                self.reduction.merge(total, value.to(total.dtype))
        self.count += 1

    def add_products(self, products: Sequence[Product]) -> None:
        """Adds the sum of products as one contribution."""
        shape, device = product_shape(products[0]), products[0][0].device
        write = partial(multiply_into, products=products)
        self.add_written(write, shape, product_dtype(products), device)

    @torch.no_grad()
    def add_written(
        self, write: Write, shape: torch.Size, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Adds a contribution that ``write(total, onto=...)`` writes to the running value."""
        if self.count == 0:
            self.clear()
        onto = self.count > 0
        if self.reduction.adds and (not onto or self.shape == shape):
            write(self._writable_total(shape, dtype, device, onto), onto=onto)
            self.count += 1
            return
        # The reduction does not add, or the pending value is still to be broadcast.
        result = torch.empty(shape, dtype=dtype, device=device)
        write(result, onto=False)
        self.add(result)

    def value(self) -> Tensor | None:
        """Returns the reduced part, which may share memory with this object; ``None`` if empty."""
        if self.count == 0:
            return None
        if self.reduction.merge is None:
            device = self._kept[-1].device
            kept = torch.broadcast_tensors(*(value.to(device) for value in self._kept))
            return self.reduction.of(torch.stack(kept))
        assert self._total is not None
        return self._total / self.count if self.reduction.averages else self._total

    def clear(self) -> None:
        """Empties the part and keeps the memory of the running value."""
        self.count = 0
        self._kept = []

    def moving(self, move: Callable[[Tensor], Tensor]) -> list[partial[None]]:
        """Returns calls that replace what is pending by what ``move`` makes of it."""
        total = move(self._total) if self.count and self._total is not None else None
        kept = [move(value) for value in self._kept]
        return [partial(setattr, self, "_total", total), partial(setattr, self, "_kept", kept)]

    def _writable_total(
        self, shape: torch.Size, dtype: torch.dtype, device: torch.device, onto: bool
    ) -> Tensor:
        """Returns the running value, reallocated if it does not have the shape or dtype."""
        total = self._total
        if not onto:
            if total is None or (total.shape, total.dtype, total.device) != (shape, dtype, device):
                total = torch.empty(shape, dtype=dtype, device=device)
        else:
            assert total is not None
            total = total.to(device, torch.promote_types(total.dtype, dtype))
            if total.shape != shape:  # the parameter's shape is not known: grow to hold both
                total = total.expand(torch.broadcast_shapes(total.shape, shape)).clone()
        if total.is_inference() and not torch.is_inference_mode_enabled():
            total = total.clone()
        self._total = total
        return total

    def __getstate__(self) -> dict[str, Any]:
        # Memory that waits for the next contribution is not copied.
        return {**self.__dict__, "_total": self._total if self.count else None}

    def state(self, waiting: Sequence[Product] = ()) -> dict[str, Any]:
        """Returns copies of everything that is pending, as tensors and builtins."""
        total = None if self._total is None or not self.count else self._total.clone()
        kept = [value.clone() for value in self._kept if self.count]
        deferred = [(left.clone(), right.clone(), by) for left, right, by in waiting]
        count = self.count or len(deferred)
        return {"count": count, "total": total, "kept": kept, "deferred": deferred}

    def load(self, state: dict[str, Any]) -> Sequence[Product]:
        """Loads a copy of a state that :func:`check_part` has passed; returns what had waited."""
        self.count = 0 if state["deferred"] else state["count"]
        self._total = None if state["total"] is None else state["total"].clone()
        self._kept = [value.clone() for value in state["kept"]]
        return list(state["deferred"])


def check_part(
    place: str, state: Any, reduction: Reduction, shape: torch.Size | None = None
) -> None:
    """Raises a ``RuntimeError`` unless a state is one that an accumulator returns of a part."""
    check_state(place, state, _STATE)
    count, total, kept, deferred = (state[key] for key in _STATE)
    numbers = {"total": count, "kept": len(kept), "deferred": int(reduction.adds)}
    form = "deferred" if deferred else "kept" if reduction.merge is None else "total"
    found = [key for key in numbers if isinstance(state[key], Tensor) or state[key]]
    should = f"what {count} contributions make under the reduction `{reduction.name}`"
    fits = found == [form] and numbers[form] == count if count else not found
    check_that(fits, place, should, state)
    products = [product_shape(product) for product in deferred]
    check_that(len(set(products)) <= 1, place, "products of one shape", state)
    shapes = [value.shape for value in (total, *kept) if value is not None] + products
    try:
        torch.broadcast_shapes(*shapes)
    except RuntimeError:
        check_that(False, place, "contributions of shapes that broadcast", state)
    if shape is not None and (wrong := {*shapes} - {shape}):
        raise RuntimeError(
            f"The state of {place} should have the parameter's shape {tuple(shape)}. Found"
            f" {tuple(wrong.pop())}: it belongs to another network."
        )


def _is_pending(value: object) -> bool:
    """Returns whether this is a dense tensor in a dtype that contributions are kept in."""
    if not REAL.fits(value) or not isinstance(value, Tensor):
        return False
    return value.is_floating_point() and at_least_float32(value.dtype) == value.dtype


def _is_product(value: object) -> bool:
    """Returns whether this is two matrices with equally many rows, and a factor."""
    if not isinstance(value, (tuple, list)) or len(value) != 3 or not isinstance(value[2], float):
        return False
    left, right, _ = value
    sides = all(_is_pending(side) and side.ndim == 2 for side in (left, right))
    return sides and left.dtype == right.dtype and len(left) == len(right)


_PENDING = Kind("a dense tensor of at least single precision", _is_pending)
_PRODUCT = Kind("two matrices `[K, ...]` and a factor", _is_product)
_STATE = {
    "count": COUNT,
    "total": optional(_PENDING),
    "kept": list_of(_PENDING),
    "deferred": list_of(_PRODUCT),
}

"""One half of a pending change."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from lightning_accum.functional.numbers import as_bytes, as_numbers, at_least_float32
from lightning_accum.functional.reductions import Reduction

Product: TypeAlias = tuple[Tensor, Tensor, float]
"""``[K, out]``, ``[K, in]`` and a factor of their product ``[out, in]``."""

_ROWS = 2048
_CALL: Callable[[partial[Any]], Any] = partial.__call__


def at_once(*calls: partial[Any]) -> None:
    """Calls functions written in C, with no line of Python between where an interrupt could strike.

    Args:
        *calls: each of them one of those functions, with its arguments.
    """
    deque(map(_CALL, calls), maxlen=0)


class Part:
    """Contributions to one half of a parameter's change, reduced as they come where that can be.

    The running value keeps its memory when the part is cleared, for the next contribution to
    overwrite: a training loop allocates it once. Products that are all that is pending may wait to
    be multiplied, for then they can be added to the parameter itself.
    """

    def __init__(self) -> None:
        self.count = 0
        self._total: Tensor | None = None
        self._kept: list[Tensor] = []
        self._deferred: list[Product] = []

    @property
    def deferred(self) -> Sequence[Product]:
        """Products that are all that is pending; empty where there is more, or nothing."""
        return self._deferred if self.count else []

    @property
    def shape(self) -> torch.Size | None:
        """The shape of what is pending, ``None`` when empty."""
        if self.count == 0:
            return None
        if self._deferred:
            return shape_of(self._deferred)
        pending = self._kept if self._kept or self._total is None else [self._total]
        shape: torch.Size = torch.broadcast_shapes(*(value.shape for value in pending))
        return shape

    @property
    def device(self) -> torch.device | None:
        """Where what is pending lies, ``None`` when empty."""
        pending = self._kept[-1] if self._kept else self._total
        if self._deferred:
            pending = self._deferred[0][0]
        return None if self.count == 0 or pending is None else pending.device

    def add(self, value: Tensor, how: Reduction) -> None:
        """Folds a copy of ``value`` in."""
        if self.count == 0:
            self.clear()
        self._materialize()
        value = value.detach()
        dtype = at_least_float32(value.dtype)
        if how.merge is None:
            self._kept.append(value.to(dtype, copy=True))
        else:
            total = self._room(value.shape, dtype, value.device, onto=self.count > 0)
            if self.count == 0:
                total.copy_(value)
            else:
                how.merge(total, value.to(total.dtype))
        self.count += 1

    def add_products(self, products: Sequence[Product], how: Reduction, wait: bool = False) -> None:
        """Folds ``Σ scale · leftᵀ right`` in, one contribution, with nothing of its size between.

        Args:
            products: ``[K, out]``, ``[K, in]`` and scale of each; spikes may be boolean.
            how: the reduction in force.
            wait: whether copies of both sides may be kept instead, where they are smaller.
        """
        shape = shape_of(products)
        if self.count == 0:
            self.clear()
        if wait and self.count == 0 and how.adds and _are_light(products, shape):
            self._deferred = [
                (_copied(left.detach()), _copied(right.detach()), float(scale))
                for left, right, scale in products
            ]
            self.count = 1
            return
        self._materialize()
        # into what is pending, unless that was broadcast: then it is not the product's shape
        if how.adds and self.shape in (None, shape):
            self._multiply(products, onto=self.count > 0)
            self.count += 1
            return
        alone = Part()
        alone._multiply(products)
        assert alone._total is not None
        self.add(alone._total, how)

    def _multiply(self, products: Sequence[Product], onto: bool = False) -> Tensor:
        """Writes products into the running value, or adds them to it."""
        dtype = torch.float32
        for left, right, _ in products:
            dtype = torch.promote_types(dtype, torch.promote_types(left.dtype, right.dtype))
        total = self._room(shape_of(products), dtype, products[0][0].device, onto)
        beta = float(onto)
        for left, right, scale in products:
            # a converted chunk stays in cache; converting all at once would cost page faults
            for rows, columns in zip(left.split(_ROWS), right.split(_ROWS), strict=True):
                rows, columns = (as_numbers(side.detach(), total.dtype) for side in (rows, columns))
                total.addmm_(rows.T, columns, beta=beta, alpha=scale)
                beta = 1.0
        return total

    def _materialize(self) -> None:
        """Multiplies what waits, for something else to be added."""
        if self._deferred:
            self._multiply(self._deferred)
            self._deferred = []

    def value(self, how: Reduction) -> Tensor | None:
        """The reduced part, sharing memory with this object where it can; ``None`` when empty."""
        if self.count == 0:
            return None
        if self._deferred:  # which looking at them does not change
            return how.finish(self._multiply(self._deferred), self.count)
        if how.merge is None:
            device = self._kept[-1].device
            kept = torch.broadcast_tensors(*(value.to(device) for value in self._kept))
            return how.of(torch.stack(kept))
        assert self._total is not None
        return how.finish(self._total, self.count)

    def emptying(self) -> partial[None]:
        """What empties the part in one call, and leaves the rest to :meth:`clear`."""
        return partial(setattr, self, "count", 0)

    def clear(self) -> None:
        """Empties the part and keeps its memory for the next window."""
        self.count = 0
        self._kept = []
        self._deferred = []

    def move(self, device: torch.device) -> None:
        """Moves what is pending; the dtype never narrows."""
        self._total = None if self._total is None else self._total.to(device)
        self._kept = [value.to(device) for value in self._kept]
        self._deferred = [(a.to(device), b.to(device), scale) for a, b, scale in self._deferred]

    def _room(
        self, shape: torch.Size, dtype: torch.dtype, device: torch.device, onto: bool
    ) -> Tensor:
        """The running value as a tensor that may be written in place, at least as wide as asked."""
        total = self._total
        if not onto:
            if total is None or (total.shape, total.dtype, total.device) != (shape, dtype, device):
                total = torch.empty(shape, dtype=dtype, device=device)
        else:
            assert total is not None
            total = total.to(device, torch.promote_types(total.dtype, dtype))
            if total.shape != shape:  # no parameter told its shape yet: grow to hold both
                total = total.expand(torch.broadcast_shapes(total.shape, shape)).clone()
        if total.is_inference() and not torch.is_inference_mode_enabled():
            total = total.clone()
        self._total = total
        return total

    def __getstate__(self) -> dict[str, Any]:
        # the memory that is kept for the next window is not worth a copy
        needed = self.count > 0 and not self._deferred
        return self.__dict__ if needed else {**self.__dict__, "_total": None}

    def state(self) -> dict[str, Any]:
        """Tensors and builtins that say all about what is pending."""
        pending = self.count > 0 and not self._deferred and self._total is not None
        return {
            "count": self.count,
            "total": self._total.clone() if pending and self._total is not None else None,
            "kept": [value.clone() for value in self._kept if self.count],
            "deferred": [(left.clone(), right.clone(), by) for left, right, by in self.deferred],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Takes what :meth:`state` gave, and :func:`check_part` found good."""
        self.count = state["count"]
        self._total = None if state["total"] is None else state["total"].clone()
        self._kept = [value.clone() for value in state["kept"]]
        self._deferred = [
            (left.clone(), right.clone(), by) for left, right, by in state["deferred"]
        ]


def shape_of(products: Sequence[Product]) -> torch.Size:
    """The shape that products have."""
    left, right, _ = products[0]
    return torch.Size((left.shape[1], right.shape[1]))


def _are_light(products: Sequence[Product], shape: torch.Size) -> bool:
    """Whether the sides of products, in single precision, take less memory than what they make."""
    rows = sum(len(left) for left, _, _ in products)
    return rows * sum(shape) <= shape.numel() and all(
        side.is_cpu and side.dtype in (torch.bool, torch.float32)
        for left, right, _ in products
        for side in (left, right)
    )


def _copied(side: Tensor) -> Tensor:
    return as_bytes(side).to(torch.float32, copy=True)

"""One part of a pending change: its contributions, and their running sum if that is enough."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lightning_accum.functional.numbers import at_least_float32
from lightning_accum.functional.reductions import Reduction
from lightning_accum.functional.reductions import reduction as find_reduction
from lightning_accum.sparse.products import Write
from lightning_accum.updates.products import (
    Product,
    StackedProducts,
    are_worth_deferring,
    copied,
    multiply_into,
    product_dtype,
    product_shape,
)
from lightning_accum.updates.read_copy import ReadCopy


class Part:
    """The contributions to the potentiating or to the depressing part of a parameter's change.

    The pending value is held in one of three forms: as a running value, if the reduction streams;
    as the contributions themselves, if it needs all of them; or as products that are deferred,
    which an updater can add to the parameter without storing their result.

    The running value keeps its memory when the part is cleared, and the next contribution writes
    over it: a training loop allocates it once.

    Args:
        reduction: how contributions are reduced; the sum when ``None``.
    """

    def __init__(self, reduction: Reduction | None = None) -> None:
        self.reduction = find_reduction(None) if reduction is None else reduction
        self.count = 0
        self._total: Tensor | None = None
        self._kept: list[Tensor] = []
        self._deferred: list[Product] = []
        self._stacked: StackedProducts | None = None
        self.copy = ReadCopy()

    @property
    def deferred(self) -> Sequence[Product]:
        """The deferred products; empty if anything else is pending, or nothing."""
        return self._deferred if self.count else []

    @property
    def shape(self) -> torch.Size | None:
        """The shape of the pending value, ``None`` if there is none."""
        if self.count == 0:
            return None
        if self._deferred:
            return product_shape(self._deferred[0])
        pending = self._kept if self._kept or self._total is None else [self._total]
        shape: torch.Size = torch.broadcast_shapes(*(value.shape for value in pending))
        return shape

    @property
    def device(self) -> torch.device | None:
        """The device of the pending value, ``None`` if there is none."""
        pending = self._kept[-1] if self._kept else self._total
        if self._deferred:
            pending = self._deferred[0][0]
        return None if self.count == 0 or pending is None else pending.device

    def add(self, value: Tensor) -> None:
        """Adds a copy of ``value`` as one contribution."""
        if self.count == 0:
            self.clear()
        self._materialize()
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

    def add_products(
        self, products: Sequence[Product], defer: bool = False, keep: bool = False
    ) -> None:
        """Adds the sum of products as one contribution.

        Args:
            products: at least one, all of the same shape; spikes may be boolean.
            defer: whether copies of both sides may be kept instead, if they are smaller.
            keep: whether the sides themselves may be kept, in float32, because nobody changes them.
        """
        if self.count == 0:
            self.clear()
        if defer and not self.count and self.reduction.adds and are_worth_deferring(products):
            self._deferred = list(products) if keep else copied(products)
            self.count = 1
            return
        shape = product_shape(products[0])
        device, dtype = products[0][0].device, product_dtype(products)
        self.add_written(partial(multiply_into, products=products), shape, dtype, device)

    def hold(self, products: list[Product], stacked: StackedProducts) -> None:
        """Holds deferred products as the only contribution, or nothing if there are none.

        Args:
            products: the products.
            stacked: those of both parts, in one product.
        """
        self._kept = []
        self._deferred, self._stacked, self.count = products, stacked, 1 if products else 0

    @property
    def stacked(self) -> StackedProducts | None:
        """What :meth:`hold` was given, as long as nothing has changed since."""
        found = self._stacked
        if found is None or self.count != (1 if self._deferred else 0):
            return None
        same = self._deferred is found.raised or self._deferred is found.lowered
        return found if same else None

    @torch.no_grad()
    def add_written(
        self, write: Write, shape: torch.Size, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Adds a contribution that the caller writes into the memory in which it is kept.

        Args:
            write: ``write(total, onto=...)`` writes the contribution to a tensor of the shape, and
                of the dtype or a wider one, or adds it there.
            shape: the shape of the contribution.
            dtype: its dtype.
            device: its device.
        """
        if self.count == 0:
            self.clear()
        self._materialize()
        if self.reduction.adds and self.shape in (None, shape):
            onto = self.count > 0
            write(self._writable_total(shape, dtype, device, onto), onto=onto)
            self.count += 1
            return
        # The reduction does not add, or the pending value is still to be broadcast.
        result = torch.empty(shape, dtype=dtype, device=device)
        write(result, onto=False)
        self.add(result)

    def _multiply(self, products: Sequence[Product], onto: bool = False) -> Tensor:
        """Writes products to the running value, or adds them to it."""
        shape, device = product_shape(products[0]), products[0][0].device
        total = self._writable_total(shape, product_dtype(products), device, onto)
        return multiply_into(total, products, onto)

    def _materialize(self) -> None:
        """Multiplies deferred products, because something else is about to be added."""
        if self._deferred:
            self._multiply(self._deferred)
            self._deferred = []

    def value(self) -> Tensor | None:
        """Returns the reduced part, which may share memory with this object; ``None`` if empty."""
        if self.count == 0:
            return None
        if self._deferred:  # they stay deferred after they were read
            return self.reduction.finish(self._multiply(self._deferred), self.count)
        if self.reduction.merge is None:
            device = self._kept[-1].device
            kept = torch.broadcast_tensors(*(value.to(device) for value in self._kept))
            return self.reduction.of(torch.stack(kept))
        assert self._total is not None
        return self.reduction.finish(self._total, self.count)

    def emptying_call(self) -> partial[None]:
        """Returns the one call that empties the part; :meth:`clear` then frees its memory."""
        return partial(setattr, self, "count", 0)

    def clear(self) -> None:
        """Empties the part and keeps the memory of the running value."""
        self.count = 0
        self._kept = []
        self._deferred = []
        self._stacked = None

    def move(self, device: torch.device) -> None:
        """Moves the pending value to a device; its dtype stays."""
        self._total = None if self._total is None else self._total.to(device)
        self._kept = [value.to(device) for value in self._kept]
        self._deferred = [(a.to(device), b.to(device), factor) for a, b, factor in self._deferred]

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
        needed = self.count > 0 and not self._deferred
        return self.__dict__ if needed else {**self.__dict__, "_total": None}

    def state(self) -> dict[str, Any]:
        """Returns copies of everything that is pending, as tensors and builtins."""
        pending = self.count > 0 and not self._deferred and self._total is not None
        return {
            "count": self.count,
            "total": self._total.clone() if pending and self._total is not None else None,
            "kept": [value.clone() for value in self._kept if self.count],
            "deferred": [(left.clone(), right.clone(), by) for left, right, by in self.deferred],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Loads a copy of a state that :func:`~.part_state.check_part` has passed."""
        self.count = state["count"]
        self._total = None if state["total"] is None else state["total"].clone()
        self._kept = [value.clone() for value in state["kept"]]
        self._deferred = [
            (left.clone(), right.clone(), by) for left, right, by in state["deferred"]
        ]

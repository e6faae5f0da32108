"""The values of factors: in work memory, or as the kernel computes them on the way."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum.functional.numbers import as_bytes
from lightning_accum.sparse.buffers import Scratch
from lightning_accum.sparse.kernel_sums import Rows
from lightning_accum.sparse.products import Factor, weighs_rows


class Operands:
    """Computes the values of factors, each trace once.

    Args:
        kernel: whether the compiled kernel reads them.
        dtype: the dtype of the computation.
        scratch: lends work memory.
    """

    def __init__(self, kernel: bool, dtype: torch.dtype, scratch: Scratch) -> None:
        self.kernel = kernel
        self.dtype = dtype
        self.scratch = scratch
        self._traces: dict[tuple[int, float, str], Tensor] = {}
        self._own: dict[int, Tensor] = {}  # tensors that nothing else reads

    def numbers(self, factor: Factor) -> Tensor:
        """Returns the values of a factor; traces are computed in work memory."""
        if factor.decay is None:
            values = as_bytes(factor.activity)
        else:
            key = (id(factor.activity), factor.decay, factor.mode)
            if key not in self._traces:
                room = self.room(factor.activity)
                self._traces[key] = factor.values_in(room).to(self.dtype)
            values = self._traces[key]
        if factor.weights is None:
            return values.to(self.dtype)
        room = self._mine(self.room(factor.activity))
        if values.is_floating_point():
            return torch.mul(values, factor.weights, out=room)
        return room.copy_(values).mul_(factor.weights)

    def room(self, like: Tensor) -> Tensor:
        """Returns memory for values of a shape."""
        return self.scratch.empty(tuple(like.shape), self.dtype, like.device)

    def to_overwrite(self, values: Tensor) -> Tensor:
        """Returns values if nothing else reads them, or memory of their shape."""
        return values if id(values) in self._own else self._mine(self.room(values))

    def _mine(self, room: Tensor) -> Tensor:
        self._own[id(room)] = room
        return room

    def rows(self, factor: Factor, factors: Tensor | None, traced: bool = True) -> Rows:
        """Returns values, or how the kernel computes a trace on the way.

        Args:
            factor: one side of a product.
            factors: further factors of its rows.
            traced: whether the kernel may compute a trace.
        """
        own = self.of_rows(factor)
        if self.kernel and (factor.weights is None or own is not None):
            both = own if factors is None else factors if own is None else own * factors
            if factor.folding is not None:
                like = factor.folding.potential.membrane
                return Rows(like, weights=both, folding=factor.folding)
            if factor.decay is None:
                return Rows(self._taken(factor.activity), weights=both)
            edges = factor.edges() if traced else None
            if edges is not None:
                values = self._taken(factor.activity)
                return Rows(values, factor.mode, factor.decay, *edges, weights=both)
        return Rows(self.numbers(factor), weights=factors)

    def of_rows(self, factor: Factor) -> Tensor | None:
        """Returns weights ``[T, B, ...]`` that all neurons of a sample share, for the kernel."""
        if not self.kernel or not weighs_rows(factor):
            return None
        assert factor.weights is not None
        shape = factor.activity.shape
        return factor.weights.to(self.dtype).expand(*shape[:-1], 1).squeeze(-1).contiguous()

    def _taken(self, values: Tensor) -> Tensor:
        """Returns spikes or values in the form that the kernel reads."""
        values = values if values.dtype == torch.bool else values.to(self.dtype)
        return values.contiguous()

    def summed(self, parts: list[tuple[float, Tensor]]) -> tuple[float, Tensor]:
        """Returns the sum of several factors as one rate and values; a single one is not copied."""
        (rate, total), *others = parts
        if others and id(total) not in self._own:
            total = self.room(total).copy_(total)
        for other, values in others:
            total.add_(values, alpha=other / rate)
        return rate, total

"""The contributions to one parameter's change, collected until it is applied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lightning_accum._state import CheckedState
from lightning_accum.functional.reductions import Reduction, ReductionFn
from lightning_accum.functional.reductions import reduction as find_reduction
from lightning_accum.sparse.products import Write
from lightning_accum.updates.contributions import (
    checked_contribution,
    checked_products,
    fitted_part,
)
from lightning_accum.updates.part import Part
from lightning_accum.updates.products import Product


class PendingChange(CheckedState):
    """Collects contributions to both parts of a parameter's change; abstract.

    Args:
        shape: the parameter's shape; if it is given, contributions have to broadcast to it.
        name: the parameter's name, for messages.
    """

    def __init__(self, shape: torch.Size | None = None, *, name: str = "parameter") -> None:
        super().__init__()
        try:
            self.shape = None if shape is None else torch.Size(shape)
        except (TypeError, RuntimeError):
            raise TypeError(
                "Argument `shape` should be the shape of a parameter, or None. Found"
                f" `{type(shape).__name__}`."
            ) from None
        self.name = name
        self._pos = Part()
        self._neg = Part()

    @property
    def pos(self) -> Tensor | None:
        """A copy of the potentiating part; assigning adds to the part, and ``del`` empties it."""
        return self._look(self._pos)

    @pos.setter
    def pos(self, value: Tensor | None) -> None:
        self.accumulate(pos=self._pos.copy.checked(f"{self.name}.pos", value))

    @pos.deleter
    def pos(self) -> None:
        self._known(self._pos).clear()

    @property
    def neg(self) -> Tensor | None:
        """A copy of the depressing part; assigning adds to the part, and ``del`` empties it."""
        return self._look(self._neg)

    @neg.setter
    def neg(self, value: Tensor | None) -> None:
        self.accumulate(neg=self._neg.copy.checked(f"{self.name}.neg", value))

    @neg.deleter
    def neg(self) -> None:
        self._known(self._neg).clear()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("pos", "neg"):
            # nn.Module would register an nn.Parameter that is assigned here.
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def accumulate(self, pos: Tensor | None = None, neg: Tensor | None = None) -> None:
        """Adds a contribution to each part that is given.

        Args:
            pos: change upwards, non-negative, broadcastable to the parameter's shape.
            neg: change downwards, non-negative; it will be subtracted.

        Raises:
            TypeError: if a contribution is not a tensor.
            ValueError: if a contribution does not fit the parameter's shape.
        """
        up = checked_contribution(f"{self.name}.pos", pos, *self._shapes(self._pos))
        down = checked_contribution(f"{self.name}.neg", neg, *self._shapes(self._neg))
        with torch.no_grad():
            for part, value in (self._pos, up), (self._neg, down):
                if value is not None:
                    part.add(value)

    def accumulate_outer(
        self,
        post: Tensor | Sequence[Tensor],
        pre: Tensor | Sequence[Tensor],
        scale: float | Sequence[float] = 1.0,
        *,
        negative: bool = False,
        keep: bool = False,
    ) -> None:
        r"""Adds ``scale`` · :math:`\sum_k \mathrm{post}_k \otimes \mathrm{pre}_k` to one part.

        The product is added to the running sum or mean directly, without a tensor of the
        parameter's size in between. Several products, given as sequences, are one contribution. If
        both sides are smaller than the parameter and there is no bound, copies of them are kept,
        and an updater that finds nothing else pending multiplies them into the parameter itself.

        Args:
            post: ``[K, out]``, or a sequence of such tensors.
            pre: ``[K, in]``, or a sequence of the same length; spikes may be boolean.
            scale: a factor, non-negative by convention, or a sequence with one for each product.
            negative: whether to add to the depressing part instead of the potentiating one.
            keep: whether the sides themselves may be kept, because nobody changes them.

        Raises:
            TypeError: if a side is not a tensor, or a factor is not a number.
            ValueError: if a product does not have the parameter's shape.

        Example:
            >>> import torch
            >>> from lightning_accum import Accumulator
            >>> acc = Accumulator()
            >>> acc.accumulate_outer(torch.ones(3, 2), torch.ones(3, 1))
            >>> acc.pos
            tensor([[3.],
                    [3.]])
        """
        which, part = ("neg", self._neg) if negative else ("pos", self._pos)
        label, shapes = f"{self.name}.{which}", self._shapes(part)
        products = checked_products(label, post, pre, scale, *shapes)
        if products:
            part.add_products(products, defer=not self.bounded, keep=keep)

    def accumulate_written(
        self,
        write: Write,
        shape: torch.Size,
        dtype: torch.dtype,
        device: torch.device,
        *,
        negative: bool = False,
    ) -> None:
        """Adds a contribution that the caller writes into the memory in which it is kept.

        Args:
            write: writes it to a tensor of the shape, of the dtype or a wider one, or adds it.
            shape: the shape of the contribution.
            dtype: its dtype.
            device: its device.
            negative: whether to add to the depressing part, as in :meth:`accumulate_outer`.

        Raises:
            ValueError: if the contribution does not fit the parameter's shape.
        """
        which, part = ("neg", self._neg) if negative else ("pos", self._pos)
        like = torch.empty(shape, device="meta")
        checked_contribution(f"{self.name}.{which}", like, *self._shapes(part))
        part.add_written(write, shape, dtype, device)

    def _shapes(self, part: Part) -> tuple[torch.Size | None, torch.Size | None]:
        """Returns the parameter's shape or, if it is not known, that of what a part holds."""
        return self.shape, part.shape if self.shape is None else None

    def clear(self, **kwargs: Any) -> None:
        """Drops everything that is pending; the reduction and the bounds stay."""
        self._pos.clear()
        self._neg.clear()

    def emptying_calls(self) -> list[partial[None]]:
        """Returns calls that empty both parts; :meth:`clear` then frees their memory."""
        return [self._pos.emptying_call(), self._neg.emptying_call()]

    @property
    def empty(self) -> bool:
        """Whether nothing is pending."""
        return self._pos.count == 0 and self._neg.count == 0

    @property
    def contributions(self) -> int:
        """The number of pending contributions, to the part that has more of them."""
        return max(self._pos.count, self._neg.count)

    @property
    def deferred(self) -> list[Product]:
        """The change as products with signed factors; empty if it holds anything else."""
        pos, neg = self._pos, self._neg
        raised, lowered = pos.deferred, neg.deferred
        if self.bounded or (pos.count and not raised) or (neg.count and not lowered):
            return []
        return [*raised, *[(left, right, -factor) for left, right, factor in lowered]]

    @property
    def bounded(self) -> bool:
        """Whether a bound needs both parts, so that products cannot be deferred."""
        raise NotImplementedError

    def reduction(self, fn: ReductionFn | str | None = None) -> None:
        """Sets how contributions to a part are reduced.

        Args:
            fn: ``fn(stacked, dim) -> Tensor``; ``None`` is :func:`torch.sum`. Sum, mean, amax and
                amin stream, in the memory of one tensor; any other callable sees every
                contribution.

        Raises:
            RuntimeError: if contributions are pending.
        """
        self._pos.reduction = self._neg.reduction = self.check_reduction(fn)

    def check_reduction(self, fn: ReductionFn | str | None) -> Reduction:
        """Returns the reduction that :meth:`reduction` would set, or raises its error."""
        new = find_reduction(fn)
        if not self.empty and new != self._pos.reduction:
            raise RuntimeError(
                f"The reduction of `{self.name}` cannot change while contributions are pending:"
                " apply them with the updater, or drop them with `clear()`, first."
            )
        return new

    def parts(self, param: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Returns the reduced parts in ``param``'s shape, on its device.

        They may share memory with this object.

        Raises:
            ValueError: if the pending contributions do not fit ``param``.
        """
        pos, neg = (fitted_part(self.name, param, p.value()) for p in (self._pos, self._neg))
        return pos, neg

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> PendingChange:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = fn(torch.empty(0, device=self._pos.device or self._neg.device)).device
        for part in (self._pos, self._neg):
            part.move(device)
        return self

    def _look(self, part: Part) -> Tensor | None:
        return part.copy.of(self._known(part).value())

    def _known(self, part: Part) -> Part:
        """Returns a part, if it is known by itself."""
        return part

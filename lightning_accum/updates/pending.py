"""What is pending for one parameter: both parts of its change, and the bounds on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_accum.functional.reductions import Reduction, ReductionFn, reduction
from lightning_accum.updates.parameter_bounds import Bounds
from lightning_accum.updates.part import (
    Part,
    Product,
    StackedProducts,
    Write,
    may_wait,
    product_shape,
)


class Pending:
    """Both parts of a parameter's change; its length is the larger number of contributions."""

    # A change is in two parts, or it is one product that waits to be added to the parameter, which
    # then is all that is pending.

    def __init__(
        self,
        shape: torch.Size | None = None,
        name: str = "parameter",
        how: Reduction | None = None,
    ) -> None:
        self.shape, self.name, self.bounds = shape, name, Bounds()
        self.pos, self.neg = Part(how), Part(how)
        self.keep_parts: bool | None = None
        self.may_combine = False  # used if `keep_parts` is None
        self.combined = False  # whether the potentiating part is the difference of both
        self.waiting: StackedProducts | None = None
        self.record: Pending | None = None  # to which rules add both parts, until a clear
        self.noticed = False  # whether somebody has read what was pending
        self.cleared = 0  # contributions that were dropped

    def __len__(self) -> int:
        return int(self.waiting is not None) or max(self.pos.count, self.neg.count)

    # ------------------------------------------------------------------ contributions
    def add(self, pos: Tensor | None = None, neg: Tensor | None = None) -> None:
        """Adds a contribution to each part that is given."""
        values = self._checked("pos", pos), self._checked("neg", neg)
        self._settle()
        with torch.no_grad():
            for part, value in zip((self.pos, self.neg), values, strict=True):
                if value is not None:
                    part.add(value)

    def add_products(
        self, pos: Sequence[Product] = (), neg: Sequence[Product] = (), any_size: bool = False
    ) -> None:
        """Adds the sum of products to each part that is given some, as one contribution."""
        # If the sides of all are smaller than the parameter, or of any size, copies of them wait,
        # and an updater that finds nothing else pending multiplies them into the parameter itself.
        for which, products in ("pos", pos), ("neg", neg):
            if products:
                self._check_products(which, products)
        if self.is_free and may_wait(pos, neg, any_size):
            self.waiting = StackedProducts.of(pos, neg)
            return
        self._settle()
        for part, products in (self.pos, pos), (self.neg, neg):
            if products:
                part.add_products(products)

    def add_written(
        self,
        write: Write,
        shape: torch.Size,
        dtype: torch.dtype,
        device: torch.device,
        *,
        negative: bool = False,
    ) -> None:
        """Adds a contribution that ``write(total, onto=...)`` writes to memory that keeps it."""
        self._check_shape("neg" if negative else "pos", shape)
        self._settle()
        (self.neg if negative else self.pos).add_written(write, shape, dtype, device)

    def _settle(self) -> None:
        """Adds a product that waits to the parts, because something else is about to be added."""
        if self.waiting is not None:
            for part, products in zip((self.pos, self.neg), self.waiting.products(), strict=True):
                if products:
                    part.add_products(products)
            self.waiting = None

    def _checked(self, which: str, value: Tensor | None) -> Tensor | None:
        """Returns a contribution in the parameter's shape; ``None`` stays ``None``."""
        if value is None:
            return None
        label = f"{self.name}.{which}"
        if not isinstance(value, Tensor):
            raise TypeError(
                f"A contribution to `{label}` should be a tensor or None."
                f" Found `{type(value).__name__}`: wrap it with `torch.as_tensor`."
            )
        if value.is_complex():
            raise TypeError(
                f"A contribution to `{label}` should be real. Found `{value.dtype}`: take its real"
                " part, or its magnitude."
            )
        if value.layout is not torch.strided:
            raise TypeError(
                f"A contribution to `{label}` should be dense. Found `{value.layout}`: pass its"
                " `to_dense()`."
            )
        self._check_shape(which, value.shape)
        return value if self.shape is None else value.expand(self.shape)

    def _check_products(self, which: str, products: Sequence[Product]) -> None:
        """Raises a ``ValueError`` unless the sides of products are matrices that fit together."""
        shape = self.shape
        for product in products:
            left, right, _ = product
            if left.ndim != 2 or right.ndim != 2 or left.shape[0] != right.shape[0]:
                raise ValueError(
                    f"Both sides of a product added to `{self.name}.{which}` should be matrices,"
                    f" `[K, out]` and `[K, in]`. Found shapes {tuple(left.shape)} and"
                    f" {tuple(right.shape)}."
                )
            if shape is None:
                shape = product_shape(product)
                self._check_shape(which, shape)
            elif (left.shape[1], right.shape[1]) != shape:
                raise ValueError(
                    f"A product added to `{self.name}.{which}` should have the shape"
                    f" {tuple(shape)}. Found shape {tuple(product_shape(product))}."
                )

    def _check_shape(self, which: str, found: torch.Size) -> None:
        """Raises a ``ValueError`` unless a shape broadcasts to the parameter's, if it is known."""
        whose, expected = "the parameter's", self.shape
        if expected is None:
            whose, part = "the pending contributions'", self.pos if which == "pos" else self.neg
            expected = part.shape if self.waiting is None else self.waiting.shape
        if expected is None or found == expected:
            return
        try:
            joined = torch.broadcast_shapes(found, expected)
        except RuntimeError:
            joined = None
        if joined is None or (self.shape is not None and joined != expected):
            raise ValueError(
                f"A contribution to `{self.name}.{which}` should have, or broadcast to, {whose}"
                f" shape {tuple(expected)}. Found shape {tuple(found)}."
            )

    # ------------------------------------------------------------------ what is pending
    @property
    def is_free(self) -> bool:
        """Whether a product may wait here: nothing is pending, and nothing but sums will be."""
        return not len(self) and self.pos.reduction.adds and not self.bounds

    def parts(self, param: Tensor | None = None) -> tuple[Tensor | None, Tensor | None]:
        """Returns the reduced parts, perhaps in this memory, if given in ``param``'s shape."""
        if self.bounds:  # a sibling may have set one since
            check_apart(self, "bounded")
        if self.waiting is None:
            pos, neg = self.pos.value(), self.neg.value()
        else:
            pos, neg = self.waiting.parts()
        if param is not None:
            shape, device = param.shape, param.device
            if pos is not None and (pos.shape != shape or pos.device != device):
                pos = self._fitted(pos, param)
            if neg is not None and (neg.shape != shape or neg.device != device):
                neg = self._fitted(neg, param)
        return pos, neg

    def _fitted(self, value: Tensor, param: Tensor) -> Tensor:
        """Expands a reduced part to the shape of a parameter, on its device."""
        try:
            return value.expand(param.shape).to(param.device)
        except RuntimeError:
            raise ValueError(
                f"The change pending for `{self.name}` should fit the parameter's shape"
                f" {tuple(param.shape)}. Found shape {tuple(value.shape)}: drop it with"
                " `clear()` and add contributions of the parameter's shape."
            ) from None

    def readable(self) -> Pending:
        """Returns this, or the record of both parts if their difference is pending here."""
        self.noticed = True
        if self.combined and self.record is not None:
            return self.record
        check_apart(self, "read")
        return self

    # ------------------------------------------------------------------ the difference of both
    @property
    def combines(self) -> bool:
        """Whether the difference of both parts may be added, because nothing needs each part."""
        wanted, how = self.may_combine, self.pos.reduction
        wanted = wanted if self.keep_parts is None else not self.keep_parts
        return wanted and how.adds and not how.averages and not self.bounds

    def record_parts(self, record: Pending | None = None) -> Pending:
        """Returns a record, or the given one, to which rules add both parts until a clear."""
        record = Pending(self.shape, self.name) if record is None else record
        record.clear()
        record.add(*self.parts())
        self.record = record
        return record

    # ------------------------------------------------------------------ dropped, replaced, moved
    def clear(self, which: Literal["pos", "neg"] | None = None) -> None:
        """Drops everything that is pending, or one part of it."""
        if which is not None:
            self._settle()
            (self.pos if which == "pos" else self.neg).clear()
            return
        self.cleared += len(self)
        self.pos.clear()
        self.neg.clear()
        self.waiting = self.record = None
        self.combined = False

    def replace(self, pos: Tensor, neg: Tensor) -> None:
        """Replaces what is pending by its sum over processes, which may have combined parts."""
        combined = self.combines or self.combined
        self.clear()
        self.add(pos, neg)
        self.combined = combined

    def emptying(self) -> list[partial[None]]:
        """Returns calls of C that empty this; :meth:`clear` then frees its memory."""
        calls = [partial(setattr, part, "count", 0) for part in (self.pos, self.neg)]
        for name, empty in ("waiting", None), ("record", None), ("combined", False):
            if getattr(self, name) is not empty:
                calls.append(partial(setattr, self, name, empty))
        return calls

    def moving(self, move: Callable[[Tensor], Tensor]) -> list[partial[None]]:
        """Returns calls that replace what is pending by what ``move`` makes of it."""
        self._settle()
        calls = [*self.pos.moving(move), *self.neg.moving(move)]
        return calls if self.record is None else [*calls, *self.record.moving(move)]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "may_combine": False}  # a copy is not in the fit of its original


def check_apart(pending: Pending, what: str) -> None:
    """Raises a ``RuntimeError`` if the difference of both parts is pending."""
    if pending.combined and len(pending):
        raise RuntimeError(
            f"Both parts of the change of `{pending.name}` should be known to be {what}. Found"
            " their difference, which a rule has added: apply it, or drop it with `clear()`,"
            " and set `keep_parts = True` of the accumulator before the rule runs."
        )


def checked_reduction(pending: Pending, fn: ReductionFn | str | None) -> Reduction:
    """Returns the reduction of a name or a function, which is to reduce what is pending."""
    new = reduction(fn)
    if len(pending) and new != pending.pos.reduction:
        raise RuntimeError(
            f"The reduction of `{pending.name}` cannot change while contributions are pending:"
            " apply them with the updater, or drop them with `clear()`, first."
        )
    return new

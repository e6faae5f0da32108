"""The parts of a pending change: contributions, products that wait, and their running sum."""

import math
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from lightning_accum._checks import check_numbers, check_tensors
from lightning_accum._state import COUNT, REAL, Kind, check_state, check_that, list_of, optional
from lightning_accum.functional.dtypes import as_bytes, as_numbers, at_least_float32
from lightning_accum.functional.reductions import Reduction
from lightning_accum.functional.reductions import reduction as find_reduction

Product: TypeAlias = tuple[Tensor, Tensor, float]
"""``post`` of shape ``[K, out]``, ``pre`` of shape ``[K, in]``, and a factor of ``postᵀ · pre``."""

Write: TypeAlias = Callable[..., object]
"""Writes a sum to a tensor, or adds it there: ``write(total, onto=...)``."""


class StackedProducts:
    """Products of which both sides are stacked too, so that one product adds them all."""

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

    def copy(side: Tensor) -> Tensor:
        side = side.detach() if side.requires_grad else side
        return as_bytes(side).to(torch.float32, copy=True)

    return [(copy(left), copy(right), float(factor)) for left, right, factor in products]


class Part:
    """The contributions to the potentiating or to the depressing part of a parameter's change."""

    # The pending value is held in one of three forms: as a running value, if the reduction streams;
    # as the contributions themselves, if it needs all of them; or as products that are deferred,
    # which an updater can add to the parameter without storing their result. The running value
    # keeps its memory when the part is cleared, and the next contribution writes over it: a
    # training loop allocates it once.

    def __init__(self, reduction: Reduction | None = None) -> None:
        self.reduction = find_reduction(None) if reduction is None else reduction
        self.count = 0
        self._total: Tensor | None = None
        self._kept: list[Tensor] = []
        self._deferred: list[Product] = []
        self._stacked: StackedProducts | None = None
        self._read: weakref.ref[Tensor] | None = None  # the copy that was read last

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
        """Adds the sum of products as one contribution."""
        if defer and not self.count and self.reduction.adds and are_worth_deferring(products):
            self.clear()
            self._deferred = list(products) if keep else copied(products)
            self.count = 1
            return
        shape = product_shape(products[0])
        device, dtype = products[0][0].device, product_dtype(products)
        self.add_written(partial(multiply_into, products=products), shape, dtype, device)

    def hold(self, products: list[Product], stacked: StackedProducts) -> None:
        """Holds products, ``stacked`` with those of the other part, as the only contribution."""
        self._kept = []
        self._deferred, self._stacked, self.count = products, stacked, 1 if products else 0

    @property
    def stacked(self) -> StackedProducts | None:
        """The products that :meth:`hold` was given, unless the part has changed since."""
        found = self._stacked
        if found is None or self.count != (1 if self._deferred else 0):
            return None
        same = self._deferred is found.raised or self._deferred is found.lowered
        return found if same else None

    @torch.no_grad()
    def add_written(
        self, write: Write, shape: torch.Size, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Adds a contribution that ``write(total, onto=...)`` writes to the running value."""
        if self.count == 0:
            self.clear()
        elif self._deferred:
            self._materialize()
        onto = self.count > 0
        if self.reduction.adds and (not onto or self.shape == shape):
            write(self._writable_total(shape, dtype, device, onto), onto=onto)
            self.count += 1
            return
        # The reduction does not add, or the pending value is still to be broadcast.
        result = torch.empty(shape, dtype=dtype, device=device)
        write(result, onto=False)
        self.add(result)

    def _multiply(self) -> Tensor:
        """Returns the running value, after writing the sum of deferred products to it."""
        products, device = self._deferred, self._deferred[0][0].device
        shape, dtype = product_shape(products[0]), product_dtype(products)
        return multiply_into(self._writable_total(shape, dtype, device, False), products, False)

    def _materialize(self) -> None:
        """Multiplies deferred products, because something else is about to be added."""
        if self._deferred:
            self._multiply()
            self._deferred = []

    def value(self) -> Tensor | None:
        """Returns the reduced part, which may share memory with this object; ``None`` if empty."""
        if self.count == 0:
            return None
        if self._deferred:  # they stay deferred after they were read
            return self._multiply()
        if self.reduction.merge is None:
            device = self._kept[-1].device
            kept = torch.broadcast_tensors(*(value.to(device) for value in self._kept))
            return self.reduction.of(torch.stack(kept))
        assert self._total is not None
        if not self.reduction.averages:
            return self._total
        return self.reduction.finish(self._total, self.count)

    def read(self) -> Tensor | None:
        """Returns a copy of the reduced part, and remembers it."""
        value = self.value()
        copy = None if value is None else value.clone()
        self._read = None if copy is None else weakref.ref(copy)
        return copy

    def check_new(self, label: str, value: Tensor | None) -> None:
        """Raises a ``ValueError`` if a value is the copy that was read last, as with ``+=``."""
        if value is not None and self._read is not None and value is self._read():
            raise ValueError(
                f"A value assigned to `{label}` should be a new contribution, which is added to"
                " what is pending. Found the tensor that was read from there, as with `+=`, by"
                f" which what is pending would count twice: write `{label} = value` to add"
                f" `value`, and `del {label}` before it to replace what is pending."
            )

    def clear(self) -> None:
        """Empties the part and keeps the memory of the running value."""
        self.count = 0
        self._kept = []
        self._deferred = []
        self._stacked = None

    def move(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Moves what is pending to where ``fn`` moves tensors; its dtype stays."""

        def moved(value: Tensor) -> Tensor:
            return value.to(fn(value.new_empty(0)).device)

        self._total = None if self._total is None else moved(self._total)
        self._kept = [moved(value) for value in self._kept]
        self._deferred = [(moved(left), moved(right), by) for left, right, by in self._deferred]

    def rearranging(self, move: Callable[[Tensor], Tensor]) -> list[partial[None]]:
        """Returns calls that move the elements of what is pending; none of it is deferred."""
        total = move(self._total) if self.count and self._total is not None else self._total
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
        needed = self.count > 0 and not self._deferred
        return {**self.__dict__, "_read": None, "_total": self._total if needed else None}

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
        """Loads a copy of a state that :func:`check_part` has passed."""
        self.count = state["count"]
        self._total = None if state["total"] is None else state["total"].clone()
        self._kept = [value.clone() for value in state["kept"]]
        self._deferred = [(a.clone(), b.clone(), by) for a, b, by in state["deferred"]]


def checked_contribution(
    label: str, value: Tensor | None, shape: torch.Size | None, pending: torch.Size | None
) -> Tensor | None:
    """Returns a contribution in the parameter's shape; ``None`` stays ``None``."""
    if value is None:
        return None
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
    _check_shape(label, value.shape, shape, pending)
    return value if shape is None else value.expand(shape)


def checked_products(
    label: str,
    post: Tensor | Sequence[Tensor],
    pre: Tensor | Sequence[Tensor],
    scale: float | Sequence[float],
    shape: torch.Size | None,
    pending: torch.Size | None,
) -> list[Product]:
    """Returns products that can be added to a part, as one contribution."""
    posts: list[Any] = list(post) if isinstance(post, (list, tuple)) else [post]
    pres: list[Any] = list(pre) if isinstance(pre, (list, tuple)) else [pre]
    scales = list(scale) if isinstance(scale, Sequence) else [scale] * len(posts)
    for factor in scales:
        if type(factor) is not float:
            check_numbers(**{f"scale[{i}]": scale for i, scale in enumerate(scales)})
    for name, sides in ("post", posts), ("pre", pres):
        for side in sides:
            if not isinstance(side, Tensor):
                check_tensors(**{name: side})
    if not len(posts) == len(pres) == len(scales):
        raise ValueError(
            "Arguments `post`, `pre` and `scale` should be as many as each other. Found"
            f" {len(posts)}, {len(pres)} and {len(scales)}."
        )
    products = list(zip(posts, pres, scales, strict=True))
    for product in products:
        left, right, _ = product
        if left.ndim != 2 or right.ndim != 2 or left.shape[0] != right.shape[0]:
            raise ValueError(
                "Arguments `post` and `pre` should be matrices `[K, out]` and `[K, in]`."
                f" Found shapes {tuple(left.shape)} and {tuple(right.shape)}."
            )
        if shape is None:
            shape = product_shape(product)
            _check_shape(label, shape, None, pending)
        elif (left.shape[1], right.shape[1]) != shape:
            raise ValueError(
                f"A product added to `{label}` should have the shape {tuple(shape)}. Found shape"
                f" {tuple(product_shape(product))}."
            )
    return products


def _check_shape(
    label: str, found: torch.Size, shape: torch.Size | None, pending: torch.Size | None
) -> None:
    """Raises a ``ValueError`` unless a shape broadcasts to the parameter's, or with the pending."""
    whose, expected = "the parameter's", shape
    if shape is None:
        whose, expected = "the pending contributions'", pending
    if expected is None or found == expected:
        return
    try:
        joined = torch.broadcast_shapes(found, expected)
    except RuntimeError:
        joined = None
    if joined is None or (shape is not None and joined != expected):
        raise ValueError(
            f"A contribution to `{label}` should have, or broadcast to, {whose} shape"
            f" {tuple(expected)}. Found shape {tuple(found)}."
        )


def check_part(
    place: str, state: Any, reduction: Reduction, shape: torch.Size | None = None
) -> None:
    """Raises a ``RuntimeError`` unless a state is one that :meth:`Part.state` returns."""
    kinds = {"count": COUNT, "total": optional(_PENDING), "kept": _KEPT, "deferred": _DEFERRED}
    check_state(place, state, kinds)
    count, total, kept, deferred = (state[key] for key in kinds)
    streams = reduction.merge is not None
    held = [total is not None, bool(kept), bool(deferred)]
    expected = [count > 0 and streams and not deferred, count > 0 and not streams, bool(deferred)]
    complete = streams or len(kept) == count
    deferrable = not deferred or (count == 1 and reduction.adds)
    should = f"what {count} contributions make under the reduction `{reduction.name}`"
    check_that(held == expected and complete and deferrable, place, should, state)
    products = [product_shape(product) for product in deferred]
    try:
        torch.broadcast_shapes(*(value.shape for value in kept), *products[:1])
    except RuntimeError:
        check_that(False, place, "contributions of shapes that broadcast", state)
    check_that(len(set(products)) <= 1, place, "products of one shape", state)
    shapes = [value.shape for value in [total, *kept] if value is not None] + products[:1]
    for each in shapes:
        if shape is not None and each != shape:
            raise RuntimeError(
                f"The state of {place} should have the parameter's shape {tuple(shape)}. Found"
                f" {tuple(each)}: it belongs to another network."
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
_KEPT = list_of(_PENDING)
_DEFERRED = list_of(Kind("two matrices `[K, ...]` and a factor", _is_product))

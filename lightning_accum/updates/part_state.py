"""The check of a saved part of a pending change, before it is loaded."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum._state import COUNT, REAL, Kind, check_state, check_that, list_of, optional
from lightning_accum.functional.numbers import at_least_float32
from lightning_accum.functional.reductions import Reduction
from lightning_accum.updates.products import product_shape


def check_part(
    place: str, state: object, reduction: Reduction, shape: torch.Size | None = None
) -> None:
    """Checks that a state is one that :meth:`Part.state` returns.

    Args:
        place: the name of the part, for messages.
        state: the state that is about to be loaded.
        reduction: the reduction of the part that is to take it.
        shape: the parameter's shape, if it is known.

    Raises:
        RuntimeError: if it is not.
    """
    kinds = {"count": COUNT, "total": optional(_PENDING), "kept": _KEPT, "deferred": _DEFERRED}
    found = check_state(place, state, kinds)
    count, total, kept, deferred = (found[key] for key in ("count", "total", "kept", "deferred"))
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
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        return False
    left, right, factor = value
    sides = all(_is_pending(side) and side.ndim == 2 for side in (left, right))
    return (
        sides
        and left.dtype == right.dtype
        and len(left) == len(right)
        and isinstance(factor, float)
    )


_PENDING = Kind("a dense tensor of at least single precision", _is_pending)
_KEPT = list_of(_PENDING)
_DEFERRED = list_of(Kind("two matrices `[K, ...]` and a factor", _is_product))

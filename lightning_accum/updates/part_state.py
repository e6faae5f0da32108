"""What a state may say of one half of a pending change."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_accum._state import COUNT, REAL, Kind, check_state, check_that, list_of, optional
from lightning_accum.functional.numbers import at_least_float32
from lightning_accum.functional.reductions import Reduction
from lightning_accum.updates.part import Product, shape_of


def check_part(place: str, state: object, how: Reduction) -> None:
    """Raises a ``RuntimeError`` if this is not what a part of such a reduction has pending."""
    kinds = {"count": COUNT, "total": optional(_PENDING), "kept": _KEPT, "deferred": _DEFERRED}
    found = check_state(place, state, kinds)
    count, kept, deferred = found["count"], found["kept"], found["deferred"]
    held = [found["total"] is not None, bool(kept), bool(deferred)]
    streams = how.merge is not None
    wanted = [count > 0 and streams and not held[2], count > 0 and not streams, held[2]]
    whole = (streams or len(kept) == count) and (not deferred or (count == 1 and how.adds))
    should = f"what {count} contributions make under the reduction `{how.name}`"
    check_that(held == wanted and whole, place, should, state)
    try:
        torch.broadcast_shapes(*(value.shape for value in kept), *_shapes(deferred)[:1])
    except RuntimeError:
        check_that(False, place, "contributions of shapes that broadcast", state)
    check_that(len(set(_shapes(deferred))) <= 1, place, "products of one shape", state)


def _shapes(products: Sequence[Product]) -> list[torch.Size]:
    return [shape_of([product]) for product in products]


def _is_pending(value: object) -> bool:
    """Whether this is a dense tensor in a dtype in which contributions are kept."""
    if not REAL.fits(value) or not isinstance(value, Tensor):
        return False
    return value.is_floating_point() and at_least_float32(value.dtype) == value.dtype


def _is_product(value: object) -> bool:
    if not isinstance(value, (tuple, list)) or len(value) != 3:
        return False
    left, right, by = value
    sides = all(_is_pending(s) and s.ndim == 2 and s.dtype == torch.float32 for s in (left, right))
    return sides and len(left) == len(right) and isinstance(by, float)


_PENDING = Kind("a dense tensor of at least single precision", _is_pending)
_KEPT = list_of(_PENDING)
_DEFERRED = list_of(Kind("two matrices `[K, ...]` and a factor", _is_product))

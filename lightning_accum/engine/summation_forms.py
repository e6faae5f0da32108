"""The form in which products are summed: dense products, or visits to the spikes of one side."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import torch

from lightning_accum.engine.product_sums import Unmoved
from lightning_accum.engine.term_operands import Activity, Product, Side
from lightning_accum.sparse.events import density
from lightning_accum.sparse.kernel_library import has_kernel

Choice: TypeAlias = Literal["dense", "pre", "post", "step"]
"""Dense products, the spikes of one side, or the dense products of a single step."""

# `benchmarks/choices.py` measures how near a choice by these numbers is to the fastest form.
_FEWEST_ROWS = 32  # steps times samples from which spikes are visited
_WEIGHTS_PER_ROW = 1 << 16  # so many weights need one row, as a visit writes all of them
_MOST_SPIKES = 0.6  # of all entries, up to which spikes are visited
_SMALL, _ENTRY = 1_500_000, 450  # multiplications in 20 µs, and in the time to read an entry
_ORDER = 30  # additions in the time to put an event in the order of columns

_PLACES: dict[Unmoved, int] = {"pre": 1, "post": 0}  # in the operands of a product


class Form(NamedTuple):
    """How some products are evaluated together."""

    choice: Choice
    side: Unmoved  # whose traces move to the other side
    places: tuple[int, ...]  # which products these are


def forms_of(products: Sequence[Product], combine: bool) -> list[Form]:
    """Returns the forms of products of a matrix, by the sides on which they have spikes."""
    if products[0].operands[0].source.shape[0] == 1:
        return [Form("step", "pre", tuple(range(len(products))))]
    groups: dict[tuple[bool, ...], list[int]] = {}
    for place, product in enumerate(products):
        groups.setdefault(tuple(map(_is_raster, product.operands)), []).append(place)
    forms = []
    for places in groups.values():
        some = [products[place] for place in places]
        side = _visited_side(some)
        forms.append(Form(side or "dense", side or unmoved_side(some, combine), tuple(places)))
    return forms


def _visited_side(products: Sequence[Product]) -> Unmoved | None:
    """Returns the side whose spikes are visited: where it takes less time, if it pays."""
    post, pre = (side.source for side in products[0].operands)
    folded = any(side.source.folding is not None for each in products for side in each.operands)
    rows, (thin, wide) = post.shape[:-1].numel(), sorted((post.shape[-1], pre.shape[-1]))
    fewest = max(_FEWEST_ROWS, thin * wide // _WEIGHTS_PER_ROW)
    # dense products of little take less time than a choice between them and visits
    small = rows * wide * (_ENTRY + len(products) * thin) < _SMALL
    if not folded and (rows < fewest or small):
        return None  # a visit to spikes also computes what is folded
    found: list[tuple[float, float, Unmoved]] = []
    sides: tuple[tuple[Unmoved, Activity], ...] = ("pre", post), ("post", pre)
    for side, other in sides:
        factors = [product.operands[_PLACES[side]] for product in products]
        own = factors[0].source
        if all(map(_is_raster, factors)) and all(each.source is own for each in factors):
            known, entries = own.known_events, own.shape.numel()
            raster = own.activity.flatten(0, -2)
            events = density(raster) * entries if known is None else len(known)
            # in additions: rows and their visits, and the search for events
            work = other.shape[-1] * (rows * len(products) + events) + _ORDER * events
            work += entries if known is None else 0
            found.append((work, events / max(1, entries), side))
    if not found:
        return None
    _, share, side = min(found)
    return side if share <= _MOST_SPIKES else None


def unmoved_side(products: Sequence[Product], combine: bool = False) -> Unmoved:
    """Returns the side that stays unchanged in dense products; traces move to the other side."""
    # It is the side that makes fewer products of sums, or the larger one.
    post, pre = products[0].operands
    values = pre.activity
    if values.dtype != torch.bool and not values.is_floating_point():
        return "pre"  # indices have no trace
    by_post, by_pre = (  # how many dense products are left if traces move away from a side
        len({(each.rate < 0 and not combine, _left(each.operands[place])) for each in products})
        for place in (0, 1)
    )
    if by_post != by_pre:
        return "pre" if by_pre < by_post else "post"
    return "pre" if pre.source.shape.numel() >= post.source.shape.numel() else "post"


def _left(own: Side) -> tuple[int, float | None]:
    """Returns what a factor leaves on its side of dense products, which are grouped by it."""
    left: object = own if own.weights is not None else own.source.folding or own.activity
    nearest = own.decay is not None and own.mode == "nearest"  # which dense products cannot move
    return id(left), own.decay if nearest else None


def _is_raster(factor: Side) -> bool:
    """Returns whether a factor is of spikes that the kernel may visit."""
    source = factor.source
    return source.is_raster and has_kernel(source.device, source.dtype)

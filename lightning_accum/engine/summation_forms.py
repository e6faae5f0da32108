"""The form in which products are summed: dense products, or visits to the spikes of one side."""

import math
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
_SMALL, _ENTRY = 1_500_000, 450  # multiplications in 20 µs, and in the time to read an entry
# Time, if to add an entry of a row takes 1: of a multiplication in a dense product, to convert an
# entry to a number, to sort an event by its column, and to find its neuron's event before it, too.
_PRODUCT, _NUMBER, _ORDER, _AGE = 0.25, 15.0, 60.0, 300.0

_Choice: TypeAlias = Literal["dense", "pre", "post"]
_Rasters: TypeAlias = tuple[int, int]  # the sides of products that have spikes; else 0


class Form(NamedTuple):
    """How some products are evaluated together."""

    choice: Choice
    side: Unmoved  # whose traces move to the other side
    places: tuple[int, ...]  # which products these are


def forms_of(products: Sequence[Product], combine: bool) -> list[Form]:
    """Returns the forms of products of a matrix, by the sides on which they have spikes."""
    first = products[0].operands[0].source
    if first.shape[0] == 1:
        return [Form("step", "pre", tuple(range(len(products))))]
    kernel = has_kernel(first.device, first.dtype)  # which visits spikes
    groups: dict[_Rasters, list[int]] = {}
    for place, product in enumerate(products):
        post, pre = product.operands[0].source, product.operands[1].source
        rasters = kernel and post.is_raster and id(post), kernel and pre.is_raster and id(pre)
        groups.setdefault(rasters, []).append(place)
    forms = []
    for rasters, places in groups.items():
        some = [products[place] for place in places]
        choice = _choice(some, rasters, combine)
        side = unmoved_side(some, combine) if choice == "dense" else choice
        forms.append(Form(choice, side, tuple(places)))
    return forms


def _choice(products: Sequence[Product], rasters: _Rasters, combine: bool) -> _Choice:
    """Returns what takes the least time for a window of several steps."""
    post, pre = products[0].operands[0].source, products[0].operands[1].source
    (*leading, outputs), inputs = post.shape, pre.shape[-1]
    rows, weights, parts = math.prod(leading), outputs * inputs, set()
    folded, nearest = False, [False, False]
    for each in products:
        parts.add(combine or each.rate < 0)
        for place, side in enumerate(each.operands):
            folded |= side.source.folding is not None
            nearest[place] |= side.mode == "nearest"
    # dense products of little take less time than a choice between them and visits
    small = rows * (_ENTRY * max(inputs, outputs) + len(products) * weights) < _SMALL
    if not folded and (small or rows < max(_FEWEST_ROWS, weights // _WEIGHTS_PER_ROW)):
        return "dense"
    dense = rows * (_PRODUCT * len(parts) * weights + _NUMBER * (inputs + outputs))
    # a visit to spikes also computes what is folded
    found: list[tuple[float, _Choice]] = [(math.inf if folded else dense, "dense")]
    if rasters[0]:
        made = inputs * rows * len(products)
        found.append((made + _work_of_visits(post, inputs, nearest[0]), "post"))
    if rasters[1]:
        made = outputs * rows * len(products)
        found.append((made + _work_of_visits(pre, outputs, nearest[1]), "pre"))
    return min(found)[1]


def _work_of_visits(own: Activity, size: int, nearest: bool) -> float:
    """Returns what visits to the spikes of a side take, each of which adds a row of a size."""
    # An estimate, even if the spikes have been found: in the first window after a resume they may
    # not have been, and the choice, which decides on the last bits, should be the same.
    spikes = own.shape.numel() * density(own.activity.flatten(0, -2))
    return spikes * (size + (_AGE if nearest else _ORDER))


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

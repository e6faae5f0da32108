"""The cost model: whether dense products or visits to spikes are cheaper."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import torch

from lightning_accum.engine.fold import Side, weighs_rows
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.terms import Term
from lightning_accum.sparse.events import density
from lightning_accum.sparse.kernel_library import has_kernel

Choice: TypeAlias = Literal["dense", "pre", "post", "step"]
"""Dense products, the spikes of one side, or the dense products of a single step."""

_MOST_KINDS = 64
_CHOICE = 20_000.0  # nanoseconds that it takes to count events and choose


class Costs(NamedTuple):
    """The costs of a sum of products over a window, in nanoseconds; only their ratios matter."""

    multiply: float  # a multiply-add of a dense product
    prepare: float  # an entry of the larger side of dense products, converted and read from memory
    dense_trace: float  # an element of a trace of dense products
    weight: float  # an element of a factor that is weighted
    search: float  # an entry searched for events
    event: float  # an event found and sorted
    share: float  # the weight of an event, if each has its own
    add: float  # an element that an event adds
    trace: float  # an element of a trace of the rows that events add
    write: tuple[float, float]  # an element of the sum, by the side that is visited: pre, post
    columns: int = 1  # how many columns of the rows are computed together


# Fitted to times on one core with AVX-512, of the windows and rules of benchmarks/choices.py.
KERNEL = Costs(0.0134, 6.0, 2.5, 2.6, 0.83, 13.5, 66.0, 0.0276, 0.58, (2.6, 3.5), columns=32)

_PLACES: dict[Side, int] = {"pre": 1, "post": 0}  # in the operands of a product


class Form(NamedTuple):
    """How some products are evaluated together."""

    choice: Choice
    side: Side  # whose traces move to the other side
    places: tuple[int, ...]  # which products these are


class Charge(NamedTuple):
    """The estimated nanoseconds of a choice, for each step of a sample: linear in its events."""

    fixed: float  # those that do not depend on spikes
    event: float = 0.0  # those of each event
    place: int = 0  # the side whose events are visited, in the operands of a product

    def of(self, product: Term) -> float:
        """Returns the nanoseconds for the spikes of a product."""
        events = _events(product.operands[self.place]) if self.event else 0.0
        return self.fixed + self.event * events


class Forms:
    """The cheapest forms of the products of a parameter."""

    # What the costs depend on is found once for each kind of products; only the number of events
    # differs between windows of a kind. Only the compiled kernel visits events.

    def __init__(self) -> None:
        self._known: dict[object, list[dict[Form, Charge]]] = {}

    def of(self, products: Sequence[Term], combine: bool) -> list[Form]:
        """Returns the forms of products of a matrix."""
        if products[0].operands[0].shape[0] == 1:
            return [Form("step", "pre", tuple(range(len(products))))]
        kind = _kind(products, combine)
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= _MOST_KINDS:
                self._known.clear()
            known = self._known[kind] = _possible(products, combine)
        forms: list[Form] = []
        for possible in known:
            if len(possible) == 1:
                forms += possible
                continue
            costs = {form: each.of(products[form.places[0]]) for form, each in possible.items()}
            forms.append(min(costs, key=costs.__getitem__))
        return forms


def _kind(products: Sequence[Term], combine: bool) -> object:
    """Returns everything that the costs of products depend on, but the number of events."""
    found: list[object] = [combine]
    sources: dict[int, int] = {}
    for each in products:
        found.append(each.rate < 0)
        for side in each.operands:
            source, weights = side.source, side.weights
            found += side.shape, side.dtype, side.device, side.is_raster, side.decay, side.mode
            found += sources.setdefault(id(source), len(sources)), source.known_events is None
            if weights is not None:
                found += sources.setdefault(id(weights), len(sources)), weighs_rows(side)
    return tuple(found)


def _possible(products: Sequence[Term], combine: bool) -> list[dict[Form, Charge]]:
    """Returns the possible forms of each group of products that have spikes on the same sides."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    for place, product in enumerate(products):
        kind = tuple(_is_raster(side) for side in product.operands)
        groups.setdefault(kind, []).append(place)
    found = []
    for places in groups.values():
        some = [products[place] for place in places]
        dense = unmoved_side(some, combine)
        charge = possible(some, combine)
        folded = any(side.folding is not None for each in some for side in each.operands)
        if not folded and is_small(some, charge["dense"]):
            charge = {"dense": charge["dense"]}
        found.append(
            {
                Form(choice, choice if choice in _PLACES else dense, tuple(places)): each
                for choice, each in charge.items()
            }
        )
    return found


def is_small(products: Sequence[Term], dense: Charge | None = None) -> bool:
    """Returns whether dense products take less time than a choice between them and visits."""
    dense = dense or possible(products, combine=False)["dense"]
    return dense.fixed * products[0].operands[0].shape[:-1].numel() < _CHOICE


def possible(products: Sequence[Term], combine: bool) -> dict[Choice, Charge]:
    """Returns what each possible choice is charged."""
    sides = [*zip(*(product.operands for product in products), strict=True)]
    post, pre = sides[0][0], sides[1][0]
    by, n, widths = KERNEL, len(products), (post.shape[-1], pre.shape[-1])
    weighted = [sum(map(_is_weighted, factors)) for factors in sides]
    place = _PLACES[unmoved_side(products, combine)]
    own, other = widths[place], widths[1 - place]
    costs: dict[Choice, Charge] = {
        "dense": Charge(
            _count_left(products, place, combine) * own * other * by.multiply
            + own * (1 + any(map(_is_nearest, sides[place]))) * by.prepare
            + n * other * by.dense_trace
            + (weighted[0] * widths[0] + weighted[1] * widths[1]) * by.weight
        )
    }
    for side, place in _PLACES.items():
        factors, own, other = sides[place], widths[place], widths[1 - place]
        if not all(map(_is_raster, factors)) or len({id(each.source) for each in factors}) != 1:
            continue
        stay = sum(map(_stays, factors))
        rows, wide = max(1, factors[0].shape[:-1].numel()), -(-other // by.columns) * by.columns
        shares = any(map(_is_nearest, factors)) + weighted[place] - stay
        visited = (each for each in products if not _stays(each.operands[place]))
        visits = len({_visit(each, place, combine) for each in visited})
        costs[side] = Charge(
            own * (factors[0].source.known_events is None) * by.search
            + n * wide * by.trace
            + weighted[1 - place] * other * by.weight
            + stay * own * (other * by.multiply + by.prepare)
            + own * wide * by.write[1 - place] / rows,
            by.event + shares * by.share + visits * wide * by.add,
            place,
        )
    return costs


def _events(factor: Signal) -> float:
    """Returns the number of events of a raster in one step of a sample, counted or estimated."""
    known, flat = factor.source.known_events, factor.source.activity.flatten(0, -2)
    return density(flat) * flat.shape[1] if known is None else len(known) / max(1, len(flat))


def unmoved_side(products: Sequence[Term], combine: bool = False) -> Side:
    """Returns the side that stays unchanged in dense products; traces move to the other side."""
    # It is the side that makes fewer products of sums, or the larger one.
    post, pre = products[0].operands
    values = pre.activity
    if values.dtype != torch.bool and not values.is_floating_point():
        return "pre"  # indices have no trace
    by_post, by_pre = (_count_left(products, place, combine) for place in (0, 1))
    if by_post != by_pre:
        return "pre" if by_pre < by_post else "post"
    return "pre" if pre.shape.numel() >= post.shape.numel() else "post"


def _count_left(products: Sequence[Term], place: int, combine: bool) -> int:
    """Returns how many dense products are left if traces move away from a side."""
    return len({(each.rate < 0 and not combine, _left(each.operands[place])) for each in products})


def _is_weighted(factor: Signal) -> bool:
    """Returns whether a factor has weights that the kernel does not apply."""
    return factor.weights is not None and not weighs_rows(factor)


def _stays(factor: Signal) -> bool:
    """Returns whether a trace stays on its side, in a dense product in addition to the visits."""
    return factor.decay is not None and _is_weighted(factor)


def _visit(product: Term, place: int, combine: bool) -> object:
    """Returns what products have in common whose events are visited together."""
    own = product.operands[place]
    weights = id(own.weights) if _is_weighted(own) else None
    return product.rate < 0 and not combine, weights, own.decay if _is_nearest(own) else None


def _left(own: Signal) -> tuple[int, float | None]:
    """Returns what a factor leaves on its side of dense products, which are grouped by it."""
    left: object = own if own.weights is not None else own.folding or own.activity
    return id(left), own.decay if _is_nearest(own) else None


def _is_nearest(factor: Signal) -> bool:
    """Returns whether a factor is a nearest trace, which dense products cannot move."""
    return factor.decay is not None and factor.mode == "nearest"


def _is_raster(factor: Signal) -> bool:
    """Returns whether a factor is of spikes that the kernel may visit."""
    return factor.is_raster and has_kernel(factor.device, factor.dtype)

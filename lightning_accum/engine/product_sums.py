"""Sums many products over time and samples in few: traces change sides, spikes are gathered.

The plain form is :mod:`lightning_accum.engine.evaluate`.

A trace is a linear filter of its side, so that its adjoint moves it to the other side,

    sum_t post[t] x trace(pre)[t]  =  sum_u reverse_trace(post)[u] x pre[u],

and everything that multiplies one raster of spikes adds up before the raster is visited once.
"""

from collections.abc import Sequence
from functools import partial, reduce
from itertools import chain
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from lightning_accum.engine.term_operands import (
    Activity,
    Product,
    Side,
    has_short_traces,
    short_trace,
)
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.functional.dtypes import as_bytes, as_numbers
from lightning_accum.functional.reductions import Reduction
from lightning_accum.functional.traces import reverse_trace
from lightning_accum.sparse.event_sums import Rows, computed, event_outer_sum, outer_sum_into
from lightning_accum.sparse.events import Events, trace_before_events
from lightning_accum.sparse.kernel_library import Scratch
from lightning_accum.updates.part import Product as OuterProduct
from lightning_accum.updates.pending import Pending

Unmoved: TypeAlias = Literal["pre", "post"]  # the side whose traces move to the other side
Scaled: TypeAlias = "list[tuple[float, Rows]]"
_BLOCK_ELEMENTS = 1 << 24
_FEW = 1 << 12  # elements of work memory that torch finds faster


def add_products(
    sink: Pending,
    products: Sequence[Product],
    scale: float,
    side: Unmoved,
    parameter: WeightVJP,
    events: bool = False,
    combine: bool = False,
) -> None:
    """Adds products, whose traces move away from a side; spikes are visited for a matrix only."""
    with Scratch() as scratch:
        folded = _Folded(products, scale, side, events, scratch, combine)
        if parameter.is_matrix:
            folded.into(sink)
        else:
            folded.through(parameter, sink)
    if combine:
        sink.combined = True


class _Group(NamedTuple):
    """Factors of one raster and its weights in one part of the change."""

    raster: Tensor
    weights: Tensor | None
    factor: Side | None  # has the raster's events, if they are visited
    scaled: Scaled  # rates and values; or a trace of these, if the kernel visits the events

    def events(self) -> tuple[Events, Tensor | None]:
        """Returns the events of the raster, and their weights as a matrix, or one each."""
        assert self.factor is not None
        weights = self.weights
        if weights is not None and weights.ndim > 1:
            weights = weights.expand(self.raster.shape).flatten(0, -2)
        return self.factor.source.events(), weights


class _Folded:
    """Products whose traces were moved to the other side, grouped by the raster that is left."""

    def __init__(
        self,
        products: Sequence[Product],
        scale: float,
        side: Unmoved,
        events: bool,
        scratch: Scratch,
        combine: bool,
    ) -> None:
        self.side: Unmoved = side
        self.events, self.combine, self.scratch = events, combine, scratch
        self.dtype, self._device = widest(products), products[0].operands[0].source.device
        # by whether the part is the depressing one, the raster and its weights
        self._groups: dict[tuple[bool, int, int], _Group] = {}
        self._traces: dict[tuple[int, float, str], Tensor] = {}
        self._own: dict[int, Tensor] = {}  # tensors that nothing else reads
        self._shares: dict[tuple[int, float], Tensor] = {}
        for product in products:
            post, pre = product.operands
            own, other = (pre, post) if side == "pre" else (post, pre)
            self._add(own, other, scale * product.rate)

    def _add(self, own: Side, other: Side, rate: float) -> None:
        """Adds a product, whose trace on the folded side moves to the other side if it can."""
        source, decay, mode, weights = own
        by_events = self.events and source.is_raster
        factors = self._weights_of_rows(own) if by_events else None
        fixed = weights if factors is None else None  # a row's factor may stand on either side
        moves = source.shape[0] > 1 and fixed is None and (by_events or mode != "nearest")
        if decay is not None and moves:
            self._move(own, decay, other, factors, rate)
        elif decay is None and by_events:
            self._group(source.activity, fixed, rate, self._rows(other, factors), own)
        else:
            raster = source.activity if decay is None and weights is None else own.values()
            self._group(raster, None, rate, Rows(self._numbers(other)))

    def _move(
        self, own: Side, decay: float, other: Side, factors: Tensor | None, rate: float
    ) -> None:
        """Adds a product of which the trace moves from its own side to the other one."""
        source, initial = own.source, own.source.initial(decay, own.mode)
        if self.events and source.is_raster:
            rows, first = self._rows(other, factors, traced=False), None
            if initial is not None:
                first = torch.empty_like(rows.values[0], dtype=self.dtype)
            reverse = rows._replace(trace="reverse", decay=decay, last=first)
        else:
            plain = other.decay is None and other.weights is None
            values = other.source.activity if plain else self._numbers(other)
            room = values if id(values) in self._own else self._room(values.shape)
            if has_short_traces(values):
                reverse = Rows(short_trace(values, decay, self.dtype, room, reverse=True))
            else:
                reverse = Rows(reverse_trace(values, decay, room))
            first = None if initial is None else reverse.values[0].clone()
        shares = self._shares_of(source, decay) if own.mode == "nearest" else None
        self._group(source.activity, shares, rate, reverse, own)
        if initial is not None and first is not None:
            rows = Rows(first.unsqueeze(0))
            self._group(initial.unsqueeze(0), None, rate * decay, rows)

    def _shares_of(self, source: Activity, decay: float) -> Tensor:
        """Returns ``[events]``, what each spike adds to the nearest trace: one, less the rest."""
        # The influence of a spike on a nearest trace ends at the next spike, which therefore counts
        # only for what it adds.
        if (key := (id(source), decay)) not in self._shares:
            initial = source.initial(decay, "nearest")
            left = trace_before_events(source.events(), source.shape, decay, initial, source.dtype)
            self._shares[key] = 1.0 - left
        return self._shares[key]

    def _group(
        self,
        raster: Tensor,
        weights: Tensor | None,
        rate: float,
        values: Rows,
        factor: Side | None = None,
    ) -> None:
        """Adds rows to those that multiply a raster."""
        negative = rate < 0 and not self.combine
        key = negative, id(raster), id(weights)
        if key not in self._groups:
            self._groups[key] = _Group(raster, weights, factor, [])
        self._groups[key].scaled.append((-rate if negative else rate, values))

    def into(self, sink: Pending) -> None:
        """Adds the sums of all groups as outer products."""
        visits: dict[bool, list[_Group]] = {False: [], True: []}
        products: dict[bool, list[OuterProduct]] = {False: [], True: []}
        for (negative, *_), group in self._groups.items():
            if self.events and group.raster.dtype == torch.bool:
                visits[negative].append(group)
                continue
            rate, values = self._summed(group.scaled)
            sides = values.flatten(0, -2), group.raster.flatten(0, -2)
            left, right = sides if self.side == "pre" else sides[::-1]
            products[negative].append((left, right, rate))
        for negative, visited in visits.items():
            if visited:
                (raster, _, _, scaled), found = visited[0], products[negative]
                sizes = scaled[0][1].values.shape[-1], raster.shape[-1]
                shape = torch.Size(sizes if self.side == "pre" else sizes[::-1])
                write = partial(self._write, visited, found)
                sink.add_written(write, shape, self.dtype, raster.device, negative=negative)
                products[negative] = []
        if any(products.values()):
            sink.add_products(products[False], products[True])

    def _write(
        self, visits: list[_Group], products: list[OuterProduct], total: Tensor, *, onto: bool
    ) -> None:
        """Writes one part of the sum to a tensor, or adds it there."""
        for group in visits:
            events, weights = group.events()
            by_event = self.side == "post"
            fits = total.dtype == self.dtype
            if not (fits and outer_sum_into(total, onto, events, group.scaled, weights, by_event)):
                found = [(rate, Rows(computed(rows, self.dtype))) for rate, rows in group.scaled]
                rate, values = self._summed(found)
                gathered = event_outer_sum(events, values.flatten(0, -2), weights).mul_(rate)
                oriented = gathered if by_event else gathered.T
                total.add_(oriented) if onto else total.copy_(oriented)
            onto = True
        for left, right, rate in products:
            left, right = (as_numbers(side, total.dtype) for side in (left, right))
            total.addmm_(left.T, right, alpha=rate)

    def through(self, parameter: WeightVJP, sink: Pending) -> None:
        """Adds the sums of all groups through the parameter's vector-Jacobian product."""
        totals: dict[bool, Tensor] = {}
        for (negative, *_), group in self._groups.items():
            rate, values = self._summed(group.scaled)
            post, pre = values.flatten(0, 1), group.raster.flatten(0, 1)
            if self.side == "post":
                post, pre = pre, post
            found = parameter.sum(post, pre, self.dtype).mul_(rate)
            totals[negative] = found if negative not in totals else totals[negative].add_(found)
        sink.add(totals.get(False), totals.get(True))

    def _summed(self, parts: Scaled) -> tuple[float, Tensor]:
        """Returns the sum of several factors as one rate and values; a single one is not copied."""
        (rate, (total, *_)), *others = parts
        if others and id(total) not in self._own:
            total = self._room(total.shape).copy_(total)
        for other, rows in others:
            total.add_(rows.values, alpha=other / rate)
        return rate, total

    def _room(self, shape: torch.Size) -> Tensor:
        """Returns work memory that nothing else reads."""
        room = self._empty(shape)
        self._own[id(room)] = room
        return room

    def _empty(self, shape: torch.Size) -> Tensor:
        """Returns work memory."""
        if shape.numel() <= _FEW:
            return torch.empty(shape, dtype=self.dtype, device=self._device)
        return self.scratch.empty(shape, self.dtype, self._device)

    def _numbers(self, factor: Side) -> Tensor:
        """Returns the values of a factor; each trace is computed once, in work memory."""
        activity = factor.source.activity
        if factor.decay is None:
            values = as_bytes(activity)
        else:
            key = (id(activity), factor.decay, factor.mode)
            if key not in self._traces:
                room = self._empty(activity.shape)
                traced = factor.source.values(factor.decay, factor.mode, out=room)
                self._traces[key] = traced.to(self.dtype)
            values = self._traces[key]
        if factor.weights is None:
            return values.to(self.dtype)
        room = self._room(activity.shape)
        if values.is_floating_point():
            return torch.mul(values, factor.weights, out=room)
        return room.copy_(values).mul_(factor.weights)

    def _rows(self, factor: Side, factors: Tensor | None, traced: bool = True) -> Rows:
        """Returns values times further factors, or how the kernel computes them on the way."""
        own = self._weights_of_rows(factor)
        if self.events and (factor.weights is None or own is not None):
            both = own if factors is None else factors if own is None else own * factors
            if (folding := factor.source.folding) is not None:
                return Rows(folding.potential.membrane, weights=both, folding=folding)
            if factor.decay is None:
                return Rows(self._taken(factor.activity), weights=both)
            edges = factor.source.edges(factor.decay, factor.mode) if traced else None
            if edges is not None:
                values = self._taken(factor.activity)
                return Rows(values, factor.mode, factor.decay, *edges, weights=both)
        return Rows(self._numbers(factor), weights=factors)

    def _weights_of_rows(self, factor: Side) -> Tensor | None:
        """Returns weights ``[T, B, ...]`` that all neurons of a sample share, for the kernel."""
        weights = factor.weights if self.events else None
        if weights is None or weights.shape[-1:] not in ((), (1,)):
            return None
        return weights.to(self.dtype).expand(*factor.source.shape[:-1], 1).squeeze(-1).contiguous()

    def _taken(self, values: Tensor) -> Tensor:
        """Returns spikes or values in the form that the kernel reads."""
        values = values if values.dtype == torch.bool else values.to(self.dtype)
        return values.contiguous()


def add_step(sink: Pending, products: Sequence[Product], scale: float) -> None:
    """Adds products of a single step, which has no sum over time."""
    dtype = widest(products)
    found: tuple[list[OuterProduct], list[OuterProduct]] = [], []
    for product in products:
        post, pre = (as_numbers(side.values(), dtype).flatten(0, -2) for side in product.operands)
        found[product.rate < 0].append((post, pre, abs(product.rate) * scale))
    sink.add_products(*found)


def add_per_sample(sink: Pending, products: Sequence[Product], batch: Reduction) -> None:
    """Adds each part of the reduced change of a matrix ``[out, in]``, in bounded memory."""
    dtype, parts = widest(products), {"pos": list[tuple[Tensor, Tensor]](), "neg": []}
    for product in products:
        both = (side.values().to(dtype) for side in product.operands)
        post, pre = (each.movedim(1, 0).flatten(1, -2) for each in both)  # [B, K, N]
        parts["neg" if product.rate < 0 else "pos"].append((abs(product.rate) * post, pre))
    sink.add(**{name: _reduced(sides, batch) for name, sides in parts.items() if sides})


def _reduced(sides: Sequence[tuple[Tensor, Tensor]], batch: Reduction) -> Tensor:
    (size, _, outputs), inputs = sides[0][0].shape, sides[0][1].shape[2]
    block = max(1, _BLOCK_ELEMENTS // max(1, size * inputs))
    reduced = []
    for start in range(0, max(1, outputs), block):  # one empty block if there are no outputs
        found = [post[..., start : start + block].transpose(1, 2) @ pre for post, pre in sides]
        reduced.append(batch.of(torch.stack(found).sum(0)))
    return torch.cat(reduced)


def widest(products: Sequence[Product]) -> torch.dtype:
    """Returns the dtype in which all products are computed, float32 or wider."""
    sides = chain.from_iterable(map(attrgetter("operands"), products))
    return reduce(torch.promote_types, map(attrgetter("source.dtype"), sides), torch.float32)

"""Sums many products over time and samples in few: traces change sides, spikes are gathered.

The plain form is :mod:`lightning_accum.engine.evaluate`.

A trace is a linear filter of its side, so that its adjoint moves it to the other side,

    sum_t post[t] x trace(pre)[t]  =  sum_u reverse_trace(post)[u] x pre[u],

and everything that multiplies one raster of spikes adds up before the raster is visited once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from lightning_accum.functional.numbers import as_numbers
from lightning_accum.functional.traces import reverse_trace
from lightning_accum.sparse.buffers import Scratch
from lightning_accum.sparse.compiled import has_kernel
from lightning_accum.sparse.event_sums import event_outer_sum, outer_sum_into
from lightning_accum.sparse.groups import Group, Visit
from lightning_accum.sparse.kernel_sums import Rows, computed
from lightning_accum.sparse.operands import Operands
from lightning_accum.sparse.products import Factor, LinearMap, Product, Side, Sink
from lightning_accum.sparse.step import flat, widest


def add_matrix(
    sink: Sink,
    products: Sequence[Product],
    scale: float,
    side: Side,
    events: bool,
    combine: bool = False,
) -> None:
    """Adds products whose parameter is a matrix ``[out, in]``.

    Args:
        sink: takes the sums.
        products: at least one product.
        scale: a factor of all products.
        side: the side whose traces move to the other side.
        events: whether that side's spikes are visited one by one.
        combine: whether the potentiating part receives the sum of all products, signed.
    """
    with Scratch() as scratch:
        dtype, (post, _) = widest(products), products[0].operands
        kernel = events and has_kernel(post.device, dtype)
        folded = _Folded(side, events, kernel, dtype, scratch, combine)
        for product in products:
            folded.add(product)
        folded.into(sink, scale)


def add_linear(
    sink: Sink,
    products: Sequence[Product],
    scale: float,
    side: Side,
    parameter: LinearMap,
    combine: bool = False,
) -> None:
    """Adds products of any parameter, through its vector-Jacobian product."""
    with Scratch() as scratch:
        folded = _Folded(side, False, False, widest(products), scratch, combine)
        for product in products:
            folded.add(product)
        folded.through(parameter, sink, scale)


class _Folded:
    """Products whose traces were moved to the other side, grouped by the raster that is left."""

    def __init__(
        self,
        side: Side,
        events: bool,
        kernel: bool,
        dtype: torch.dtype,
        scratch: Scratch,
        combine: bool,
    ) -> None:
        self.combine = combine
        self.side: Side = side
        self.events = events
        self.dtype = dtype
        self.kernel = kernel
        self.operands = Operands(kernel, dtype, scratch)
        self._groups: dict[tuple[int, int], Group] = {}

    def add(self, product: Product) -> None:
        """Adds a product, whose trace on the folded side moves to the other side."""
        post, pre = product.operands
        own, other = (pre, post) if self.side == "pre" else (post, pre)
        negative, rate = product.rate < 0, abs(product.rate)
        by_events = self._by_events(own.activity)
        factors = self.operands.of_rows(own) if by_events else None
        fixed = own.weights if factors is None else None  # a row's factor may stand on either side
        if own.decay is None:
            if by_events:
                self._group(
                    own.activity, fixed, negative, rate, self.operands.rows(other, factors), own
                )
            else:
                raster = own.activity if own.weights is None else own.values()
                self._group(raster, None, negative, rate, Rows(self.operands.numbers(other)))
            return
        nearest = own.mode == "nearest"
        unmoved = len(own.activity) == 1 or fixed is not None
        if unmoved or (nearest and not by_events):
            self._group(own.values(), None, negative, rate, Rows(self.operands.numbers(other)))
            return
        initial = own.initial()
        if self.kernel and by_events:
            rows = self.operands.rows(other, factors, traced=False)
            first = None if initial is None else torch.empty_like(rows.values[0], dtype=self.dtype)
            reverse = rows._replace(trace="reverse", decay=own.decay, last=first)
        else:
            plain = other.decay is None and other.weights is None
            values = other.activity if plain else self.operands.numbers(other)
            room = self.operands.to_overwrite(values)
            reverse = Rows(reverse_trace(values, own.decay, room))
            first = None if initial is None else reverse.values[0].clone()
        # The influence of a spike on a nearest trace ends at the next spike, which therefore counts
        # only for what it adds.
        weights = own.shares_of_events() if nearest else None
        self._group(own.activity, weights, negative, rate, reverse, own)
        if initial is not None and first is not None:
            rows = Rows(first.unsqueeze(0))
            self._group(initial.unsqueeze(0), None, negative, rate * own.decay, rows)

    def into(self, sink: Sink, scale: float) -> None:
        """Adds the sums of all groups as outer products."""
        visits: dict[bool, list[Visit]] = {False: [], True: []}
        products: dict[bool, list[tuple[Tensor, Tensor, float]]] = {False: [], True: []}
        for group in self._groups.values():
            by_events, raster = self._by_events(group.raster), flat(group.raster)
            for negative, parts in group.parts.items():
                scaled = [(scale * rate, rows) for rate, rows in parts]
                if by_events:
                    visits[negative].append((group, scaled))
                    continue
                rate, values = self.operands.summed([(by, rows.values) for by, rows in scaled])
                sides = flat(values), raster
                left, right = sides if self.side == "pre" else sides[::-1]
                products[negative].append((left, right, rate))
        for negative, visited in visits.items():
            found = products[negative]
            if visited:
                group, ((_, rows), *_) = visited[0]
                sizes = rows.values.shape[-1], group.raster.shape[-1]
                shape = torch.Size(sizes if self.side == "pre" else sizes[::-1])
                write, device = partial(self._write, visited, found), group.raster.device
                sink.accumulate_written(write, shape, self.dtype, device, negative=negative)
            elif found:
                lefts, rights, rates = map(list, zip(*found, strict=True))
                sink.accumulate_outer(lefts, rights, rates, negative=negative)

    def _write(
        self,
        visits: list[Visit],
        products: list[tuple[Tensor, Tensor, float]],
        total: Tensor,
        *,
        onto: bool,
    ) -> None:
        """Writes one part of the sum to a tensor, or adds it there."""
        for group, scaled in visits:
            events, weights = group.events()
            by_event = self.side == "post"
            fits = self.kernel and total.dtype == self.dtype
            if not (fits and outer_sum_into(total, onto, events, scaled, weights, by_event)):
                found = [(rate, computed(rows, self.dtype)) for rate, rows in scaled]
                rate, values = self.operands.summed(found)
                gathered = event_outer_sum(events, flat(values), weights).mul_(rate)
                oriented = gathered if by_event else gathered.T
                total.add_(oriented) if onto else total.copy_(oriented)
            onto = True
        for left, right, rate in products:
            left, right = (as_numbers(side, total.dtype) for side in (left, right))
            total.addmm_(left.T, right, alpha=rate)

    def through(self, parameter: LinearMap, sink: Sink, scale: float) -> None:
        """Adds the sums of all groups through the parameter's vector-Jacobian product."""
        totals: dict[bool, Tensor] = {}
        for group in self._groups.values():
            for negative, parts in group.parts.items():
                rate, values = self.operands.summed([(rate, rows.values) for rate, rows in parts])
                post, pre = values.flatten(0, 1), group.raster.flatten(0, 1)
                if self.side == "post":
                    post, pre = pre, post
                found = parameter.sum(post, pre, self.dtype).mul_(rate * scale)
                known = totals.get(negative)
                totals[negative] = found if known is None else known.add_(found)
        sink.accumulate(totals.get(False), totals.get(True))

    def _by_events(self, raster: Tensor) -> bool:
        return self.events and raster.dtype == torch.bool

    def _group(
        self,
        raster: Tensor,
        weights: Tensor | None,
        negative: bool,
        rate: float,
        values: Rows,
        factor: Factor | None = None,
    ) -> None:
        if self.combine and negative:
            negative, rate = False, -rate
        key = (id(raster), 0 if weights is None else id(weights))
        group = self._groups.setdefault(key, Group(raster, weights, factor))
        group.parts.setdefault(negative, []).append((rate, values))

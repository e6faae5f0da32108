"""Sums many products over time and samples in few: traces change sides, spikes are gathered.

The plain form is :mod:`lightning_accum.engine.evaluate`.

A trace is a linear filter of its side, so that its adjoint moves it to the other side,

    sum_t post[t] x trace(pre)[t]  =  sum_u reverse_trace(post)[u] x pre[u],

and everything that multiplies one raster of spikes adds up before the raster is visited once.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_accum.functional.numbers import as_bytes, as_numbers
from lightning_accum.functional.traces import reverse_trace
from lightning_accum.sparse.buffers import Scratch
from lightning_accum.sparse.event_sums import event_outer_sum
from lightning_accum.sparse.products import Factor, LinearMap, Product, Side, Sink


def add_step(sink: Sink, products: Sequence[Product], scale: float) -> None:
    """Adds products of a single step, which has no sum over time."""
    dtype = widest(products)
    for negative in (False, True):
        own = [product for product in products if (product.rate < 0) == negative]
        if own:
            sides = [[_flat(_plain(side, dtype)) for side in each.operands] for each in own]
            sink.accumulate_outer(
                [post for post, _ in sides],
                [pre for _, pre in sides],
                [abs(product.rate) * scale for product in own],
                negative=negative,
            )


def add_matrix(
    sink: Sink, products: Sequence[Product], scale: float, side: Side, events: bool
) -> None:
    """Adds products whose parameter is a matrix ``[out, in]``.

    Args:
        sink: takes the sums.
        products: at least one product.
        scale: a factor of all products.
        side: the side whose traces move to the other side.
        events: whether that side's spikes are visited one by one.
    """
    with Scratch() as scratch:
        folded = _Folded(side, events, widest(products), scratch)
        for product in products:
            folded.add(product)
        folded.into(sink, scale)


def add_linear(
    sink: Sink, products: Sequence[Product], scale: float, side: Side, parameter: LinearMap
) -> None:
    """Adds products of any parameter, through its vector-Jacobian product."""
    with Scratch() as scratch:
        folded = _Folded(side, False, widest(products), scratch)
        for product in products:
            folded.add(product)
        folded.through(parameter, sink, scale)


def widest(products: Sequence[Product]) -> torch.dtype:
    """Returns the dtype in which all products are computed, float32 or wider."""
    dtype = torch.float32
    for product in products:
        for side in product.operands:
            dtype = torch.promote_types(dtype, side.dtype)
    return dtype


class _Group:
    """Factors of one raster and its weights, by part: each a rate and values."""

    def __init__(self, raster: Tensor, weights: Tensor | None, factor: Factor | None) -> None:
        self.raster = raster
        self.weights = weights
        self.factor = factor  # has the raster's events
        self.parts: dict[bool, list[tuple[float, Tensor]]] = {}


class _Folded:
    """Products whose traces were moved to the other side, grouped by the raster that is left."""

    def __init__(self, side: Side, events: bool, dtype: torch.dtype, scratch: Scratch) -> None:
        self.side: Side = side
        self.events = events
        self.dtype = dtype
        self.scratch = scratch
        self._traces: dict[tuple[int, float, str], Tensor] = {}
        self._groups: dict[tuple[int, int], _Group] = {}
        self._own: dict[int, Tensor] = {}  # tensors that nothing else reads

    def add(self, product: Product) -> None:
        """Adds a product, whose trace on the folded side moves to the other side."""
        post, pre = product.operands
        own, other = (pre, post) if self.side == "pre" else (post, pre)
        negative, rate = product.rate < 0, abs(product.rate)
        if own.decay is None:
            if own.weights is None or self._by_events(own.activity):
                values = self._numbers(other)
                self._group(own.activity, own.weights, negative, rate, values, own)
            else:
                self._group(own.values(), None, negative, rate, self._numbers(other))
            return
        nearest = own.mode == "nearest"
        unmoved = len(own.activity) == 1 or own.weights is not None
        if unmoved or (nearest and not self._by_events(own.activity)):
            self._group(own.values(), None, negative, rate, self._numbers(other))
            return
        plain = other.decay is None and other.weights is None
        values = other.activity if plain else self._numbers(other)
        room = values if id(values) in self._own else self._mine(self._room(values))
        reverse = reverse_trace(values, own.decay, room)
        initial = own.initial()
        # The influence of a spike on a nearest trace ends at the next spike, which therefore counts
        # only for what it adds.
        weights = own.shares_of_events() if nearest else None
        self._group(own.activity, weights, negative, rate, reverse, own)
        if initial is not None:
            self._group(initial.unsqueeze(0), None, negative, rate * own.decay, reverse[:1].clone())

    def into(self, sink: Sink, scale: float) -> None:
        """Adds the sums of all groups as outer products."""
        totals: dict[bool, Tensor] = {}
        products: dict[bool, list[tuple[Tensor, Tensor, float]]] = {False: [], True: []}
        for group in self._groups.values():
            flat = _flat(group.raster)
            if not self._by_events(group.raster):
                for negative, parts in group.parts.items():
                    products[negative] += [(_flat(values), flat, rate) for rate, values in parts]
                continue
            assert group.factor is not None
            events, weights = group.factor.events(), group.weights
            if weights is not None and weights.ndim > 1:
                weights = _flat(weights.expand(group.raster.shape))
            for negative, parts in group.parts.items():
                rate, values = self._summed(parts)
                gathered = event_outer_sum(events, _flat(values), weights).mul_(scale * rate)
                oriented = gathered.T if self.side == "pre" else gathered
                known = totals.get(negative)
                totals[negative] = oriented if known is None else known.add_(oriented)
        for negative, found in products.items():
            if self.side == "post":
                found = [(own, values, rate) for values, own, rate in found]
            total = totals.get(negative)
            if total is None:
                if found:
                    sink.accumulate_outer(
                        [left for left, _, _ in found],
                        [right for _, right, _ in found],
                        [scale * rate for _, _, rate in found],
                        negative=negative,
                    )
                continue
            for left, right, rate in found:
                left, right = (as_numbers(side, total.dtype) for side in (left, right))
                total.addmm_(left.T, right, alpha=scale * rate)
            sink.accumulate(**{"neg" if negative else "pos": total})

    def through(self, parameter: LinearMap, sink: Sink, scale: float) -> None:
        """Adds the sums of all groups through the parameter's vector-Jacobian product."""
        totals: dict[bool, Tensor] = {}
        for group in self._groups.values():
            for negative, parts in group.parts.items():
                rate, values = self._summed(parts)
                post, pre = values.flatten(0, 1), group.raster.flatten(0, 1)
                if self.side == "post":
                    post, pre = pre, post
                found = parameter.sum(post, pre, self.dtype).mul_(rate * scale)
                known = totals.get(negative)
                totals[negative] = found if known is None else known.add_(found)
        sink.accumulate(totals.get(False), totals.get(True))

    def _numbers(self, factor: Factor) -> Tensor:
        """Returns the values of a factor; traces are computed in work memory."""
        if factor.decay is None:
            values = as_bytes(factor.activity)
        else:
            key = (id(factor.activity), factor.decay, factor.mode)
            if key not in self._traces:
                room = self._room(factor.activity)
                self._traces[key] = factor.values_in(room).to(self.dtype)
            values = self._traces[key]
        if factor.weights is None:
            return values.to(self.dtype)
        room = self._mine(self._room(factor.activity))
        if values.is_floating_point():
            return torch.mul(values, factor.weights, out=room)
        return room.copy_(values).mul_(factor.weights)

    def _room(self, like: Tensor) -> Tensor:
        return self.scratch.empty(tuple(like.shape), self.dtype, like.device)

    def _mine(self, room: Tensor) -> Tensor:
        self._own[id(room)] = room
        return room

    def _summed(self, parts: list[tuple[float, Tensor]]) -> tuple[float, Tensor]:
        """Returns the sum of several factors as one rate and values; a single one is not copied."""
        (rate, total), *others = parts
        if others and id(total) not in self._own:
            total = self._room(total).copy_(total)
        for other, values in others:
            total.add_(values, alpha=other / rate)
        return rate, total

    def _by_events(self, raster: Tensor) -> bool:
        return self.events and raster.dtype == torch.bool

    def _group(
        self,
        raster: Tensor,
        weights: Tensor | None,
        negative: bool,
        rate: float,
        values: Tensor,
        factor: Factor | None = None,
    ) -> None:
        key = (id(raster), 0 if weights is None else id(weights))
        group = self._groups.setdefault(key, _Group(raster, weights, factor))
        group.parts.setdefault(negative, []).append((rate, values))


def _plain(factor: Factor, dtype: torch.dtype) -> Tensor:
    """Returns values in ``dtype``, or spikes if the product converts them to it by itself."""
    if factor.decay is None and factor.weights is None and dtype == torch.float32:
        return factor.activity
    return as_numbers(factor.values(), dtype)


def _flat(tensor: Tensor) -> Tensor:
    """Returns ``[T, B, ..., N]`` as ``[K, N]``."""
    return tensor.flatten(0, -2)

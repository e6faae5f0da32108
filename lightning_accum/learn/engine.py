"""Evaluates the terms of a rule over a window, in the cheapest way for the activity at hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from lightning_accum.functional.costs import ADD, CALLS, CONVERT, EVENT, MULTIPLY, SEARCH, TRACE
from lightning_accum.functional.events import density, event_outer_sum
from lightning_accum.functional.numbers import as_bytes, as_numbers
from lightning_accum.functional.reductions import Reduction
from lightning_accum.functional.traces import reverse_trace
from lightning_accum.learn.geometry import Geometry, Outer
from lightning_accum.learn.scratch import Scratch
from lightning_accum.learn.signal import Signal, Source
from lightning_accum.learn.terms import Addend, Parts, Term, added
from lightning_accum.updates.accumulator import Accumulator

Side: TypeAlias = Literal["pre", "post"]
Path: TypeAlias = Literal["auto", "dense", "pre", "post"]
Way: TypeAlias = Literal["dense", "pre", "post", "step"]

_PER_SAMPLE_ELEMENTS = 1 << 24


def accumulate_terms(
    accumulator: Accumulator,
    terms: Sequence[Term | Addend],
    batch: Reduction,
    path: Path = "auto",
    geometry: Geometry | None = None,
) -> None:
    r"""Adds the change that ``terms`` make over a window, each part as one contribution.

    Time folds into one product, for the weights stand still in a window. Where one side is spikes,
    its traces are moved to the other side by their adjoint, so that what remains on it is the raw
    raster, and every spike adds one row.

    Args:
        accumulator: of a parameter ``[out, in]``.
        terms: with signals ``[T, B, ..., out]`` and ``[T, B, ..., in]``, and what else adds up.
        batch: the reduction over the batch; sum and mean are fused, others see the per-sample
            change of each part, in chunks of bounded size.
        path: ``"dense"``, the events of one side (``"pre"``, ``"post"``), or the cheapest.
        geometry: how products become a change of the parameter; that of a matrix when ``None``.
            Events are visited for matrices alone.
    """
    products = [term for term in terms if isinstance(term, Term) and term.rate != 0]
    addends = [term for term in terms if isinstance(term, Addend)]
    geometry = geometry or Outer(torch.nn.Module(), "", "")
    device = _activity(products[0].post).device.type if products else "cpu"
    with torch.no_grad(), _in_full_precision(device):
        if not batch.adds:
            if products or addends:
                _per_sample(accumulator, products, addends, batch, geometry)
            return
        fused = [term for term in products if _folds(term)]
        alone = [term for term in products if not _folds(term)]
        ways = _ways(fused, path, geometry)
        with one_contribution(accumulator, len(ways) + len(alone) + len(addends)) as total:
            for way, some in ways:
                scale = 1.0 / _activity(some[0].post).shape[1] if batch.averages else 1.0
                _fused(total, some, scale, way, geometry)
            for term in alone:
                size = _activity(term.post).shape[1] if batch.averages else 1
                change = _product(term, slice(None), geometry).mul_(abs(term.rate) / size)
                total.accumulate(**{"neg" if term.rate < 0 else "pos": change})
            for addend in addends:
                size = addend.size if batch.averages else 1
                total.accumulate(*(p if p is None else p / size for p in addend.parts(slice(None))))


def _in_full_precision(device: str) -> AbstractContextManager[object]:
    """Not in the narrow dtype of a mixed-precision step."""
    narrow = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if narrow else nullcontext()


@contextmanager
def one_contribution(accumulator: Accumulator, pieces: int) -> Iterator[Accumulator]:
    """What is added to the accumulator that this gives counts as one contribution of each part.

    Args:
        accumulator: which has it in the end.
        pieces: how often something will be added.
    """
    if pieces <= 1 or accumulator.sums:
        yield accumulator
        return
    total = Accumulator()
    yield total
    accumulator.accumulate(total.pos, total.neg)


def per_sample_parts(terms: Sequence[Term], geometry: Geometry) -> Parts:
    """The change of each sample that ``terms`` make over a window, ``[B, ...]``, by part."""
    parts: list[Tensor | None] = [None, None]
    with torch.no_grad():
        for term in terms:
            if term.rate == 0:
                continue
            size = _activity(term.post).shape[1]
            found = [_product(term, slice(b, b + 1), geometry) for b in range(size)]
            change = torch.stack(found).mul_(abs(term.rate))
            parts[term.rate < 0] = added(parts[term.rate < 0], change)
    return parts[0], parts[1]


def _folds(term: Term) -> bool:
    """Whether a term may be folded with others; products of what is always one are cheap alone."""
    return term.then is None and not _is_one(term.pre)


def _is_one(signal: Signal | Tensor) -> bool:
    return isinstance(signal, Signal) and signal.source.side == "one"


def _product(term: Term, samples: slice, geometry: Geometry) -> Tensor:
    """What a term makes of some samples, but for its rate."""
    dtype = _widest([term])
    post, pre = (
        as_numbers(_values(side)[:, samples], dtype).flatten(0, 1) for side in (term.post, term.pre)
    )
    product = (geometry.constant if _is_one(term.pre) else geometry).sum(post, pre, dtype)
    return product if term.then is None else term.then(product)


def _ways(
    terms: Sequence[Term], path: Path, geometry: Geometry
) -> list[tuple[Way, Sequence[Term]]]:
    """How to evaluate terms: those together that have spikes on the same sides."""
    if not terms:
        return []
    if not isinstance(geometry, Outer):
        return [("dense", terms)]
    if path != "auto":
        return [(path, terms)]
    if len(_activity(terms[0].post)) == 1:
        return [("step", terms)]
    alike: dict[tuple[bool, bool], list[Term]] = {}
    for term in terms:
        alike.setdefault((_is_raster(term.pre), _is_raster(term.post)), []).append(term)
    return [(_cheapest(some), some) for some in alike.values()]


def _fused(
    accumulator: Accumulator, terms: Sequence[Term], scale: float, way: Way, geometry: Geometry
) -> None:
    """Adds terms whose time folds into few products."""
    if way == "step":
        _one_step(accumulator, terms, scale)
        return
    side = _larger(terms) if way == "dense" else way
    with Scratch() as scratch:
        folded = _Folded(side, way != "dense", _widest(terms), scratch)
        for term in terms:
            folded.add(term)
        if isinstance(geometry, Outer):
            folded.into(accumulator, scale)
        else:
            folded.through(geometry, accumulator, scale)


def _one_step(accumulator: Accumulator, terms: Sequence[Term], scale: float) -> None:
    """Adds terms as they are: there is no time to fold, and little to search for events."""
    dtype = _widest(terms)
    for negative in (False, True):
        own = [term for term in terms if (term.rate < 0) == negative]
        if own:
            accumulator.accumulate_outer(
                [_flat(_plain(term.post, dtype)) for term in own],
                [_flat(_plain(term.pre, dtype)) for term in own],
                [abs(term.rate) * scale for term in own],
                negative=negative,
            )


def _larger(terms: Sequence[Term]) -> Side:
    """The side that is better left as it was recorded, while the other has the traces."""
    pre, post = _activity(terms[0].pre), _activity(terms[0].post)
    counts = pre.dtype != torch.bool and not pre.is_floating_point()  # indices have no trace
    return "pre" if counts or pre.numel() >= post.numel() else "post"


class _Group:
    """Everything that multiplies one raster (with its events' weights), by part."""

    def __init__(self, raster: Tensor, weights: Tensor | None, source: Source | None) -> None:
        self.raster = raster
        self.weights = weights
        self.source = source  # knows the raster's events
        self.parts: dict[bool, list[tuple[float, Tensor]]] = {}


class _Folded:
    """Terms with the traces of one side moved to the other, gathered by what they multiply."""

    def __init__(self, side: Side, events: bool, dtype: torch.dtype, scratch: Scratch) -> None:
        self.side: Side = side
        self.events = events
        self.dtype = dtype
        self.scratch = scratch
        self._traces: dict[tuple[int, float, str], Tensor] = {}
        self._groups: dict[tuple[int, int], _Group] = {}
        self._own: dict[int, Tensor] = {}  # what nobody else reads, and may be written over

    def add(self, term: Term) -> None:
        own, other = (term.pre, term.post) if self.side == "pre" else (term.post, term.pre)
        negative, rate = term.rate < 0, abs(term.rate)
        if not isinstance(own, Signal):
            self._group(own, None, negative, rate, self._numbers(other))
            return
        if own.decay is None:
            if own.weights is None or self._by_events(own.activity):
                values = self._numbers(other)
                self._group(own.activity, own.weights, negative, rate, values, own.source)
            else:
                self._group(own.values(), None, negative, rate, self._numbers(other))
            return
        nearest = own.mode == "nearest"
        as_it_is = len(own.activity) == 1 or own.weights is not None
        if as_it_is or (nearest and not self._by_events(own.activity)):
            self._group(own.values(), None, negative, rate, self._numbers(other))
            return
        plain = isinstance(other, Signal) and other.decay is None and other.weights is None
        values = _activity(other) if plain else self._numbers(other)
        room = values if id(values) in self._own else self._mine(self._room(values))
        reverse = reverse_trace(values, own.decay, room)
        initial = own.source.initial(own.decay, own.mode)
        weights = None
        if nearest:
            # A spike's influence ends at the next one: what was left of the last is taken back.
            weights = own.source.shares_of_events(own.decay)
        self._group(own.activity, weights, negative, rate, reverse, own.source)
        if initial is not None:
            self._group(initial.unsqueeze(0), None, negative, rate * own.decay, reverse[:1].clone())

    def _numbers(self, signal: Signal | Tensor) -> Tensor:
        """A signal's values; a trace that nobody else asked for is not kept beyond this."""
        if not isinstance(signal, Signal):
            return as_numbers(signal, self.dtype)
        if signal.decay is None:
            values = as_bytes(signal.activity)
        else:
            key = (id(signal.source), signal.decay, signal.mode)
            if key not in self._traces:
                room = self._room(signal.activity)
                values = signal.source.values_in(room, signal.decay, signal.mode)
                self._traces[key] = values.to(self.dtype)
            values = self._traces[key]
        if signal.weights is None:
            return values.to(self.dtype)
        room = self._mine(self._room(signal.activity))
        if values.is_floating_point():
            return torch.mul(values, signal.weights, out=room)
        return room.copy_(values).mul_(signal.weights)

    def _room(self, like: Tensor) -> Tensor:
        return self.scratch.empty(tuple(like.shape), self.dtype, like.device)

    def _mine(self, room: Tensor) -> Tensor:
        self._own[id(room)] = room
        return room

    def into(self, accumulator: Accumulator, scale: float) -> None:
        totals: dict[bool, Tensor] = {}
        products: dict[bool, list[tuple[Tensor, Tensor, float]]] = {False: [], True: []}
        for group in self._groups.values():
            flat = _flat(group.raster)
            if not self._by_events(group.raster):
                for negative, parts in group.parts.items():
                    products[negative] += [(_flat(values), flat, rate) for rate, values in parts]
                continue
            events = flat if group.source is None else group.source.events()
            weights = group.weights
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
                accumulator.accumulate_outer(
                    [left for left, _, _ in found],
                    [right for _, right, _ in found],
                    [scale * rate for _, _, rate in found],
                    negative=negative,
                )
                continue
            for left, right, rate in found:
                left, right = (as_numbers(side, total.dtype) for side in (left, right))
                total.addmm_(left.T, right, alpha=scale * rate)
            accumulator.accumulate(**{"neg" if negative else "pos": total})

    def through(self, geometry: Geometry, accumulator: Accumulator, scale: float) -> None:
        totals: dict[bool, Tensor] = {}
        for group in self._groups.values():
            for negative, parts in group.parts.items():
                rate, values = self._summed(parts)
                post, pre = values.flatten(0, 1), group.raster.flatten(0, 1)
                if self.side == "post":
                    post, pre = pre, post
                found = geometry.sum(post, pre, self.dtype).mul_(rate * scale)
                known = totals.get(negative)
                totals[negative] = found if known is None else known.add_(found)
        accumulator.accumulate(totals.get(False), totals.get(True))

    def _summed(self, parts: list[tuple[float, Tensor]]) -> tuple[float, Tensor]:
        """One coefficient for several that multiply the same; a single one is not touched."""
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
        source: Source | None = None,
    ) -> None:
        key = (id(raster), 0 if weights is None else id(weights))
        group = self._groups.setdefault(key, _Group(raster, weights, source))
        group.parts.setdefault(negative, []).append((rate, values))


def _per_sample(
    accumulator: Accumulator,
    terms: Sequence[Term],
    addends: Sequence[Addend],
    batch: Reduction,
    geometry: Geometry,
) -> None:
    """Reduces every sample's own change of each part."""
    if addends or not (isinstance(geometry, Outer) and all(_folds(t) for t in terms)):
        accumulator.accumulate(*_reduced(terms, addends, batch, geometry))
        return
    dtype = _widest(terms)
    for negative in (False, True):
        sides = [
            (abs(term.rate) * _values(term.post).to(dtype), _values(term.pre).to(dtype))
            for term in terms
            if (term.rate < 0) == negative
        ]
        if sides:
            reduced = _reduced_matrix(sides, batch)
            accumulator.accumulate(**{"neg" if negative else "pos": reduced})


def _reduced(
    terms: Sequence[Term], addends: Sequence[Addend], batch: Reduction, geometry: Geometry
) -> Parts:
    """The reduced change of any parameter; a maximum or minimum in the memory of two samples'."""
    totals: list[Tensor | None] = [None, None]
    kept: tuple[list[Tensor], list[Tensor]] = ([], [])
    size = _activity(terms[0].post).shape[1] if terms else addends[0].size
    for b in range(size):
        change: list[Tensor | None] = [None, None]
        found: list[Parts] = [addend.parts(slice(b, b + 1)) for addend in addends]
        for term in terms:
            product = _product(term, slice(b, b + 1), geometry).mul_(abs(term.rate))
            found.append((None, product) if term.rate < 0 else (product, None))
        for parts in found:
            for side, part in enumerate(parts):
                change[side] = added(change[side], part)
        for side, sample in enumerate(change):
            before = totals[side]
            if sample is None:
                continue
            if batch.merge is None:
                kept[side].append(sample)
            else:
                totals[side] = sample if before is None else batch.merge(before, sample)
    if batch.merge is None:
        totals = [batch.of(torch.stack(samples)) if samples else None for samples in kept]
    return totals[0], totals[1]


def _reduced_matrix(sides: Sequence[tuple[Tensor, Tensor]], batch: Reduction) -> Tensor:
    """The reduced change of a matrix, a block of outputs at a time."""
    pairs = [(_samples(post), _samples(pre)) for post, pre in sides]
    (size, _, outputs), inputs = pairs[0][0].shape, pairs[0][1].shape[2]
    block = max(1, _PER_SAMPLE_ELEMENTS // max(1, size * inputs))
    reduced = []
    for start in range(0, max(1, outputs), block):  # of no outputs there is one, empty
        products = [post[..., start : start + block].transpose(1, 2) @ pre for post, pre in pairs]
        reduced.append(batch.of(torch.stack(products).sum(0)))
    return torch.cat(reduced)


def _cheapest(terms: Sequence[Term]) -> Way:
    """The way of the lowest estimated cost; the dense one where a count means to wait."""
    inputs, outputs = _activity(terms[0].pre).shape[-1], _activity(terms[0].post).shape[-1]
    n = len(terms)
    costs: dict[Way, float] = {
        "dense": n * inputs * outputs * MULTIPLY
        + max(inputs, outputs) * CONVERT
        + n * min(inputs, outputs) * TRACE
    }
    sides: tuple[tuple[Side, int, int], ...] = (("pre", inputs, outputs), ("post", outputs, inputs))
    for side, own, other in sides:
        signals = [getattr(term, side) for term in terms]
        sources = {id(s.source): s.source for s in signals if _is_raster(s)}
        if len(sources) != 1 or not all(_is_raster(s) for s in signals):
            continue
        nearest = any(s.decay is not None and s.mode == "nearest" for s in signals)
        source = sources.popitem()[1]
        known = source.known_events
        flat = _flat(source.activity)
        events = density(flat) * own if known is None else len(known) / max(1, len(flat))
        costs[side] = (
            CALLS / max(1, len(flat))
            + own * (known is None) * SEARCH
            + events * ((1 + nearest) * EVENT + n * other * ADD)
            + n * other * TRACE
        )
    return min(costs, key=lambda way: costs[way])


def _is_raster(signal: Signal | Tensor) -> bool:
    return (
        isinstance(signal, Signal)
        and signal.activity.dtype == torch.bool
        and signal.activity.device.type == "cpu"
    )


def _widest(terms: Sequence[Term]) -> torch.dtype:
    """The dtype in which all terms are computed, float32 or wider."""
    dtype = torch.float32
    for signal in (signal for term in terms for signal in (term.post, term.pre)):
        own = signal.source.dtype if isinstance(signal, Signal) else signal.dtype
        dtype = torch.promote_types(dtype, own)
    return dtype


def _values(signal: Signal | Tensor) -> Tensor:
    return signal.values() if isinstance(signal, Signal) else signal


def _plain(signal: Signal | Tensor, dtype: torch.dtype) -> Tensor:
    """Values in a dtype, but for spikes where it is the one they will be multiplied in anyway."""
    raw = isinstance(signal, Signal) and signal.decay is None and signal.weights is None
    if raw and dtype == torch.float32:
        return _activity(signal)
    return as_numbers(_values(signal), dtype)


def _activity(signal: Signal | Tensor) -> Tensor:
    return signal.activity if isinstance(signal, Signal) else signal


def _flat(tensor: Tensor) -> Tensor:
    """``[T, B, ..., N]`` as ``[K, N]``."""
    return tensor.flatten(0, -2)


def _samples(tensor: Tensor) -> Tensor:
    """``[T, B, ..., N]`` as ``[B, K, N]``."""
    return tensor.movedim(1, 0).flatten(1, -2)

"""Evaluates the terms of a rule over a window, in the cheapest way for the activity at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from lightning_accum.functional.outer import density, event_outer_sum
from lightning_accum.functional.reductions import Reduction
from lightning_accum.functional.traces import reverse_trace
from lightning_accum.learn.signal import Signal
from lightning_accum.updates.accumulator import Accumulator

Side: TypeAlias = Literal["pre", "post"]
Path: TypeAlias = Literal["auto", "dense", "pre", "post"]

# Costs relative to one multiply-add of a dense product, measured on a CPU with AVX-512: one
# element added by the gather, one element passed by a trace.
_GATHER, _TRACE = 6.0, 25.0
_PER_SAMPLE_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class Term:
    r"""One product of a rule.

    .. math:: \text{rate} \cdot \sum_t \mathrm{post}_t \otimes \mathrm{pre}_t

    Args:
        rate: factor; its sign says to which part the term goes.
        post: the postsynaptic signal, or a tensor ``[T, B, ...]`` of its shape.
        pre: the presynaptic signal, or a tensor ``[T, B, ...]`` of its shape.
    """

    rate: float
    post: Signal | Tensor
    pre: Signal | Tensor


def accumulate_terms(
    accumulator: Accumulator,
    terms: Sequence[Term],
    batch: Reduction,
    path: Path = "auto",
) -> None:
    r"""Adds the change that ``terms`` make over a window, each part as one contribution.

    Time folds into one product, for the weights stand still in a window. Where one side is spikes,
    its traces are moved to the other side by their adjoint, so that what remains on it is the raw
    raster, and every spike adds one row.

    Args:
        accumulator: of a parameter ``[out, in]``.
        terms: with signals ``[T, B, ..., out]`` and ``[T, B, ..., in]``.
        batch: the reduction over the batch; sum and mean are fused, others see the per-sample
            change of each part, in chunks of bounded size.
        path: ``"dense"``, the events of one side (``"pre"``, ``"post"``), or the cheapest.
    """
    terms = [term for term in terms if term.rate != 0]
    if not terms:
        return
    with torch.no_grad():
        if not batch.adds:
            _per_sample(accumulator, terms, batch)
            return
        scale = 1.0 / _shape(terms[0].post)[1] if batch.averages else 1.0
        if path == "auto":
            path = _cheapest(terms)
        folded = _Folded("post" if path == "post" else "pre", events=path != "dense")
        for term in terms:
            folded.add(term)
        folded.into(accumulator, scale)


class _Folded:
    """Terms with the traces of one side moved to the other, gathered by what they multiply."""

    def __init__(self, side: Side, events: bool) -> None:
        self.side: Side = side
        self.events = events
        # by raster (and weights of its events): one coefficient for each part
        self._groups: dict[tuple[int, int], tuple[Tensor, Tensor | None, dict[bool, Tensor]]] = {}
        self._pairs: dict[bool, list[tuple[Tensor, Tensor]]] = {False: [], True: []}

    def add(self, term: Term) -> None:
        own, other = (term.pre, term.post) if self.side == "pre" else (term.post, term.pre)
        negative, rate = term.rate < 0, abs(term.rate)
        values = _values(other)
        if not isinstance(own, Signal):
            self._pairs[negative].append((rate * values, own))
            return
        if own.decay is None:
            self._group(own.activity, None, negative, rate * values)
            return
        if own.mode == "nearest" and not self._by_events(own.activity):
            self._pairs[negative].append((rate * values, own.values()))
            return
        reverse = reverse_trace(values, own.decay).mul_(rate)
        initial = own.source.initial(own.decay, own.mode)
        weights = None
        if own.mode == "nearest":
            # A spike's influence ends at the next one: what was left of the last is taken back.
            before = torch.zeros_like(own.values())
            before[1:] = own.values()[:-1]
            if initial is not None:
                before[0] = initial
            weights = before.mul_(-own.decay).add_(1.0)
        self._group(own.activity, weights, negative, reverse)
        if initial is not None:
            self._pairs[negative].append((own.decay * reverse[:1], initial.unsqueeze(0)))

    def into(self, accumulator: Accumulator, scale: float) -> None:
        totals: dict[bool, Tensor] = {}
        for raster, weights, coefficients in self._groups.values():
            flat = _flat(raster)
            if not self._by_events(raster):
                for negative, coefficient in coefficients.items():
                    self._pairs[negative].append((coefficient, raster))
                continue
            rows = [_flat(c) for c in coefficients.values()]
            values = None if weights is None else _flat(weights)
            gathered = event_outer_sum(
                flat, torch.cat(rows, 1) if len(rows) > 1 else rows[0], values
            )
            blocks = gathered.split([r.shape[1] for r in rows], dim=1)
            for negative, block in zip(coefficients, blocks, strict=True):
                oriented = block.T if self.side == "pre" else block
                known = totals.get(negative)
                totals[negative] = oriented if known is None else known.add_(oriented)
        for negative, pairs in self._pairs.items():
            flats = [(_flat(coefficient), _flat(own)) for coefficient, own in pairs]
            if self.side == "post":
                flats = [(own, coefficient) for coefficient, own in flats]
            total = totals.get(negative)
            if total is None:
                lefts, rights = [left for left, _ in flats], [right for _, right in flats]
                accumulator.accumulate_outer(lefts, rights, scale, negative=negative)
                continue
            for left, right in flats:
                total.addmm_(left.to(total.dtype).T, right.to(total.dtype))
            total = total.mul_(scale)
            accumulator.accumulate(**{"neg" if negative else "pos": total})

    def _by_events(self, raster: Tensor) -> bool:
        return self.events and raster.dtype == torch.bool

    def _group(
        self, raster: Tensor, weights: Tensor | None, negative: bool, coefficient: Tensor
    ) -> None:
        key = (id(raster), 0 if weights is None else id(weights))
        _, _, coefficients = self._groups.setdefault(key, (raster, weights, {}))
        if negative in coefficients:
            coefficient = coefficients[negative] + coefficient
        coefficients[negative] = coefficient


def _per_sample(accumulator: Accumulator, terms: Sequence[Term], batch: Reduction) -> None:
    """Reduces every sample's own change, a block of outputs at a time."""
    for negative in (False, True):
        pairs = [
            (_samples(abs(term.rate) * _values(term.post)), _samples(_values(term.pre)))
            for term in terms
            if (term.rate < 0) == negative
        ]
        if not pairs:
            continue
        (size, _, outputs), inputs = pairs[0][0].shape, pairs[0][1].shape[2]
        block = max(1, _PER_SAMPLE_ELEMENTS // max(1, size * inputs))
        reduced = []
        for start in range(0, outputs, block):
            change = sum(
                post[..., start : start + block].transpose(1, 2) @ pre for post, pre in pairs
            )
            assert isinstance(change, Tensor)
            reduced.append(batch.fn(change, 0))
        accumulator.accumulate(**{"neg" if negative else "pos": torch.cat(reduced)})


def _cheapest(terms: Sequence[Term]) -> Path:
    """The path of the lowest estimated cost; the dense one where a count means to wait."""
    signals = {
        "pre": [t.pre for t in terms if isinstance(t.pre, Signal)],
        "post": [t.post for t in terms if isinstance(t.post, Signal)],
    }
    width = {"pre": _shape(terms[0].pre)[-1], "post": _shape(terms[0].post)[-1]}
    costs: dict[Path, float] = {
        "dense": len(terms) * width["pre"] * width["post"] + _TRACE * width["post"]
    }
    other: dict[Side, Side] = {"pre": "post", "post": "pre"}
    for side, own in signals.items():
        rasters = {id(s.activity): s.activity for s in own if s.activity.dtype == torch.bool}
        if len(own) < len(terms) or len(rasters) != 1:
            continue
        raster = next(iter(rasters.values()))
        if raster.device.type != "cpu":
            continue
        opposite = width[other[side]]  # type: ignore[index]
        spikes = density(_flat(raster)) * width[side]
        costs[side] = len(terms) * opposite * (_GATHER * spikes + _TRACE)  # type: ignore[index]
    return min(costs, key=lambda path: costs[path])


def _values(signal: Signal | Tensor) -> Tensor:
    return signal.values() if isinstance(signal, Signal) else signal


def _shape(signal: Signal | Tensor) -> torch.Size:
    return (signal.activity if isinstance(signal, Signal) else signal).shape


def _flat(tensor: Tensor) -> Tensor:
    """``[T, B, ..., N]`` as ``[K, N]``."""
    return tensor.reshape(-1, tensor.shape[-1])


def _samples(tensor: Tensor) -> Tensor:
    """``[T, B, ..., N]`` as ``[B, K, N]``."""
    return tensor.movedim(1, 0).flatten(1, -2)

"""Products with their data: the terms of a window, as the engine sums them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from lightning_accum.engine.activity import Activity
from lightning_accum.engine.signal import Signal, Source
from lightning_accum.engine.state import StateKey
from lightning_accum.engine.terms import Change, CustomChange, Parts, Term
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.engine.window import Window
from lightning_accum.functional.dtypes import as_numbers
from lightning_accum.functional.traces import TraceMode


class Side:
    """One side of a product: activity or a trace of it, and factors of its values.

    Attributes:
        shape: the shape of the activity, ``[T, B, ...]``.
        device: its device.
        dtype: the dtype in which this is computed, float32 or wider.
        is_raster: whether the activity is spikes, kept as booleans.
        folding: what computes the activity when it is read; ``None`` for recorded activity.
    """

    def __init__(
        self,
        source: Activity,
        decay: float | None = None,
        mode: TraceMode = "cumulative",
        weights: Tensor | None = None,
    ) -> None:
        self.source, self.decay, self.weights = source, decay, weights
        self.mode: TraceMode = mode
        self.shape, self.device, self.dtype = source.shape, source.device, source.dtype
        self.is_raster, self.folding = source.is_raster, source.folding

    @classmethod
    def of(cls, given: Signal | Tensor, window: Window) -> Side:
        """Returns a side of a term in a window."""
        if isinstance(given, Tensor):
            return cls(Activity(given))
        source, weights = given.source, given.weights
        if type(source) is Source:
            known, name = window.sources, source.side
            source = known[name] if name in known else window.source(name)
        if isinstance(weights, Signal):
            weights = cls.of(weights, window).values()
        if given.shifted:
            assert given.decay is not None
            values = source.before(given.decay, given.mode)
            return cls(Activity(values), weights=weights)
        return cls(source, given.decay, given.mode, weights)

    @property
    def activity(self) -> Tensor:
        """The recorded activity, ``[T, B, ...]``."""
        return self.source.activity

    def values(self) -> Tensor:
        """Returns the values, ``[T, B, ...]``, in the dtype of the computation."""
        decay = self.decay
        values = self.source.numbers() if decay is None else self.source.values(decay, self.mode)
        return values if self.weights is None else values * self.weights


class Product:
    """A term with its data."""

    follows_pieces = False

    def __init__(self, term: Term, window: Window) -> None:
        self.rate = term.rate
        self.operands = Side.of(term.post, window), Side.of(term.pre, window)
        self.transform: Callable[[Tensor], Tensor] | None = term.transform
        if term.room is not None:
            share = partial(term.room.bounded, window.param, upper=term.rate > 0)
            self.transform = share if term.transform is None else _then(term.transform, share)
        # whether this can be summed together with others
        self.is_plain = self.transform is None and not self.operands[1].source.constant

    @property
    def size(self) -> int:
        """How many samples there are."""
        return self.operands[0].shape[1]

    def parts(self, samples: slice, vjp: WeightVJP) -> Parts:
        """Returns the product of some samples as the part that the rate's sign selects."""
        operands = self.operands
        dtype = torch.promote_types(operands[0].dtype, operands[1].dtype)
        post, pre = (
            as_numbers(side.values()[:, samples], dtype).flatten(0, 1) for side in operands
        )
        product = vjp.for_constant_input if operands[1].source.constant else vjp
        change = product.sum(post, pre, dtype)
        if self.transform is not None:
            change = self.transform(change)
        change = change.mul_(abs(self.rate))
        return (None, change) if self.rate < 0 else (change, None)

    def summed(self, vjp: WeightVJP) -> Parts:
        """Returns :meth:`parts` of all samples."""
        return self.parts(slice(None), vjp)

    def carry(self, vjp: WeightVJP) -> Mapping[StateKey, Tensor]:
        """Returns nothing: only traces of signals pass on."""
        return {}


Computed: TypeAlias = Product | CustomChange
"""What is evaluated in a window."""


class Changes(NamedTuple):
    """The changes of a parameter in a window."""

    products: list[Product]  # which are summed together
    others: list[Computed]

    @classmethod
    def of(cls, changes: Sequence[Change], window: Window) -> Changes:
        """Returns what a rule has returned, with the data of a window."""
        found = cls([], [])
        for change in changes:
            for each in (change,) if type(change) is Term else change.expand(window):
                if isinstance(each, CustomChange):
                    found.others.append(each)
                    continue
                assert isinstance(each, Term)
                product = Product(each, window)
                (found.products if product.is_plain else found.others).append(product)
        return found

    @property
    def every(self) -> list[Computed]:
        """All of them."""
        return [*self.products, *self.others]


def _then(
    first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    return lambda product: second(first(product))


def check_sides(rule: str, changes: Changes) -> None:
    """Checks that both sides of products have one time and batch, and are not exchanged."""
    for term in (each for each in changes.every if isinstance(each, Product)):
        post, pre = term.operands
        if (post.source.side, pre.source.side) == ("pre", "post"):
            raise ValueError(
                f"A Term of `{rule}` should have the postsynaptic signal before the presynaptic"
                " one. Found `window.pre` and `window.post` exchanged: return"
                " `Term(rate, post, pre)`."
            )
        if post.shape[:2] != pre.shape[:2]:
            raise ValueError(
                f"Both sides of a Term of `{rule}` should be [T, B, ...], with the same T and B."
                f" Found {tuple(post.shape)} for `post` and {tuple(pre.shape)} for `pre`: keep the"
                " dimensions of time and batch, as in `x.mean(0, keepdim=True).expand(x.shape)`."
            )

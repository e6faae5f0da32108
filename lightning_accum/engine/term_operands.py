"""Products with their data: recorded activity, and the terms of a window that combine it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from lightning_accum._compat.torch_internals import is_traced
from lightning_accum.engine.activity_window import Window
from lightning_accum.engine.signal import Signal, SignalName, fits
from lightning_accum.engine.state_keys import StateKey, trace_key
from lightning_accum.engine.terms import Change, CustomChange, Parts, Term
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.functional.dtypes import as_bytes, as_numbers
from lightning_accum.functional.traces import TraceMode, last_trace, trace
from lightning_accum.sparse.eprop import Folding
from lightning_accum.sparse.events import Events, last_trace_of_events

# Up to so many steps, and multiplications, a product with powers of a decay is faster than steps.
_SHORT, _FEW = 128, 1 << 20


class Activity:
    """Recorded activity of one side of a connection, and what is computed of it once.

    Its traces, ages and averages pass to the next window once they are used.
    """

    def __init__(
        self,
        activity: Tensor | Folding,
        dt: float = 1.0,
        carried: Mapping[StateKey, Tensor] | None = None,
        side: str = "given",
        dtype: torch.dtype = torch.float32,
        unit_dim: int = -1,
        events: Events | None = None,
        constant: bool = False,
    ) -> None:
        self.folding = activity if isinstance(activity, Folding) else None
        if isinstance(activity, Folding):
            activity = activity.potential.membrane  # of the shape and dtype of the values
        else:
            self.activity = activity
        self.shape, self.device = activity.shape, activity.device
        self.is_raster = activity.dtype == torch.bool
        self.known_events = events
        self.unit_dim = unit_dim
        self.dtype = torch.promote_types(activity.dtype, dtype)
        self.dt = dt
        self.side = side
        self.constant = constant
        self._carried = {} if carried is None else carried
        self._used: set[tuple[float, TraceMode]] = set()
        self._traces: dict[tuple[float, TraceMode], Tensor] = {}
        self._last: dict[tuple[float, TraceMode], Tensor] = {}
        self._age: Tensor | None = None
        self._steps: Tensor | None = None
        self._averages: dict[tuple[float, int], tuple[Tensor, Tensor]] = {}
        self._derived: dict[str, Activity] = {}

    @cached_property
    def activity(self) -> Tensor:
        """The activity, ``[T, B, ...]``; a folding computes it when it is first read."""
        assert self.folding is not None
        return self.folding.values()

    def events(self) -> Events:
        """Returns the spikes' indices in ``[K, neurons]``; they are searched for only once."""
        if self.known_events is None:
            self.known_events = Events(self.activity.flatten(0, -2))
        return self.known_events

    def initial(self, decay: float, mode: TraceMode) -> Tensor | None:
        """Returns the trace before the window's first step, ``None`` for zero."""
        self._used.add((decay, mode))  # what is used passes to the next window
        return self._before(trace_key(self.side, decay, mode), self.activity.shape[1:])

    def values(
        self,
        decay: float | None = None,
        mode: TraceMode = "cumulative",
        shifted: bool = False,
        out: Tensor | None = None,
    ) -> Tensor:
        """Returns the activity, or a trace of it, kept, or in memory the caller may overwrite."""
        if decay is None:
            return as_numbers(self.activity, self.dtype)
        if shifted:
            return self._before_each(decay, mode)
        known = self._traces.get((decay, mode))
        if known is None:
            initial = self.initial(decay, mode)
            if initial is None and mode == "cumulative" and has_short_traces(self.activity):
                known = short_trace(self.activity, decay, self.dtype, out)
            else:
                known = trace(self.activity, decay, mode, initial, self.dtype, out)
            if out is None:
                self._traces[decay, mode] = known
            else:
                self._last[decay, mode] = out[-1].clone()
        return known

    def _before_each(self, decay: float, mode: TraceMode) -> Tensor:
        """Returns a trace just before each step, decayed up to it."""
        # The trace of values that have decayed for a step is the trace, decayed for a step.
        initial = self.initial(decay, mode)
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        out[0], out[1:] = 0.0 if initial is None else initial, as_bytes(self.activity[:-1])
        return trace(out.mul_(decay), decay, mode, out=out)

    def ones(self) -> Activity:
        """Returns ones of this shape."""
        ones = torch.ones((), dtype=self.dtype, device=self.device).expand(self.shape)
        return Activity(ones, self.dt, dtype=self.dtype, unit_dim=self.unit_dim)

    def constant_input(self, vjp: WeightVJP, pre: Activity) -> Activity:
        """Returns an input that is always one, for terms of this as the postsynaptic side."""
        ones = vjp.for_constant_input.constant_input(self.activity, pre.activity)
        return Activity(ones, self.dt, dtype=self.dtype, unit_dim=self.unit_dim, constant=True)

    def edges(self, decay: float, mode: TraceMode) -> tuple[Tensor | None, Tensor] | None:
        """Returns a trace before the window, and memory for its end; ``None`` if it is computed."""
        if (decay, mode) in self._traces:
            return None
        if (decay, mode) not in self._last:
            self._last[decay, mode] = torch.empty_like(self.activity[0], dtype=self.dtype)
        return self.initial(decay, mode), self._last[decay, mode]

    def derived(self, name: str, values: Tensor) -> Activity:
        """Returns values that are computed of this, whose traces pass on together with its own."""
        if name not in self._derived:
            self._derived[name] = Activity(
                values, self.dt, self._carried, name, self.dtype, self.unit_dim
            )
        return self._derived[name]

    def age(self) -> Tensor:
        """Returns the time since the latest spike, in ms; infinite before the first one."""
        if self._age is None:
            spikes = self.activity != 0
            age = torch.ones(spikes.shape, dtype=self.dtype, device=spikes.device)
            before = self.edges_of_age()[0]
            for now, spike in zip(age.unbind(0), spikes.unbind(0), strict=True):
                now.add_(torch.inf if before is None else before).masked_fill_(spike, 0.0)
                before = now
            self._steps = age[-1].clone()
            self._age = age.mul_(self.dt)
        return self._age

    def edges_of_age(self) -> tuple[Tensor | None, Tensor]:
        """Returns the steps since the last spike before the window, and memory for those after."""
        # Both are `[B, ...]`, and infinite where there was no spike.
        if self._steps is None:
            self._steps = torch.empty_like(self.activity[0], dtype=self.dtype)
        return self._before(self._age_key, self.activity.shape[1:]), self._steps

    def average(self, decay: float, power: int) -> Tensor:
        """Returns the running average over samples and all earlier steps, of every neuron."""
        known = self._averages.get((decay, power))
        if known is None:
            values = as_numbers(self.activity, self.dtype) ** power
            rest = sorted(set(range(1, values.ndim)) - {self.unit_dim % values.ndim})
            mean = values.mean(rest, keepdim=True)
            ones = mean.new_ones(len(mean))
            keys = self._average_keys(decay, power)
            known = self._averages[decay, power] = (
                trace(mean, decay, "cumulative", self._before(keys[0], mean.shape[1:])),
                trace(ones, decay, "cumulative", self._before(keys[1], ones.shape[1:])),
            )
        total, weight = known
        return total / weight.reshape(-1, *[1] * (total.ndim - 1))

    def carry(self, of_samples: bool = True) -> dict[StateKey, Tensor]:
        """Returns what passes to the next window."""
        left: dict[StateKey, Tensor] = {}
        for each in self._derived.values():
            left.update(each.carry(of_samples))
        for (decay, power), sums in self._averages.items():
            for key, values in zip(self._average_keys(decay, power), sums, strict=True):
                left[key] = values[-1].clone()
        if not of_samples:
            return left
        for decay, mode in self._used:
            left[trace_key(self.side, decay, mode)] = self._at_the_end(decay, mode)
        if self._steps is not None:
            left[self._age_key] = self._steps
        return left

    def _at_the_end(self, decay: float, mode: TraceMode) -> Tensor:
        """Returns the trace at the last step, in memory that keeps nothing else alive."""
        known = self._traces.get((decay, mode))
        if known is not None:  # a view would keep the whole trace alive
            return known[-1].clone() if known.shape[0] > 1 else known[0]
        if (decay, mode) in self._last:
            return self._last[decay, mode]
        events, activity, initial = self.known_events, self.activity, self.initial(decay, mode)
        last, settings = None, (decay, mode, initial, self.dtype)
        if events is not None:
            last = last_trace_of_events(events, activity.shape, *settings)
        return last_trace(activity, *settings) if last is None else last

    @property
    def _age_key(self) -> StateKey:
        return StateKey("sample", f"{self.side} age")

    def _average_keys(self, decay: float, power: int) -> tuple[StateKey, StateKey]:
        kind = f"{self.side} average of power {power}"
        total, weight = (StateKey("neuron", f"{kind}, {part}", decay) for part in ("sum", "weight"))
        return total, weight

    def _before(self, key: StateKey, shape: torch.Size) -> Tensor | None:
        value = self._carried.get(key)
        if value is None or value.shape != shape:
            return None
        return value.to(self.activity.device, self.dtype)


def has_short_traces(values: Tensor) -> bool:
    """Returns whether values are few spikes, whose traces :func:`short_trace` computes faster."""
    few = values.shape[0] <= _SHORT and values.shape[0] * values.numel() <= _FEW
    return few and values.dtype == torch.bool and values.is_cpu and not is_traced()


def short_trace(
    spikes: Tensor, decay: float, dtype: torch.dtype, out: Tensor | None, reverse: bool = False
) -> Tensor:
    """Returns a cumulative trace, or its adjoint, as one product with powers of the decay."""
    # The plain forms are `trace` and `reverse_trace`.
    out = torch.empty(spikes.shape, dtype=dtype) if out is None else out
    powers = _powers(decay, len(spikes), dtype)
    torch.mm(
        powers.T if reverse else powers, as_numbers(spikes, dtype).flatten(1), out=out.flatten(1)
    )
    return out


@lru_cache(64)
def _powers(decay: float, steps: int, dtype: torch.dtype) -> Tensor:
    """Returns ``[T, T]``, how much of a spike in one step (column) is left in another (row)."""
    with torch.inference_mode(False):
        lags = torch.arange(steps).unsqueeze(1) - torch.arange(steps)
        return torch.tril(decay ** lags.clamp(min=0).to(torch.float64)).to(dtype)


class Side(NamedTuple):
    """One side of a product: activity or a trace of it, and factors of its values."""

    source: Activity
    decay: float | None = None
    mode: TraceMode = "cumulative"
    weights: Tensor | None = None

    @classmethod
    def of(cls, given: Signal | Tensor, window: Window) -> Side:
        """Returns a side of a term in a window."""
        if isinstance(given, Tensor):
            return cls(Activity(given))
        source, weights = given.source, given.weights
        if type(source) is SignalName:
            known, name = window.sources, source.side
            source = known[name] if name in known else window.source(name)
        if isinstance(weights, Signal):
            weights = cls.of(weights, window).values()
        if given.shifted:
            values = source.values(given.decay, given.mode, shifted=True)
            return cls(Activity(values), weights=weights)
        return cls(source, given.decay, given.mode, weights)

    @property
    def activity(self) -> Tensor:
        """The recorded activity, ``[T, B, ...]``."""
        return self.source.activity

    def values(self) -> Tensor:
        """Returns the values, ``[T, B, ...]``, in the dtype of the computation."""
        values = self.source.values(self.decay, self.mode)
        return values if self.weights is None else values * self.weights


class Product:
    """A term with its data."""

    follows_pieces = False

    def __init__(self, term: Term, window: Window) -> None:
        self.rate = term.rate
        self.operands = Side.of(term.post, window), Side.of(term.pre, window)
        self.size = self.operands[0].source.shape[1]  # how many samples there are
        self.transform: Callable[[Tensor], Tensor] | None = term.transform
        if term.room is not None:
            share = partial(term.room.bounded, window.param, upper=term.rate > 0)
            first = term.transform
            self.transform = share if first is None else lambda product: share(first(product))
        # whether this can be summed together with others
        self.is_plain = self.transform is None and not self.operands[1].source.constant

    def parts(self, samples: slice, vjp: WeightVJP) -> Parts:
        """Returns the product of some samples as the part that the rate's sign selects."""
        operands = self.operands
        dtype = torch.promote_types(operands[0].source.dtype, operands[1].source.dtype)
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
    def sides(self) -> list[tuple[Side, Side]]:
        """Both sides of all products."""
        every = (*self.products, *self.others)
        return [each.operands for each in every if isinstance(each, Product)]


def check_sides(
    rule: str, sides: Iterable[tuple[Any, Any]], matrix: Sequence[int] | None = None
) -> None:
    """Checks that sides have one time and batch, the matrix's shape if given, and their order."""
    # They are signals or tensors `[T, B, ...]`, the postsynaptic before the presynaptic one.
    for both in sides:
        for side in both:
            factor = getattr(side, "weights", None)
            if factor is not None and factor.shape and not fits(factor.shape, side.source.shape):
                raise ValueError(
                    f"A signal in a Term of `{rule}` should be multiplied by one of its own side."
                    f" Found {list(side.source.shape)} times {list(factor.shape)}: a Term"
                    " multiplies the two sides, `Term(rate, window.post, window.pre)`."
                )
        post, pre = (getattr(each, "source", each) for each in both)
        names = [getattr(each, "side", "").removesuffix(" ones") for each in (post, pre)]
        if names == ["pre", "post"]:
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
        if matrix and (*post.shape[2:], *pre.shape[2:]) != (*matrix,):
            raise ValueError(
                f"A Term of `{rule}` should have sides [T, B, {matrix[0]}] and [T, B, {matrix[1]}]."
                f" Found {list(post.shape)} for `post` and {list(pre.shape)} for `pre`: return"
                " `Term(rate, window.post, window.pre)`, or tensors of these shapes."
            )

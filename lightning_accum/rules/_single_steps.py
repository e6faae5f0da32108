"""Evaluates small windows and single steps of a cell by terms that are the same in each."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TypeAlias

from torch import Tensor

from lightning_accum._compat.torch import is_traced
from lightning_accum._events import Events
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.state import CellState
from lightning_accum.engine.forms import is_small
from lightning_accum.engine.product_sums import short_trace, widest
from lightning_accum.engine.recording import BOTH_SIDES, Recorded, Target
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.state import Carried, StateKey, of_neurons, trace_key
from lightning_accum.engine.terms import Change, Term
from lightning_accum.functional.dtypes import as_bytes, in_full_precision
from lightning_accum.functional.reductions import Reduction
from lightning_accum.observe import Monitor, WindowRecorder
from lightning_accum.sparse.kernel_step import StepMemory, StepProduct, StepTrace
from lightning_accum.updates import Accumulator, Updater, get_updater
from lightning_accum.updates.part import Product, StackedProducts

_AT_FIRST = 2  # steps in a row, evaluated by ordinary calls and applied, before one is planned


# The memory that every step writes over, and traces and products of values in it.
InMemory: TypeAlias = tuple[StepMemory, dict[StateKey, Tensor], StackedProducts]


class FixedTerms:
    """Evaluates small windows as :mod:`.evaluate` does, without asking the rule for its terms."""

    def __init__(self, terms: Sequence[Term], batch: Reduction) -> None:
        self._dtype = widest(terms)
        sides = [side for term in terms for side in term.operands]
        self._names = sorted({side.source.side for side in sides})
        self._traces: dict[StateKey, StepTrace] = {}

        def place(side: Signal) -> int:
            """Returns where a side is among the activity of all names and the traces."""
            name, decay, mode = side.source.side, side.decay, side.mode
            if decay is None:
                return self._names.index(name)
            key = trace_key(name, decay, mode)
            self._traces.setdefault(key, StepTrace(self._names.index(name), decay, mode))
            return len(self._names) + [*self._traces].index(key)

        scale = 1 / terms[0].size if batch.averages else 1.0
        products = []
        for term in terms:
            post, pre = map(place, term.operands)
            products.append(StepProduct(post, pre, term.rate * scale))
        signs = [[each for each in products if (each.rate < 0) == sign] for sign in (False, True)]
        self._products = [own for own in signs if own]  # of one sign each

    def in_memory(self, seen: Mapping[str, Tensor]) -> InMemory | None:
        """Returns the memory of further steps of this kind, if there is a kernel for them."""
        steps = [seen[name] for name in self._names]
        rows = [step if step.ndim == 2 else step.flatten(0, -2) for step in steps]
        if not StepMemory.suits(rows, self._dtype):
            return None
        products, traces = [*chain(*self._products)], self._traces.items()
        memory = StepMemory(rows, [*self._traces.values()], products, self._dtype)
        values = memory.values[len(rows) :]
        left = {
            key: value.view(steps[trace.place].shape)
            for (key, trace), value in zip(traces, values, strict=True)
        }
        parts: tuple[list[Product], list[Product]] = [], []
        for post, pre, rate in products:
            parts[rate < 0].append((memory.values[post], memory.values[pre], abs(rate)))
        return memory, left, StackedProducts(*parts, memory.left, memory.right)

    def accumulate(
        self,
        accumulator: Accumulator,
        activity: Mapping[str, Tensor],
        carries: bool,
        carried: Carried,
    ) -> dict[StateKey, Tensor]:
        """Accumulates the change of a window, and returns what passes to the next one."""
        after = of_neurons(carried)
        recorded = (as_bytes(activity[name]) for name in self._names)
        values = [each.to(self._dtype, copy=True).contiguous() for each in recorded]
        with in_full_precision(values[0].device.type):
            for key, (place, decay, mode) in self._traces.items():
                found = short_trace(values[place], decay, mode, carried.get(key))
                values.append(found)
                if carries:
                    after[key] = found[-1].clone() if len(found) > 1 else found[-1]
            rows = [each.flatten(0, -2) for each in values]
            for each in (accumulator, *accumulator.records):
                for own in self._products:
                    posts, pres, rates = zip(*own, strict=True)
                    each.accumulate_outer(
                        [rows[post] for post in posts],
                        [rows[pre] for pre in pres],
                        [*map(abs, rates)],
                        negative=rates[0] < 0,
                        keep=True,
                    )
        return after


class NextStep:
    """Evaluates steps in which nothing but the activity changes, without making a window."""

    # The result, and what is counted, are those of the rule's ordinary call.

    def __init__(
        self,
        cell: Cell,
        state: CellState,
        target: Target,
        recorders: Mapping[str, WindowRecorder],
        seen: Mapping[str, Tensor],
        step: InMemory,
    ) -> None:
        self._connection, self._neuron = weakref.ref(cell.connection), weakref.ref(cell.neuron)
        self._state, self._param, self.accumulator = state, target.name, target.accumulator
        self._memory, self._traces, self._products = step
        self._after: dict[StateKey, Tensor] | None = None
        self._pre, self._post = recorders["pre"], recorders["post"]
        self._seen_pre, self._seen_post = seen["pre"], seen["post"]
        self._snapshots = state.snapshots
        self._windows = self._seen_pre.unsqueeze(0), self._seen_post.unsqueeze(0)

    def suits(self, replacement: Updater | None) -> bool:
        """Returns whether this evaluates what was recorded; changes nothing."""
        neuron = self._neuron()
        if neuron is None or not self.reads_same():
            return False
        updater = self._updater(replacement)
        if updater is None or self._param not in updater.names:
            return False
        accumulator: Accumulator = getattr(updater, self._param)
        if accumulator is not self.accumulator or not accumulator.is_free:
            return False
        param = updater.target(self._param)
        return param.is_cpu and param.dtype is self._memory.left.dtype

    def apply(self, replacement: Updater | None) -> bool:
        """Applies the change, and returns whether it is done; otherwise nothing has changed."""
        updater = self._updater(replacement)
        return updater is not None and updater.apply_stacked()

    def _updater(self, replacement: Updater | None) -> Updater | None:
        connection = self._connection()
        if connection is None or replacement is not None:
            return replacement
        return get_updater(connection)

    def reads_same(self) -> bool:
        """Returns whether one step is recorded in the same memory, without a snapshot since."""
        return (
            self._pre.only_step() is self._seen_pre
            and self._post.only_step() is self._seen_post
            and self._state.snapshots == self._snapshots
        )

    def evaluate(self, cell: str, events: Events) -> None:
        """Accumulates the change, in an accumulator that is free."""
        state = self._state
        carried = state.carried if state.carried is self._after else self._take(state.carried)
        self._products.bound = self._memory.make()
        self.accumulator.hold(self._products)
        events.evaluated(cell, *self._windows, {})
        if state.loaded:
            state.check_loaded(carried, cell)
        state.carried = carried
        state.samples[self._param] = state.samples.get(self._param, 0) + len(self._seen_pre)

    def _take(self, carried: Carried) -> dict[StateKey, Tensor]:
        """Copies traces to the memory, and returns those of the memory with all other values."""
        for place, (key, trace) in enumerate(self._traces.items()):
            before = carried.get(key)
            fits = before is not None and before.shape == trace.shape
            self._memory.begin(place, before if fits else None)
        self._after = {**of_neurons(carried), **self._traces}
        return self._after


class StepPlanner:
    """Evaluates small windows whose terms are known, and plans the next step."""

    # It plans one when a rule is called and applied after each step.

    def __init__(self, batch: Reduction) -> None:
        self.next: NextStep | None = None
        self._batch = batch
        self._terms: FixedTerms | None = None
        self._suited: tuple[object, ...] = ()  # the kind of activity that the terms are for
        self._in_a_row = 0

    def note_terms(
        self,
        changes: Sequence[Change],
        signals: Mapping[str, Recorded],
        targets: Sequence[Target],
    ) -> None:
        """Notes terms, which are the same in all windows, if their window is small."""
        (first, *others), batch = targets, self._batch
        if others or first.name != "weight" or not (batch.adds and first.vjp.is_matrix):
            return
        kind = _kind(signals, first.param)
        if kind == self._suited:
            return  # it is not small
        every = [change.as_product() for change in changes if change.rate]
        products = [product for product in every if product is not None]
        single = len(signals["pre"].activity) == 1
        small = len(products) == len(every) > 0 and (single or is_small(products))
        self._terms, self._suited = FixedTerms(products, batch) if small else None, kind

    def terms(self, signals: Mapping[str, Recorded], target: Target) -> FixedTerms | None:
        """Returns the noted terms; ``None`` if there are none for such activity."""
        if self._terms is None or is_traced():
            return None
        return self._terms if self._suited == _kind(signals, target.param) else None

    def note(
        self,
        cell: Cell,
        state: CellState,
        target: Target,
        monitors: Mapping[str, Monitor],
        terms: FixedTerms | None,
    ) -> None:
        """Notes a step that the rule's ordinary call has evaluated, by terms if they were known."""
        accumulator, known = target.accumulator, self.next
        if known is not None and known.accumulator is accumulator and known.reads_same():
            return  # it may evaluate later steps, though it did not evaluate this one
        counts = terms is not None and accumulator.contributions == 1
        self.next, self._in_a_row = None, self._in_a_row + 1 if counts else 0
        if terms is None or self._in_a_row < _AT_FIRST:
            return
        found = {side: monitors[side].reducer for side in BOTH_SIDES}
        recorders = {k: each for k, each in found.items() if isinstance(each, WindowRecorder)}
        steps = {side: recorder.only_step() for side, recorder in recorders.items()}
        seen = {side: step for side, step in steps.items() if step is not None}
        step = terms.in_memory(seen) if len(seen) == 2 else None
        if step is not None:
            self.next = NextStep(cell, state, target, recorders, seen, step)

    def __reduce__(self) -> tuple[object, ...]:
        return StepPlanner, (self._batch,)  # a copy plans its own steps


def _kind(signals: Mapping[str, Recorded], param: Tensor) -> tuple[object, ...]:
    """Returns the shapes, dtypes and device for which noted terms are valid."""
    pre, post = (signals[side].activity for side in BOTH_SIDES)
    sides = pre.shape, pre.dtype, post.shape, post.dtype
    return *sides, pre.device, param.shape, param.dtype, param.device

"""Evaluates single steps of a cell whose terms are named, in memory that each step reuses."""

import weakref
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import torch
from torch import Tensor

from lightning_accum._compat.torch_internals import hook_count
from lightning_accum._training_events import Observer
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.state import CellState
from lightning_accum.engine.rule_inputs import BOTH_SIDES, Target
from lightning_accum.engine.state_keys import Carried, StateKey, of_neurons, trace_key
from lightning_accum.engine.terms import Change, Term
from lightning_accum.engine.window_changes import dtype_of
from lightning_accum.functional.reductions import Reduction
from lightning_accum.observe import Monitor, Reducer
from lightning_accum.sparse.step_operands import StepMemory, StepProduct, StepTrace
from lightning_accum.updates import Updater, get_updater
from lightning_accum.updates.part import StackedProducts

_AT_FIRST = 2  # steps in a row, evaluated by ordinary calls and applied, before one is planned


# The memory that every step writes over, and traces and products of values in it.
InMemory: TypeAlias = tuple[StepMemory, dict[StateKey, Tensor], StackedProducts]


def step_memory(
    terms: Sequence[Term], scale: float, seen: Mapping[str, Tensor], dtype: torch.dtype
) -> InMemory | None:
    """Returns the memory of further steps of a weight's terms, if there is a kernel for them."""
    names, traces = ["post", "pre"], dict[StateKey, StepTrace]()

    def place(side: Any) -> int:  # among the activity of both sides and the traces
        name, decay, mode = side.source.side, side.decay, side.mode
        if decay is None:
            return names.index(name)
        key = trace_key(name, decay, mode)
        traces.setdefault(key, StepTrace(names.index(name), decay, mode))
        return len(names) + [*traces].index(key)

    products = [StepProduct(place(t.post), place(t.pre), t.rate * scale) for t in terms]
    products.sort(key=lambda each: each.rate < 0)  # those of one sign together
    steps = [seen[name] for name in names]
    rows = [step if step.ndim == 2 else step.flatten(0, -2) for step in steps]
    if not StepMemory.suits(rows, dtype):
        return None
    memory = StepMemory(rows, [*traces.values()], products, dtype)
    left = {
        key: value.view(steps[trace.place].shape)
        for (key, trace), value in zip(traces.items(), memory.values[len(rows) :], strict=True)
    }
    raised = len(rows[0]) * sum(each.rate >= 0 for each in products)
    return memory, left, StackedProducts(memory.left.T, memory.right, raised)


class NextStep:
    """Evaluates steps in which nothing but the activity changes, without making a window."""

    # The result, and what is counted, are those of the rule's ordinary call.

    def __init__(
        self,
        cell: Cell,
        state: CellState,
        target: Target,
        recorders: Mapping[str, Reducer],
        seen: Mapping[str, Tensor],
        step: InMemory,
    ) -> None:
        self._connection, self._neuron = weakref.ref(cell.connection), weakref.ref(cell.neuron)
        self._state, self._param, self.pending = state, target.name, target.pending
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
        changes = updater.changes
        pending = changes.pending[self._param]
        if pending is not self.pending or pending.record is not None or not pending.is_free:
            return False
        param = changes.target(self._param)
        return param.is_cpu and param.dtype is self._memory.left.dtype

    def apply(self, replacement: Updater | None) -> bool:
        """Applies the change, and returns whether it is done; otherwise nothing has changed."""
        updater = self._updater(replacement)
        return updater is not None and not hook_count(updater) and updater.changes.apply_product()

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

    def evaluate(self, cell: str, events: Observer) -> None:
        """Accumulates the change, where nothing is pending."""
        state = self._state
        carried = state.carried if state.carried is self._after else self._take(state.carried)
        self._products.bound = self._memory.make()
        self.pending.waiting = self._products
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
    """Plans the next step of a cell whose trainer is called and applied after each step."""

    def __init__(
        self, batch: Reduction, named: Mapping[str, Sequence[Change] | None], suits: bool
    ) -> None:
        self.next: NextStep | None = None
        changes = named.get("weight") if suits and batch.adds and len(named) == 1 else None
        every = changes or ()
        self._terms = [each for each in every if isinstance(each, Term) and each.is_pair]
        self._suits = len(self._terms) == len(every) > 0
        self._averages, self._in_a_row = batch.averages, 0

    def note(
        self,
        cell: Cell,
        state: CellState,
        targets: Sequence[Target],
        monitors: Mapping[str, Monitor],
    ) -> None:
        """Notes a step that the trainer's ordinary call has evaluated."""
        target, known = targets[0], self.next
        pending = target.pending
        if not self._suits or (
            known is not None and known.pending is pending and known.reads_same()
        ):
            return  # it may evaluate later steps, though it did not evaluate this one
        self.next = None
        self._in_a_row = self._in_a_row + 1 if len(pending) == 1 else 0
        if self._in_a_row < _AT_FIRST or not target.vjp.is_matrix:
            return
        recorders = {side: monitors[side].reducer for side in BOTH_SIDES}
        steps = {side: recorder.only_step() for side, recorder in recorders.items()}
        seen = {side: step for side, step in steps.items() if step is not None}
        if len(seen) < len(BOTH_SIDES):
            return
        kinds = (each.dtype for each in seen.values())
        dtype = reduce(torch.promote_types, kinds, dtype_of(targets))
        scale = 1 / len(seen["post"]) if self._averages else 1.0
        step = step_memory(self._terms, scale, seen, dtype)
        if step is not None:
            self.next = NextStep(cell, state, target, recorders, seen, step)

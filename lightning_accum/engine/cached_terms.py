"""Terms that are the same in every window, evaluated for small windows without the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from lightning_accum.engine.fold import short_trace, widest
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.state import Carried, StateKey, of_neurons, trace_key
from lightning_accum.engine.terms import Term
from lightning_accum.functional.dtypes import as_bytes, in_full_precision
from lightning_accum.functional.reductions import Reduction
from lightning_accum.functional.traces import TraceMode
from lightning_accum.sparse.kernel_step import StepMemory, StepProduct, StepTrace
from lightning_accum.updates.accumulator import Accumulator
from lightning_accum.updates.part import Product, StackedProducts


class StepInMemory(NamedTuple):
    """The evaluation of one step in memory that every step writes over."""

    memory: StepMemory
    traces: dict[StateKey, Tensor]  # in this memory
    products: StackedProducts  # of values in this memory


class FixedTerms:
    """Evaluates small windows as :mod:`.evaluate` does, without asking the rule for its terms."""

    def __init__(self, terms: Sequence[Term], batch: Reduction) -> None:
        self._dtype = widest(terms)
        sides = [side for term in terms for side in term.operands]
        self._names = sorted({side.source.side for side in sides})
        self._traces: list[tuple[int, float, TraceMode, StateKey]] = []

        def place(side: Signal) -> int:
            """Returns where a side is among the activity of all names and the traces."""
            name, decay = side.source.side, side.decay
            if decay is None:
                return self._names.index(name)
            found = self._names.index(name), decay, side.mode, trace_key(name, decay, side.mode)
            if found not in self._traces:
                self._traces.append(found)
            return len(self._names) + self._traces.index(found)

        scale = 1 / terms[0].size if batch.averages else 1.0
        self._products = []
        for negative in (False, True):
            own = [term for term in terms if (term.rate < 0) == negative]
            posts, pres = ([place(term.operands[side]) for term in own] for side in (0, 1))
            if own:
                rates = [abs(term.rate) * scale for term in own]
                self._products.append((negative, posts, pres, rates))

    def in_memory(self, seen: Mapping[str, Tensor]) -> StepInMemory | None:
        """Returns the memory of further steps of this kind, if there is a kernel for them."""
        steps = [seen[name] for name in self._names]
        rows = [step if step.ndim == 2 else step.flatten(0, -2) for step in steps]
        if not StepMemory.suits(rows, self._dtype):
            return None
        products = [
            StepProduct(post, pre, -rate if negative else rate)
            for negative, *some in self._products
            for post, pre, rate in zip(*some, strict=True)
        ]
        traces = [StepTrace(place, decay, mode) for place, decay, mode, _ in self._traces]
        memory = StepMemory(rows, traces, products, self._dtype)
        values = memory.values[len(rows) :]
        left = {
            key: value.view(steps[place].shape)
            for (place, _, _, key), value in zip(self._traces, values, strict=True)
        }
        parts: tuple[list[Product], list[Product]] = [], []
        for post, pre, rate in products:
            parts[rate < 0].append((memory.values[post], memory.values[pre], abs(rate)))
        return StepInMemory(memory, left, StackedProducts(*parts, memory.left, memory.right))

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
            for place, decay, mode, key in self._traces:
                found = short_trace(values[place], decay, mode, carried.get(key))
                values.append(found)
                if carries:
                    after[key] = found[-1].clone() if len(found) > 1 else found[-1]
            rows = [each.flatten(0, -2) for each in values]
            for each in (accumulator, *accumulator.records):
                for negative, posts, pres, rates in self._products:
                    each.accumulate_outer(
                        [rows[post] for post in posts],
                        [rows[pre] for pre in pres],
                        rates,
                        negative=negative,
                        keep=True,
                    )
        return after

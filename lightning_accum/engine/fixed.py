"""Terms that are the same in every window, evaluated for windows of one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from lightning_accum.engine.signal import Signal
from lightning_accum.engine.state import Carried, StateKey, of_neurons, trace_key
from lightning_accum.engine.terms import Term
from lightning_accum.functional.numbers import as_bytes
from lightning_accum.functional.reductions import Reduction
from lightning_accum.functional.traces import TraceMode
from lightning_accum.sparse.step import next_trace, widest
from lightning_accum.updates.accumulator import Accumulator


class FixedTerms:
    """Evaluates windows of one step whose terms are known, without asking the rule for them.

    The result is that of :func:`lightning_accum.engine.run.run_rule`.

    Args:
        terms: products of a matrix, each side of which is recorded activity or a trace of it.
        batch: the reduction over the batch, the sum or the mean.
    """

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

    def accumulate(
        self, accumulator: Accumulator, activity: Mapping[str, Tensor], carried: Carried
    ) -> dict[StateKey, Tensor]:
        """Accumulates the change of a window, and returns what passes to the next one.

        Args:
            accumulator: the accumulator of the parameter.
            activity: ``[1, B, ...]`` of both sides, by name.
            carried: what the previous window left.
        """
        after = of_neurons(carried)
        values = [as_bytes(activity[name][0]).to(self._dtype, copy=True) for name in self._names]
        for place, decay, mode, key in self._traces:
            after[key] = next_trace(values[place], decay, mode, carried.get(key))
            values.append(after[key])
        rows = [each if each.ndim == 2 else each.flatten(0, -2) for each in values]
        for negative, posts, pres, rates in self._products:
            accumulator.accumulate_outer(
                [rows[post] for post in posts],
                [rows[pre] for pre in pres],
                rates,
                negative=negative,
                keep=True,
            )
        return after

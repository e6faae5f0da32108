"""The base of rules on pairs of spikes: STDP and its reward-modulated forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_accum.cells.state import Hyperparameters
from lightning_accum.engine.terms import Term
from lightning_accum.engine.window import Window
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.functional.traces import TraceMode
from lightning_accum.rules._hyperparameters import extended
from lightning_accum.rules.base import Rule


class PairRule(Rule):
    """Base of rules on pairs of spikes.

    Args:
        lr_post: rate on a postsynaptic spike, times the presynaptic trace.
        lr_pre: rate on a presynaptic spike, times the postsynaptic trace.
        tc_post: time constant of the postsynaptic trace, in ms.
        tc_pre: time constant of the presynaptic trace, in ms.
        dt: step, in ms.
        trace_mode: ``"cumulative"``, every pair of spikes counts, or ``"nearest"``, the nearest.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        hyperparameters: hyperparameters that a subclass adds, by name.
        **options: ``time_dim``, ``params``, ``carry``, ``backend`` and ``picker`` of
            :class:`~lightning_accum.rules.base.Rule`.
    """

    def __init__(
        self,
        lr_post: float,
        lr_pre: float,
        tc_post: float = 20.0,
        tc_pre: float = 20.0,
        dt: float = 1.0,
        trace_mode: TraceMode = "cumulative",
        batch_reduction: ReductionFn | str = "mean",
        *,
        hyperparameters: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        pair = {
            "lr_post": lr_post,
            "lr_pre": lr_pre,
            "tc_post": tc_post,
            "tc_pre": tc_pre,
            "trace_mode": trace_mode,
        }
        super().__init__(
            extended(pair, hyperparameters), dt=dt, batch_reduction=batch_reduction, **options
        )

    def pairs(self, window: Window, h: Hyperparameters) -> tuple[Term, Term]:
        """Returns a term for the spikes of each side, times the trace of the other side."""
        return (
            Term(h.lr_post, window.post, window.pre.trace(h.tc_pre, h.trace_mode)),
            Term(h.lr_pre, window.post.trace(h.tc_post, h.trace_mode), window.pre),
        )

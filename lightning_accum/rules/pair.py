"""The base of rules on pairs of spikes: STDP and its reward-modulated forms."""

from __future__ import annotations

from typing_extensions import Self

from lightning_accum.cells.fields import field
from lightning_accum.engine.terms import Term
from lightning_accum.engine.window import Window
from lightning_accum.functional.traces import TraceMode
from lightning_accum.rules.base import Rule


class PairRule(Rule):
    """Base of rules on pairs of spikes; the arguments are those of STDP."""

    lr_post: float
    lr_pre: float
    tc_post: float = 20.0
    tc_pre: float = 20.0
    trace_mode: TraceMode = field(default="cumulative", kw_only=True)

    def pairs(self, window: Window, h: Self) -> tuple[Term, Term]:
        """Returns a term for the spikes of each side, times the trace of the other side."""
        return (
            Term(h.lr_post, window.post, window.pre.trace(h.tc_pre, h.trace_mode)),
            Term(h.lr_pre, window.post.trace(h.tc_post, h.trace_mode), window.pre),
        )

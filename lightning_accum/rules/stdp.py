"""Pair-based spike-timing-dependent plasticity."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import Self

from lightning_accum.cells.fields import field
from lightning_accum.engine.terms import Term
from lightning_accum.engine.window import Window
from lightning_accum.functional.reductions import reduction
from lightning_accum.functional.traces import TraceMode, decay_factor
from lightning_accum.rules.base import Rule
from lightning_accum.sparse.neurons import PairSTDP


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


class STDP(PairRule):
    r"""Pair-based spike-timing-dependent plasticity.

    .. math::
        \Delta w = \eta_\text{post} \sum_t s_\text{post}(t)\, x_\text{pre}(t)
                 + \eta_\text{pre} \sum_t x_\text{post}(t)\, s_\text{pre}(t)

    with spikes :math:`s` and their exponential traces :math:`x`, into which a spike counts in the
    step in which it happens. A rate's sign says to which part its term goes:

    ============== ============= ==================
    ``lr_post``    ``lr_pre``    mode
    ============== ============= ==================
    positive       negative      Hebbian
    negative       positive      anti-Hebbian
    positive       positive      potentiative only
    negative       negative      depressive only
    ============== ============= ==================

    Args:
        lr_post: rate on a postsynaptic spike, times the presynaptic trace.
        lr_pre: rate on a presynaptic spike, times the postsynaptic trace.
        tc_post: time constant of the postsynaptic trace, in ms.
        tc_pre: time constant of the presynaptic trace, in ms.
        trace_mode: ``"cumulative"``, every pair of spikes counts, or ``"nearest"``, the nearest.
        **options: those of :class:`Rule`.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from lightning_accum import STDP, Serial
        >>> layer = Serial(nn.Linear(1, 1, bias=False), nn.Identity())
        >>> _ = nn.init.ones_(layer.connection.weight)
        >>> stdp = STDP(lr_post=0.1, lr_pre=-0.1, tc_post=20.0, tc_pre=20.0)
        >>> unit = stdp.register_cell("enc", layer.cell)
        >>> for spike in (1.0, 0.0, 1.0):
        ...     _ = layer(torch.tensor([[spike]]))
        >>> stdp()
        >>> unit.cell.updater.weight.pos
        tensor([[0.2905]])
        >>> stdp.update()

    Source:
        Bi & Poo 1998, doi:10.1523/JNEUROSCI.18-24-10464.1998; Song, Miller & Abbott 2000,
        doi:10.1038/78829; the online form with traces: Morrison, Diesmann & Gerstner 2008,
        doi:10.1007/s00422-008-0233-1, eq. 4.
    """

    _fixed_terms = True

    def terms(self, window: Window, h: Self) -> Sequence[Term]:
        """Returns a term for the spikes of each side."""
        return self.pairs(window, h)

    def loop_constants(self, h: Self, batch: int) -> PairSTDP | None:
        """Returns the constants for the loop in C that learns online."""
        how = reduction(h.batch_reduction)
        if not how.adds or h.lr_post == h.lr_pre == 0:  # then nothing is applied
            return None
        scale = 1 / batch if how.averages else 1.0
        decays = decay_factor(h.tc_pre, h.dt), decay_factor(h.tc_post, h.dt)
        rates = scale * h.lr_post, scale * h.lr_pre
        return PairSTDP(*rates, *decays, nearest=h.trace_mode == "nearest")

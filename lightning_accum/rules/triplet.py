"""Triplet-based spike-timing-dependent plasticity."""

from dataclasses import field

from lightning_accum.engine import Term, Window
from lightning_accum.engine.rule import Rule
from lightning_accum.functional.traces import TraceMode


class TripletSTDP(Rule):
    r"""Triplet-based spike-timing-dependent plasticity.

    .. math::
        \Delta w = \sum_t s_\text{post}(t)\, r_1(t)
                   \left[\eta_\text{post} + \eta_\text{post}^{(3)}\, o_2(t^-)\right]
                 + \sum_t s_\text{pre}(t)\, o_1(t)
                   \left[\eta_\text{pre} + \eta_\text{pre}^{(3)}\, r_2(t^-)\right]

    with fast and slow traces :math:`r_1, r_2` of the presynaptic and :math:`o_1, o_2` of the
    postsynaptic spikes. The slow ones are taken just before the step, so that a spike does not
    count in its own triplet. In the paper, the rates are :math:`A_2^+, A_3^+, -A_2^-, -A_3^-`, and
    the time constants :math:`\tau_-, \tau_y, \tau_+, \tau_x`, in the order of the arguments.

    Args:
        lr_post_pair: rate on a postsynaptic spike, times the fast presynaptic trace.
        lr_post_triplet: rate of the same, times the slow postsynaptic trace.
        lr_pre_pair: rate on a presynaptic spike, times the fast postsynaptic trace.
        lr_pre_triplet: rate of the same, times the slow presynaptic trace.
        tc_post_fast, tc_post_slow: time constants of the two postsynaptic traces, in ms.
        tc_pre_fast, tc_pre_slow: time constants of the two presynaptic traces, in ms.
        trace_mode: ``"cumulative"``, every spike counts, or ``"nearest"``, the nearest.

    Example:
        >>> import torch
        >>> from lightning_accum import TripletSTDP, change_of
        >>> rule = TripletSTDP(0.0, 1.0, 0.0, 0.0, tc_post_slow=100.0, tc_pre_fast=20.0)
        >>> spikes = torch.ones(2, 1, 1)  # of both neurons, in two steps
        >>> change_of(rule, spikes, spikes, torch.ones(1, 1))  # exp(-1/100) * (1 + exp(-1/20))
        tensor([[[1.9318]]])

    Source:
        Pfister & Gerstner 2006, "Triplets of spikes in a model of spike timing-dependent
        plasticity", doi:10.1523/JNEUROSCI.1425-06.2006, eqs. 1-4; default time constants: table 4,
        visual cortex, all-to-all, ``tc_post_slow`` of the minimal model, others of the full one.
    """

    lr_post_pair: float
    lr_post_triplet: float
    lr_pre_pair: float
    lr_pre_triplet: float
    tc_post_fast: float = 33.7
    tc_post_slow: float = 114.0
    tc_pre_fast: float = 16.8
    tc_pre_slow: float = 101.0
    trace_mode: TraceMode = field(default="cumulative", kw_only=True)

    def terms(self, window: Window) -> tuple[Term, ...]:
        """Returns a pair and a triplet term for the spikes of each side."""
        pre, post, mode = window.pre, window.post, self.trace_mode
        r1, o1 = pre.trace(self.tc_pre_fast, mode), post.trace(self.tc_post_fast, mode)
        r2 = pre.trace(self.tc_pre_slow, mode).before()
        o2 = post.trace(self.tc_post_slow, mode).before()
        return (
            Term(self.lr_post_pair, post, r1),
            Term(self.lr_post_triplet, post * o2, r1),
            Term(self.lr_pre_pair, o1, pre),
            Term(self.lr_pre_triplet, o1, pre * r2),
        )

"""Pair STDP, modulated by a reward that comes at once, or later."""

from dataclasses import field

from lightning_accum.engine import Change, Window
from lightning_accum.engine.neuromodulator import Neuromodulator
from lightning_accum.engine.rule import Rule
from lightning_accum.functional.traces import TraceMode
from lightning_accum.rules.reward_modulation import reward_modulated
from lightning_accum.rules.stdp import pairs


class MSTDP(Rule):
    r"""Pair STDP, modulated by the reward of the same step.

    .. math::
        \Delta w = \sum_t r(t) \left[ \eta_\text{post}\, s_\text{post}(t)\, x_\text{pre}(t)
                 + \eta_\text{pre}\, x_\text{post}(t)\, s_\text{pre}(t) \right]

    with spikes :math:`s`, their traces :math:`x` and a reward :math:`r`. A negative reward swaps
    potentiation and depression. Pass the reward to the call, ``trainer(reward=...)``, or give the
    callback ``input_keys``. It is a number, a tensor ``[B]`` with a reward for each sample, or
    ``[T, B]`` with one for each step and sample.

    Args:
        lr_post, lr_pre, tc_post, tc_pre, trace_mode: as for :class:`STDP`.
        reward: a :class:`Neuromodulator`, if rewards release one, whose level is then :math:`r(t)`;
            rewards themselves are when ``None``.

    Example:
        >>> import torch
        >>> from lightning_accum import MSTDP, change_of
        >>> rule, spikes = MSTDP(lr_post=1.0, lr_pre=0.0), torch.ones(1, 2, 1)  # two samples
        >>> reward = torch.tensor([1.0, -3.0])
        >>> change_of(rule, spikes, spikes, torch.ones(1, 1), reward=reward).flatten()
        tensor([ 1., -3.])

    Source:
        Florian 2007, "Reinforcement learning through modulation of spike-timing-dependent synaptic
        plasticity", doi:10.1162/neco.2007.19.6.1468, eqs. 9-12 (MSTDP).
    """

    lr_post: float
    lr_pre: float
    tc_post: float = 20.0
    tc_pre: float = 20.0
    trace_mode: TraceMode = field(default="cumulative", kw_only=True)
    reward: Neuromodulator | None = field(default=None, kw_only=True)

    def terms(self, window: Window) -> list[Change]:
        """Returns both terms of pair STDP, times the reward."""
        return reward_modulated(window, pairs(self, window))


class MSTDPET(Rule):
    r"""Pair STDP whose changes wait for the reward in an eligibility trace.

    .. math::
        \Delta w = \sum_t r(t)\, e(t)\, \Delta t, \qquad
        e(t) = e^{-\Delta t / \tau_e}\, e(t - \Delta t) + \frac{1}{\tau_e}
               \left[ \eta_\text{post}\, s_\text{post}(t)\, x_\text{pre}(t)
               + \eta_\text{pre}\, x_\text{post}(t)\, s_\text{pre}(t) \right]

    with spikes :math:`s`, their traces :math:`x` and a reward :math:`r`, given as for
    :class:`MSTDP`, whose total change it makes under a constant reward.

    If traces are carried, the eligibility at a window's end passes to the next one as
    ``[B, out, in]``; a rule that is called once per sample saves this memory by ``carry=False``.

    Args:
        lr_post, lr_pre, tc_post, tc_pre, trace_mode, reward: as for :class:`MSTDP`.
        tc_eligibility: time constant :math:`\tau_e` of the eligibility trace, in ms.

    Example:
        >>> import torch
        >>> from lightning_accum import MSTDPET, change_of
        >>> rule = MSTDPET(lr_post=1.0, lr_pre=0.0, tc_eligibility=10.0)
        >>> spikes = torch.tensor([[[1.0]], [[0.0]], [[0.0]]])  # of both neurons
        >>> reward = torch.tensor([[0.0], [0.0], [1.0]])  # two steps later
        >>> change_of(rule, spikes, spikes, torch.ones(1, 1), reward=reward)  # exp(-2 / 10) / 10
        tensor([[[0.0819]]])

    Source:
        Florian 2007, as for :class:`MSTDP`, eqs. 13-14 (MSTDPET).
    """

    lr_post: float
    lr_pre: float
    tc_post: float = 20.0
    tc_pre: float = 20.0
    trace_mode: TraceMode = field(default="cumulative", kw_only=True)
    tc_eligibility: float = 25.0
    reward: Neuromodulator | None = field(default=None, kw_only=True)

    def terms(self, window: Window) -> list[Change]:
        """Returns both terms of pair STDP, times the discounted future reward."""
        return reward_modulated(window, pairs(self, window), tc=self.tc_eligibility)

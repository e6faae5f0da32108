"""Pair STDP, modulated by a reward that comes at once."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import Self

from lightning_accum.engine.terms import Change
from lightning_accum.engine.window import Window
from lightning_accum.rules.reward_modulated import reward_modulated
from lightning_accum.rules.stdp import PairRule


class MSTDP(PairRule):
    r"""Pair STDP, modulated by the reward of the same step.

    .. math::
        \Delta w = \sum_t r(t) \left[ \eta_\text{post}\, s_\text{post}(t)\, x_\text{pre}(t)
                 + \eta_\text{pre}\, x_\text{post}(t)\, s_\text{pre}(t) \right]

    with spikes :math:`s`, their traces :math:`x` and a reward :math:`r`. A negative reward swaps
    potentiation and depression. Pass the reward to the call, ``rule(reward=...)``, or give the
    callback ``input_keys``. It is a number, a tensor ``[B]`` with a reward for each sample, or
    ``[T, B]`` with one for each step and sample.

    Args:
        lr_post, lr_pre, tc_post, tc_pre, trace_mode: as for :class:`STDP`.
        **options: those of :class:`Rule`.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from lightning_accum import MSTDP, Serial
        >>> layer = Serial(nn.Linear(1, 1, bias=False), nn.Identity())
        >>> _ = nn.init.ones_(layer.connection.weight)
        >>> rule = MSTDP(lr_post=1.0, lr_pre=0.0)
        >>> unit = rule.register_cell("enc", layer.cell)
        >>> _ = layer(torch.ones(2, 1))
        >>> rule(reward=torch.tensor([1.0, -3.0]))  # two samples, one spike pair each
        >>> unit.cell.updater.weight.pos, unit.cell.updater.weight.neg
        (tensor([[0.5000]]), tensor([[1.5000]]))

    Source:
        Florian 2007, "Reinforcement learning through modulation of spike-timing-dependent synaptic
        plasticity", doi:10.1162/neco.2007.19.6.1468, eqs. 9-12 (MSTDP).
    """

    def terms(self, window: Window, h: Self) -> Sequence[Change]:
        """Returns both terms of pair STDP, times the reward."""
        return reward_modulated(window, self.pairs(window, h))

"""Reward-modulated spike-timing-dependent plasticity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.functional.traces import TraceMode
from lightning_accum.learn.engine import Term
from lightning_accum.learn.independent import Hyperparameters
from lightning_accum.learn.rule import Rule, Window


class MSTDP(Rule):
    r"""Pair STDP, modulated by the reward of the step in which it happens.

    .. math::
        \Delta w = \sum_t r(t) \left[ \eta_\text{post}\, s_\text{post}(t)\, x_\text{pre}(t)
                 + \eta_\text{pre}\, x_\text{post}(t)\, s_\text{pre}(t) \right]

    with spikes :math:`s`, their traces :math:`x` and a reward :math:`r`. A negative reward swaps
    the parts: what would potentiate depresses. The reward is given to the rule's call, a number, a
    tensor ``[B]``, one for each sample, or ``[T, B]``, one for each step too:
    ``rule(reward=...)``, or by the callback's ``reward_key``.

    Args:
        lr_post: rate on a postsynaptic spike, times the presynaptic trace.
        lr_pre: rate on a presynaptic spike, times the postsynaptic trace.
        tc_post: time constant of the postsynaptic trace, in ms.
        tc_pre: time constant of the presynaptic trace, in ms.
        dt: step, in ms.
        trace_mode: ``"cumulative"``, every pair of spikes counts, or ``"nearest"``, the nearest.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        **options: ``time_dim``, ``params``, ``carry`` and ``path`` of
            :class:`~lightning_accum.learn.rule.Rule`.

    Raises:
        ValueError: if a time constant is not positive or a rate not finite.

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

    def __init__(
        self,
        lr_post: float,
        lr_pre: float,
        tc_post: float = 20.0,
        tc_pre: float = 20.0,
        dt: float = 1.0,
        trace_mode: TraceMode = "cumulative",
        batch_reduction: ReductionFn | str = "mean",
        **options: Any,
    ) -> None:
        super().__init__(
            {
                "lr_post": lr_post,
                "lr_pre": lr_pre,
                "tc_post": tc_post,
                "tc_pre": tc_pre,
                "trace_mode": trace_mode,
            },
            dt=dt,
            batch_reduction=batch_reduction,
            **options,
        )

    def terms(self, window: Window, h: Hyperparameters) -> Sequence[Term]:
        """Both terms of pair STDP, times the reward; each sign of it goes to its own part."""
        pre, post = window.pre, window.post
        x_pre, x_post = pre.trace(h.tc_pre, h.trace_mode), post.trace(h.tc_post, h.trace_mode)
        reward = _reward(window)
        if not isinstance(reward, Tensor):
            return Term(reward * h.lr_post, post, x_pre), Term(reward * h.lr_pre, x_post, pre)
        return [
            term
            for sign, size in ((1.0, reward.clamp(min=0)), (-1.0, reward.neg().clamp(min=0)))
            for term in (
                Term(sign * h.lr_post, post * size, x_pre),
                Term(sign * h.lr_pre, x_post * size, pre),
            )
        ]


def _reward(window: Window) -> float | Tensor:
    """The reward as a number, or in a shape that stands beside ``[T, B, ...]``."""
    reward = window.given.get("reward")
    if isinstance(reward, (int, float)):
        return float(reward)
    activity = window.post.activity
    steps, batch = activity.shape[:2]
    shape = tuple(reward.shape) if isinstance(reward, Tensor) else None
    if not isinstance(reward, Tensor) or shape not in ((), (batch,), (steps, batch)):
        raise ValueError(
            f"Argument `reward` should be a number, or a tensor [B] or [T, B] of shape [{batch}] or"
            f" [{steps}, {batch}]. Found {type(reward).__name__ if shape is None else list(shape)}:"
            " call the rule as `rule(reward=...)`, or give the callback a `reward_key`."
        )
    reward = reward.detach().to(activity.device, window.post.source.dtype)
    return reward.reshape(*reward.shape, *[1] * (activity.ndim - 2))

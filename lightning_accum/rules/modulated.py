"""A third factor: terms that a reward scales, at once or through an eligibility trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from lightning_accum.engine.evaluate import per_sample_parts
from lightning_accum.engine.terms import Addend, Parts, Term, added
from lightning_accum.engine.window import Window
from lightning_accum.functional.traces import decay_factor, reverse_trace


def modulated(
    window: Window, terms: Sequence[Term], reward: object = None, tc: float | None = None
) -> list[Term | Addend]:
    r"""Scales what terms change by a reward, at once or by way of their eligibility trace.

    With :math:`\zeta(t)` what the terms change in a step and :math:`a = e^{-\Delta t / \tau}`,

    .. math::
        \Delta w = \sum_t r(t)\, \zeta(t) \qquad\text{or}\qquad
        \Delta w = \sum_t r(t)\, e(t)\, \Delta t, \quad
        e(t) = a\, e(t - \Delta t) + \zeta(t) / \tau.

    A negative reward swaps the parts. The sums are taken the other way round, :math:`\zeta(t)`
    times the discounted reward to come, so that no trace for each sample and synapse exists; one is
    made only to pass what is eligible to the next window, where traces are carried.

    Args:
        window: the window of the rule.
        terms: products, whose signals hold no reward yet.
        reward: a number, or a tensor ``[B]`` or ``[T, B]``; what the caller gave as ``reward`` when
            ``None``.
        tc: time constant :math:`\tau` of the eligibility trace, in ms; at once when ``None``.

    Returns:
        What a rule returns from its ``terms``.

    Raises:
        ValueError: if the reward is none of these.
    """
    rewards = _reward(window, window.given.get("reward") if reward is None else reward)
    if tc is None and not isinstance(rewards, Tensor):
        return [replace(term, rate=term.rate * rewards) for term in terms]
    if not isinstance(rewards, Tensor):
        rewards = _like(window).new_full((window.total, 1), rewards)
    parts = ((1.0, rewards.clamp(min=0)), (-1.0, rewards.neg().clamp(min=0)))
    found: list[Term | Addend] = []
    if tc is None:
        factors = list(parts)
    else:
        decay = decay_factor(tc, window.dt)
        factors = [(sign, reverse_trace(size, decay) * (window.dt / tc)) for sign, size in parts]
        found += _eligible(window, terms, decay, tc, [size[0] * tc for _, size in factors])
    dims = [1] * (window.post.activity.ndim - 2)
    for sign, size in factors:
        size = size[window.steps].unflatten(1, (-1, *dims))
        found += [replace(t, rate=sign * t.rate, post=t.post * size) for t in terms]
    return found


class _Carried(Addend):
    """What was eligible when the window began, times the discounted reward of each sample."""

    def __init__(self, eligible: Parts, rewards: Sequence[Tensor]) -> None:
        pos, neg = eligible
        known = pos if neg is None else neg
        assert known is not None
        super().__init__(len(known))
        self.eligible = eligible
        self.rewards = [reward.expand(self.size) for reward in rewards]

    def parts(self, samples: slice) -> Parts:
        """The parts, which a negative reward swaps."""
        for_good, for_bad = (reward[samples] for reward in self.rewards)
        pos, neg = (None if part is None else part[samples] for part in self.eligible)
        return added(_weighted(for_good, pos), _weighted(for_bad, neg)), added(
            _weighted(for_good, neg), _weighted(for_bad, pos)
        )


def _eligible(
    window: Window, terms: Sequence[Term], decay: float, tc: float, rewards: Sequence[Tensor]
) -> list[Addend]:
    """Brings the eligibility of every sample and synapse to the window's end, if it is carried."""
    batch = window.post.activity.shape[1]
    keys = [f"eligibility:{window.geometry.name}:{part}" for part in ("pos", "neg")]
    kept: list[Tensor | None] = [window.memory.before.get(key) for key in keys]
    for side, value in enumerate(kept):
        if value is not None:  # of other samples, or of a parameter of another shape
            value = value.to(window.param.device)
            kept[side] = value if value.shape == (batch, *window.param.shape) else None
    first = window.start == 0
    found: list[Addend] = []
    if first and any(value is not None for value in kept):
        found = [_Carried((kept[0], kept[1]), [decay * reward for reward in rewards])]
    after = window.memory.after
    if after is not None:
        ago = torch.arange(window.total - 1, -1, -1, device=window.param.device)[window.steps]
        left = decay ** ago.to(_like(window).dtype) / tc
        left = left.reshape(-1, *[1] * (window.post.activity.ndim - 1))
        scaled = [replace(term, post=term.post * left) for term in terms]
        for key, value, new in zip(
            keys, kept, per_sample_parts(scaled, window.geometry), strict=True
        ):
            if first and value is not None:
                value = value * decay**window.total
            total = added(value, new)
            if total is not None:
                after[key] = total.expand(batch, *window.param.shape)
    return found


def _reward(window: Window, reward: object) -> float | Tensor:
    """The reward as a number, or as a tensor ``[total steps, B or 1]``."""
    if isinstance(reward, (int, float)):
        return float(reward)
    steps, batch = window.total, window.post.activity.shape[1]
    shape = tuple(reward.shape) if isinstance(reward, Tensor) else None
    if not isinstance(reward, Tensor) or shape not in ((), (batch,), (steps, batch)):
        raise ValueError(
            f"Argument `reward` should be a number, or a tensor [B] or [T, B] of shape [{batch}] or"
            f" [{steps}, {batch}]. Found {type(reward).__name__ if shape is None else list(shape)}:"
            " call the rule as `rule(reward=...)`, or give the callback a `reward_key`."
        )
    found: Tensor = reward.detach().to(_like(window))
    return found.expand(steps, -1 if found.ndim else 1)


def _like(window: Window) -> Tensor:
    """Has the device and the dtype of the computation."""
    activity = window.post.activity
    return torch.empty(0, dtype=window.post.source.dtype, device=activity.device)


def _weighted(rewards: Tensor, eligible: Tensor | None) -> Tensor | None:
    return None if eligible is None else torch.tensordot(rewards.to(eligible), eligible, dims=1)

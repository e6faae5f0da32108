"""Scales terms by a reward, the third factor, at once or through an eligibility trace."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightning_accum.engine.activity_window import Window
from lightning_accum.engine.evaluate import per_sample
from lightning_accum.engine.rule_inputs import given_value
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.state_keys import StateKey
from lightning_accum.engine.term_operands import Activity, Product
from lightning_accum.engine.terms import Change, CustomChange, Parts, Term, added
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.functional.traces import decay_factor, reverse_trace


def reward_modulated(
    window: Window,
    terms: Sequence[Term],
    reward: object = None,
    tc: float | None = None,
    modulator: str | None = None,
) -> list[Change]:
    r"""Scales the changes of terms by a reward, at once or through their eligibility trace.

    With :math:`\zeta(t)` the change of the terms in a step and :math:`a = e^{-\Delta t / \tau}`,

    .. math::
        \Delta w = \sum_t r(t)\, \zeta(t) \qquad\text{or}\qquad
        \Delta w = \sum_t r(t)\, e(t)\, \Delta t, \quad
        e(t) = a\, e(t - \Delta t) + \zeta(t) / \tau.

    A negative reward swaps the parts. If traces are carried, the eligibility of each sample and
    synapse passes to the next window.

    Args:
        window: the window of the rule.
        terms: products, not yet scaled by a reward.
        reward: a number, or a tensor ``[B]`` or ``[T, B]``; the ``reward`` of the rule's call when
            ``None``.
        tc: time constant :math:`\tau` of the eligibility trace, in ms; at once when ``None``.
        modulator: the name of a :class:`Neuromodulator` among the rule's hyperparameters, whose
            level is the reward; ``"reward"`` when ``None``, if the rule has it.

    Returns:
        Changes to return from the rule's ``terms``.

    Raises:
        ValueError: if the reward is something else, or given together with a modulator.
        KeyError: if the rule has no such modulator.
    """
    if reward is not None and modulator is not None:
        raise ValueError(
            "Arguments `reward` and `modulator` should not both be given. Found"
            f" `modulator = {modulator!r}` and a reward: multiply it by"
            f" `window.modulator({modulator!r})`, and give the product as `reward`."
        )
    return [Modulated(tuple(terms), tc, reward, modulator)]


@dataclass(frozen=True)
class Modulated(Change):
    """Terms that a reward multiplies, which is known when a window is evaluated."""

    terms: tuple[Term, ...]
    tc: float | None
    reward: object = None
    modulator: str | None = None

    rate = 1.0

    @property
    def is_named(self) -> bool:
        """Whether terms and reward are names."""
        return self.reward is None and all(term.is_named for term in self.terms)

    @property
    def signals(self) -> set[str]:
        """The names of the signals of all terms."""
        return {name for term in self.terms for name in term.signals}

    def expand(self, window: Window) -> list[Change]:
        """Returns the terms times the reward of a window."""
        tc, rewards = self.tc, reward_of(window, self.reward, self.modulator)
        rewards = rewards.detach() if isinstance(rewards, Tensor) else rewards
        if tc is None and not isinstance(rewards, Tensor) and rewards:  # by 0, no trace is used
            return [replace(term, rate=term.rate * rewards) for term in self.terms]
        if not isinstance(rewards, Tensor):
            rewards = _like(window).new_full((window.total, 1), rewards)
        parts = ((1.0, rewards.clamp(min=0)), (-1.0, rewards.neg().clamp(min=0)))
        found: list[Change] = []
        if tc is None:
            factors = list(parts)
        else:
            decay = decay_factor(tc, window.dt)
            factors = [(s, reverse_trace(size, decay) * (window.dt / tc)) for s, size in parts]
            first = tuple(size[0] * tc * decay for _, size in factors)
            found.append(_Eligibility(window, self.terms, tc, (first[0], first[1])))
        dims = [1] * (window.post.activity.ndim - 2)
        for sign, size in factors:
            size = size[window.steps].unflatten(1, (-1, *dims))
            found += [_scaled(each, window, size, sign) for each in self.terms]
        return found


def _scaled(term: Term, window: Window, factor: Tensor, sign: float = 1.0) -> Term:
    """Returns a term whose postsynaptic side is multiplied by a factor of steps and samples."""
    post = term.post if isinstance(term.post, Signal) else Signal(Activity(term.post))
    if post.is_named:
        post = window.with_data(post)
    return replace(term, rate=sign * term.rate, post=post * factor)


def eligibility_key(param: str, part: str, tc: float, place: int = 0) -> StateKey:
    """Returns the name of one part, ``"pos"`` or ``"neg"``, of a parameter's eligibility."""
    kind = f"{param} eligibility" + (f" {place + 1}" if place else "")
    return StateKey("sample", f"{kind} {part}", tc)


class _Eligibility(CustomChange):
    """Rewards the eligibility of earlier windows, and passes it to the next window."""

    # The eligibility at the window's end is the change of each sample by the terms, in which each
    # step has decayed since, added to the decayed eligibility of earlier windows.

    def __init__(
        self, window: Window, terms: Sequence[Term], tc: float, rewards: tuple[Tensor, Tensor]
    ) -> None:
        super().__init__(window.post.activity.shape[1])
        self.window, self.terms, self.tc, self.rewards = window, terms, tc, rewards
        place = next(window.places)
        self.keys = [eligibility_key(window.name, part, tc, place) for part in ("pos", "neg")]
        self.before = [window.left_for_samples(key) for key in self.keys]
        if window.start > 0 or all(part is None for part in self.before):
            self.rate = 0.0  # nothing to reward here; `carry` is called all the same

    def parts(self, samples: slice, vjp: WeightVJP) -> Parts:
        """Returns both parts, which a negative reward swaps."""
        for_good, for_bad = (reward.expand(self.size)[samples] for reward in self.rewards)
        pos, neg = (None if part is None else part[samples] for part in self.before)
        up = added(_weighted(for_good, pos), _weighted(for_bad, neg))
        return up, added(_weighted(for_good, neg), _weighted(for_bad, pos))

    def carry(self, vjp: WeightVJP) -> dict[StateKey, Tensor]:
        """Returns the eligibility of every sample and synapse at the window's end."""
        window = self.window
        activity, dtype = window.post.activity, window.post.dtype
        decay = decay_factor(self.tc, window.dt)
        ago = torch.arange(window.total - 1, -1, -1, device=activity.device)[window.steps]
        left = (decay ** ago.to(dtype) / self.tc).reshape(-1, *[1] * (activity.ndim - 1))
        scaled = [Product(_scaled(term, window, left), window) for term in self.terms]
        after = {}
        for key, before, new in zip(self.keys, self.before, per_sample(scaled, vjp), strict=True):
            # The first piece of a window has the eligibility decay to the end of the whole window.
            if before is not None and window.start == 0:
                before = before * decay**window.total
            total = added(before, new)
            if total is not None:
                after[key] = total.expand(self.size, *window.param.shape)
        return after


def reward_of(window: Window, reward: object, modulator: str | None) -> float | Tensor:
    """Returns the reward as a number, or as a tensor ``[total steps, B or 1]``."""
    if modulator is not None or (reward is None and "reward" in window.levels):
        reward = window.modulator(modulator or "reward")
    elif reward is None:
        reward = window.inputs.get("reward")
    steps, batch = window.total, window.post.activity.shape[1]
    direct = getattr(window.inputs, "direct", False)
    found = given_value("reward", reward, steps, batch, direct)
    if not isinstance(found, Tensor):
        return found
    found = found.to(_like(window))
    return found.expand(steps, -1 if found.ndim else 1)


def _like(window: Window) -> Tensor:
    """Returns an empty tensor on the device and of the dtype of the computation."""
    activity = window.post.activity
    return torch.empty(0, dtype=window.post.dtype, device=activity.device)


def _weighted(rewards: Tensor, eligible: Tensor | None) -> Tensor | None:
    return None if eligible is None else torch.tensordot(rewards.to(eligible), eligible, dims=1)

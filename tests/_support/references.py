"""Every rule as a loop over steps and samples, and the connection's derivative by autograd."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch
from rule_trainers import trainer_of
from torch import nn

import lightning_accum as la
from lightning_accum.functional import ExponentialKernel

PAIR = {"lr_post": 0.3, "lr_pre": -0.2, "tc_post": 8.0, "tc_pre": 12.0}
TRIPLET = {
    "lr_post_pair": 0.3, "lr_post_triplet": 0.4, "lr_pre_pair": -0.2, "lr_pre_triplet": -0.1,
    "tc_post_fast": 8.0, "tc_post_slow": 20.0, "tc_pre_fast": 12.0, "tc_pre_slow": 30.0,
}  # fmt: skip
TAU = 5.0


def left(tc):
    return math.exp(-1 / tc)


def follow(state, key, seen, tc, mode):
    before = left(tc) * state.get(key, torch.zeros_like(seen))
    state[key] = torch.where(seen != 0, seen, before) if mode == "nearest" else before + seen
    return state[key]


def age(state, key, seen):
    before = state.get(key, torch.full_like(seen, math.inf))
    state[key] = torch.where(seen != 0, 0.0, before + 1.0)
    return state[key]


class Graded(la.STDP):
    """Traces of values."""

    spikes = False


class Coincidences(la.Hebb):
    """Products of spikes."""

    spikes = True


class Mixed(la.Rule):
    """Terms of every kind."""

    def terms(self, window):
        trace = window.pre.trace(5.0)
        return (
            la.Term(0.5, window.post, window.pre),
            la.Term(-0.25, window.post.trace(9.0), trace),
            la.Term(0.125, window.post.values() * 2, trace),
            la.Term(2, window.post.activity, window.pre.activity),
            la.Term(-1.5, window.post.trace(3.0, "nearest"), window.pre.values()),
            la.Term(0.75, window.post.activity, window.pre.trace(4.0, "nearest")),
            la.Term(0.0, window.post, trace),
        )


# Products: rate, post, pre, and whether times the parameter, or a function of the parameter.
def pair(state, x, y, one, known, lr_pre=-0.2):
    yield 0.3, y, follow(state, "x", x, 12.0, known["mode"]), False
    yield lr_pre, follow(state, "y", y, 8.0, known["mode"]), x, False


def mixed(state, x, y, one, known):
    trace = follow(state, "x", x, 5.0, "cumulative")
    yield 2.5, y, x, False
    yield -0.25, follow(state, "y", y, 9.0, "cumulative"), trace, False
    yield 0.25, y, trace, False
    yield -1.5, follow(state, "y, nearest", y, 3.0, "nearest"), x, False
    yield 0.75, y, follow(state, "x, nearest", x, 4.0, "nearest"), False


def triplet(state, x, y, one, known):
    mode = known["mode"]
    gate_x = left(30.0) * state.get("x2", torch.zeros_like(x))
    gate_y = left(20.0) * state.get("y2", torch.zeros_like(y))
    follow(state, "x2", x, 30.0, mode), follow(state, "y2", y, 20.0, mode)
    yield 0.3, y * (1 + 0.4 / 0.3 * gate_y), follow(state, "x", x, 12.0, mode), False
    yield -0.2, follow(state, "y", y, 8.0, mode), x * (1 + 0.5 * gate_x), False


def reward(state, x, y, one, known):
    for rate, post, pre, _ in pair(state, x, y, one, known):
        yield rate * known["reward"], post, pre, False


def weight_dependent(state, x, y, one, known):
    up, down = pair(state, x, y, one, known)
    yield *up[:3], lambda w: (1 - ((w + 0.5) / 1.5).clamp(0, 1)) ** 0.4
    yield *down[:3], lambda w: ((w + 0.5) / 1.5).clamp(0, 1) ** 2.0


def inhibitory(state, x, y, one, known):
    yield 0.3, y, follow(state, "x", x, 12.0, "cumulative"), False
    yield 0.3, follow(state, "y", y, 12.0, "cumulative"), x, False
    yield -0.3 * 2 * 0.03 * 12.0, torch.ones_like(y), x, False


def window_of(ms):
    return torch.where(ms >= 0, 0.3 * torch.exp(-ms / 12.0), -0.2 * torch.exp(ms / 8.0))


def kernel(state, x, y, one, known):
    pre, post = age(state, "x", x), age(state, "y", y)
    yield 1.0, y, torch.where(pre.isfinite(), window_of(pre), 0.0), False
    late = post.isfinite() & (post > 0)
    yield -1.0, torch.where(late, -window_of(-post), 0.0), x, False


def hebb(state, x, y, one, known):
    yield 0.3, y, x, False


def anti(state, x, y, one, known):
    yield -0.3, y, x, False


def covariance(state, x, y, one, known):
    yield 0.3, y - known["average y"], x - known["average x"], False


def bcm(state, x, y, one, known):
    phi = y * (y - known["average y²"])
    yield 0.3, phi.clamp(min=0), x, False
    yield -0.3, (-phi).clamp(min=0), x, False


def oja(state, x, y, one, known):
    yield 0.3, y, x, False
    yield -0.3, y * y, one, True


def wta(state, x, y, one, known):
    won = (y == y.amax(known["unit dim"], keepdim=True)).to(y)
    yield 0.3, won, x, False
    yield -0.3, won, one, True


def soft(state, x, y, one, known):
    e = torch.exp(y / 0.7)
    share = e / e.sum(known["unit dim"], keepdim=True)
    yield 0.3, share, x, False
    yield -0.3, share * y, one, True


def homeostasis(state, x, y, one, known):
    yield 0.3 * 0.2, torch.ones_like(y), one, False
    yield -0.3, y, one, False


class Case(NamedTuple):
    make: Callable[..., la.RuleTrainer]
    step: Callable[..., Iterator]  # of products
    spikes: bool = True
    modes: tuple[str, ...] = ("cumulative",)
    rewarded: bool = False
    eligible: bool = False


BOTH = ("cumulative", "nearest")
RULES = {
    "STDP": Case(partial(trainer_of, la.STDP, **PAIR), pair, modes=BOTH),
    "WeightDependentSTDP": Case(
        partial(
            trainer_of, la.WeightDependentSTDP,
            **PAIR, power_pos=0.4, power_neg=2.0, w_min=-0.5, w_max=1.0,
        ),
        weight_dependent, modes=BOTH,
    ),
    "InhibitorySTDP": Case(partial(trainer_of, la.InhibitorySTDP, 0.3, 30.0, 12.0), inhibitory),
    "TripletSTDP": Case(partial(trainer_of, la.TripletSTDP, **TRIPLET), triplet, modes=BOTH),
    "MSTDP": Case(partial(trainer_of, la.MSTDP, **PAIR), reward, modes=BOTH, rewarded=True),
    "MSTDPET": Case(
        partial(trainer_of, la.MSTDPET, **PAIR, tc_eligibility=TAU),
        pair, modes=BOTH, rewarded=True, eligible=True,
    ),
    "KernelSTDP": Case(
        partial(trainer_of, la.KernelSTDP, ExponentialKernel(*PAIR.values())), kernel
    ),
    "Homeostasis": Case(partial(trainer_of, la.Homeostasis, 0.3, 200.0), homeostasis),
    "Hebb": Case(partial(trainer_of, la.Hebb, 0.3), hebb, spikes=False),
    "AntiHebb": Case(partial(trainer_of, la.AntiHebb, 0.3), anti, spikes=False),
    "Covariance": Case(partial(trainer_of, la.Covariance, 0.3, 7.0), covariance, spikes=False),
    "BCM": Case(partial(trainer_of, la.BCM, 0.3, 7.0), bcm, spikes=False),
    "Oja": Case(partial(trainer_of, la.Oja, 0.3), oja, spikes=False),
    "WTAHebb": Case(partial(trainer_of, la.WTAHebb, 0.3), wta, spikes=False),
    "SoftHebb": Case(partial(trainer_of, la.SoftHebb, 0.3, 0.7), soft, spikes=False),
}  # fmt: skip
VARIANTS = {
    "STDP, one sign": Case(
        partial(trainer_of, la.STDP, **{**PAIR, "lr_pre": 0.2}),
        partial(pair, lr_pre=0.2),
        modes=BOTH,
    ),
    "STDP, graded": Case(partial(trainer_of, Graded, **PAIR), pair, spikes=False, modes=BOTH),
    "mixed": Case(partial(trainer_of, Mixed), mixed),
    "coincidences": Case(partial(trainer_of, Coincidences, 0.3), hebb),
}


class _Average:
    """The running mean over samples and places, as a quotient of two sums."""

    def __init__(self, dim, power=1):
        self.dim, self.power, self.total, self.weight = dim, power, 0.0, 0.0

    def __call__(self, values):
        dims = [d for d in range(values.ndim) if d != self.dim % values.ndim]
        self.total = left(7.0) * self.total + (values**self.power).mean(dims, keepdim=True)
        self.weight = left(7.0) * self.weight + 1.0
        return (self.total / self.weight)[0]


def reference(case, module, name, pre, post, mode, rewards, length):
    """Both parts, ``[T, B, ...]``, of every step and sample, from rest every ``length`` steps."""
    param = getattr(module, name).detach().clone().requires_grad_()
    fixed, is_bias = param.detach(), name == "bias"
    unit_dim = 1 if isinstance(module, nn.modules.conv._ConvNd) else -1

    convolves = isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)) and not is_bias

    def change(product, x, one):
        rate, y, given, by = product
        factor = by(fixed) if callable(by) else fixed if by else 1.0
        if convolves and given is one:  # whatever the padding, it is one before every tap
            each = y.flatten(1).sum(1).view(-1, *[1] * (fixed.ndim - 1)).expand_as(fixed)
            return abs(rate) * each * factor
        if is_bias:  # the weight of an input that is one: whatever its trace is, times the output
            y, given = y * given, x
        out = torch.func.functional_call(module, {name: param}, (given.unsqueeze(0),))
        grad = torch.autograd.grad(out, param, y.unsqueeze(0))[0]
        return abs(rate) * grad * factor

    steps, batch = pre.shape[:2]
    parts = torch.zeros(2, steps, batch, *param.shape, dtype=torch.float64)
    states = [{} for _ in range(batch)]
    eligible = torch.zeros(2, batch, *param.shape, dtype=torch.float64)
    seen = torch.ones(steps, batch, *[1] * (post.ndim - 2)).double() if is_bias else pre
    averages = {
        "average x": (_Average(unit_dim), seen),
        "average y": (_Average(unit_dim), post),
        "average y²": (_Average(unit_dim, 2), post),
    }
    for t in range(steps):
        if t % length == 0:
            states, eligible = [{} for _ in range(batch)], torch.zeros_like(eligible)
        known = {key: average(values[t]) for key, (average, values) in averages.items()}
        # of one sample the batch dimension is missing
        known |= {"mode": mode, "unit dim": 0 if unit_dim == 1 else -1}
        for b in range(batch):
            known["reward"] = float(rewards[t, b])
            x, now = pre[t, b], torch.zeros(2, *param.shape, dtype=torch.float64)
            mine, one = (seen[t, b], seen[t, b]) if is_bias else (x, torch.ones_like(x))
            for product in case.step(states[b], mine, post[t, b], one, known):
                now[int(product[0] < 0)] += change(product, x, one)
            if case.eligible:
                eligible[:, b] = left(TAU) * eligible[:, b] + now / TAU
                r = known["reward"]
                now = abs(r) * (eligible[:, b] if r > 0 else eligible[:, b].flip(0))
            parts[:, t, b] = now
    return parts[0], parts[1]


def stllr(gradient, psi, pre, alphas, lambdas):
    """Eqs. 10 and 11 of Apolinario & Roy 2025, with every sum over earlier steps written out."""
    total = gradient.new_zeros(*gradient.shape[1:], pre.shape[-1])
    for t in range(len(pre)):
        causal = sum(lambdas[0] ** (t - s) * pre[s] for s in range(t + 1))
        other = sum((lambdas[1] ** (t - s) * psi[s] for s in range(t)), torch.zeros_like(psi[0]))
        eligibility = alphas[0] * psi[t][..., None] * causal[:, None]
        eligibility = eligibility + alphas[1] * other[..., None] * pre[t][:, None]
        total += gradient[t][..., None] * eligibility
    return total

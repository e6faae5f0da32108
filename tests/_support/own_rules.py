"""Each rule of the package that is a sum of products, as somebody else would write it."""

from __future__ import annotations

import torch

from lightning_accum import Neuromodulator, Rule, Term
from lightning_accum.engine import Room
from lightning_accum.functional import decay_factor
from lightning_accum.rules import reward_modulated


class Hebb(Rule):
    spikes = False
    lr: float

    def terms(self, window):
        return Term(self.lr, window.post, window.pre)


class AntiHebb(Hebb):
    def terms(self, window):
        return Term(-self.lr, window.post, window.pre)


class STDP(Rule):
    lr_post: float
    lr_pre: float
    tc_post: float = 20.0
    tc_pre: float = 20.0
    trace_mode: str = "cumulative"

    def terms(self, window):
        return [
            Term(self.lr_post, window.post, window.pre.trace(self.tc_pre, self.trace_mode)),
            Term(self.lr_pre, window.post.trace(self.tc_post, self.trace_mode), window.pre),
        ]


class MSTDP(STDP):
    reward: Neuromodulator | None = None

    def terms(self, window):
        return reward_modulated(window, super().terms(window))


class MSTDPET(MSTDP):
    tc_eligibility: float = 25.0

    def terms(self, window):
        return reward_modulated(window, STDP.terms(self, window), tc=self.tc_eligibility)


class WeightDependentSTDP(STDP):
    power_pos: float = 1.0
    power_neg: float = 1.0
    w_min: float = 0.0
    w_max: float = 1.0

    def terms(self, window):
        width = self.w_max - self.w_min
        up = Room(self.w_max, width, self.power_pos, 1.0)
        down = Room(self.w_min, width, self.power_neg, 1.0)
        return [
            Term(each.rate, each.post, each.pre, room=up if each.rate > 0 else down)
            for each in super().terms(window)
        ]


class TripletSTDP(Rule):
    lr_post_pair: float
    lr_post_triplet: float
    lr_pre_pair: float
    lr_pre_triplet: float
    tc_post_fast: float = 33.7
    tc_post_slow: float = 114.0
    tc_pre_fast: float = 16.8
    tc_pre_slow: float = 101.0

    def terms(self, window):
        pre, post = window.pre, window.post
        r1, o1 = pre.trace(self.tc_pre_fast), post.trace(self.tc_post_fast)
        r2, o2 = pre.trace(self.tc_pre_slow).before(), post.trace(self.tc_post_slow).before()
        return [
            Term(self.lr_post_pair, post, r1), Term(self.lr_post_triplet, post * o2, r1),
            Term(self.lr_pre_pair, o1, pre), Term(self.lr_pre_triplet, o1, pre * r2),
        ]  # fmt: skip


class InhibitorySTDP(Rule):
    lr: float
    target_rate: float = 5.0
    tc: float = 20.0

    def terms(self, window):
        alpha = 2.0 * self.target_rate / 1000.0 * self.tc
        return [
            Term(self.lr, window.post, window.pre.trace(self.tc)),
            Term(self.lr, window.post.trace(self.tc), window.pre),
            Term(-self.lr * alpha, window.post.ones(), window.pre),
        ]


class Homeostasis(Rule):
    lr: float
    target_rate: float

    def terms(self, window):
        rise = self.lr * self.target_rate * window.dt / 1000.0
        up = Term(rise, window.post.ones(), window.one)
        return [up, Term(-self.lr, window.post, window.one)]


class Covariance(Hebb):
    tc_average: float = 1000.0

    def terms(self, window):
        sides = window.post, window.pre
        post, pre = (side.values() - side.average(self.tc_average) for side in sides)
        return Term(self.lr, post, pre)


class BCM(Hebb):
    tc_threshold: float = 100.0

    def terms(self, window):
        post = window.post.values()
        phi = post * (post - window.post.average(self.tc_threshold, power=2))
        up, down = phi.clamp(min=0), (-phi).clamp(min=0)
        return [Term(self.lr, up, window.pre), Term(-self.lr, down, window.pre)]


class Oja(Hebb):
    def terms(self, window):
        decay = window.decay(-self.lr, window.post.values() ** 2)
        return [Term(self.lr, window.post, window.pre), decay]


class Sanger(Hebb):
    def terms(self, window):
        post, param = window.post.values(), window.param
        earlier = Term(-self.lr, post, post, lambda x: x.tril() @ param.to(x.dtype))
        return [Term(self.lr, post, window.pre), earlier]


class WTAHebb(Hebb):
    def terms(self, window):
        post, dim = window.post.values(), window.post.unit_dim
        won = torch.zeros_like(post).scatter_(dim, post.argmax(dim, keepdim=True), 1.0)
        return [Term(self.lr, won, window.pre), window.decay(-self.lr, won)]


class SoftHebb(Hebb):
    temperature: float = 1.0

    def terms(self, window):
        drive = window.post.values()
        share = (drive / self.temperature).softmax(window.post.unit_dim)
        return [Term(self.lr, share, window.pre), window.decay(-self.lr, share * drive)]


class Clopath(Rule):
    lr_post: float
    lr_pre: float
    theta_neg: float
    theta_pos: float
    tc_potential_pre: float = 10.0
    tc_potential_post: float = 7.0
    tc_pre: float = 15.0

    def states(self):
        return {"membrane": "membrane"}

    def terms(self, window):
        u = window.state("membrane")

        def above(tc):
            low_pass = u.trace(tc).values() * (1.0 - decay_factor(tc, window.dt))
            return (low_pass - self.theta_neg).clamp(min=0.0)

        up = (u.values() - self.theta_pos).clamp(min=0.0) * above(self.tc_potential_post)
        return [
            Term(self.lr_pre, above(self.tc_potential_pre), window.pre),
            Term(self.lr_post * window.dt / self.tc_pre, up, window.pre.trace(self.tc_pre)),
        ]

"""What waits for its reward: MSTDPET within a window and across windows."""

from __future__ import annotations

import math

import torch
from rasters import layer, raster, show
from torch import nn

from lightning_accum import MSTDP, MSTDPET, Hebb, Rule, Serial, Term, get_updater
from lightning_accum.engine.state import StateKey
from lightning_accum.rules import reward_modulated

PAIR = {"lr_post": 0.3, "lr_pre": -0.2, "tc_post": 8.0, "tc_pre": 12.0}


def parts(rule, pre, post):
    model = layer(pre.shape[-1], post.shape[-1])
    rule.register_cell("cell", model.cell)
    show(model, pre, post)
    rule(reward=0.5)
    weight = get_updater(model.connection).weight
    return [weight.pos, weight.neg]


def test_in_the_end_a_constant_reward_changes_what_it_does_without_a_trace():
    pre, post = raster(400, 2, 3, density=0.3), raster(400, 2, 4, density=0.3, seed=1)
    pre[20:], post[20:] = 0, 0  # what was eligible has decayed
    dt = 0.1
    with_trace = MSTDPET(**PAIR, tc_eligibility=2.0, dt=dt)
    found, at_once = (parts(rule, pre, post) for rule in (with_trace, MSTDP(**PAIR, dt=dt)))
    share = (dt / 2.0) / (1 - math.exp(-dt / 2.0))  # a sum in steps of 0.1 ms, for an integral
    torch.testing.assert_close(found, [share * part for part in at_once])


def test_clear_forgets_it_and_a_rule_that_does_not_carry_never_knew():
    pre, post = raster(4, 2, 3, density=1.0), raster(4, 2, 2, density=1.0)
    model, rule = layer(3, 2), MSTDPET(**PAIR)
    unit = rule.register_cell("cell", model.cell)
    show(model, pre, post)
    rule(reward=1.0)
    kept = unit.state.carried[StateKey("sample", "weight eligibility pos", 25.0)]
    assert kept.shape == (2, 2, 3)
    rule.clear()
    assert not unit.state.carried
    show(model, pre, post)
    rule(reward=1.0, carry=False)
    assert not unit.state.carried


def test_other_samples_find_nothing():
    model, rule = layer(3, 2), MSTDPET(**PAIR)
    rule.register_cell("cell", model.cell)
    show(model, raster(4, 2, 3), raster(4, 2, 2))
    rule(reward=0.0)
    get_updater(model.connection).clear()
    show(model, torch.zeros(1, 5, 3).double(), torch.zeros(1, 5, 2).double())
    rule(reward=1.0)
    assert not get_updater(model.connection).weight.pos.any()


class RewardedHebb(Rule):
    """As a user would write it: any terms, a reward, and a trace."""

    spikes = False

    lr: float
    tc: float | None = None

    def terms(self, window, h):
        return reward_modulated(window, [Term(h.lr, window.post, window.pre)], tc=h.tc)


def test_any_terms_can_be_modulated():
    def change(rule, **given):
        model = Serial(nn.Linear(2, 2, bias=False, dtype=torch.float64), nn.Identity())
        nn.init.eye_(model.connection.weight)
        rule.register_cell("cell", model.cell)
        model(torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64))
        rule(**given)
        weight = get_updater(model.connection).weight
        return weight.update(model.connection.weight)

    plain = change(Hebb(0.5, batch_reduction="sum"))
    assert torch.equal(change(RewardedHebb(1.0), reward=1.0), plain)
    only_first = change(RewardedHebb(2.0), reward=torch.tensor([1.0, 0.0]))
    assert torch.equal(only_first, torch.tensor([[1.0, 2.0], [2.0, 4.0]]).double())
    assert torch.equal(change(RewardedHebb(1.0, tc=2.0), reward=-1.0), -plain / 2)

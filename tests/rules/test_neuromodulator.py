"""Rewards and neuromodulators multiply terms, at once or later, however windows are cut."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from clamped_layers import layer, raster, show

import lightning_accum as la
from lightning_accum import MSTDP, MSTDPET, Neuromodulator, RuleTrainer, Term, get_updater
from lightning_accum.rules import reward_modulated

PAIR = {"lr_post": 0.3, "lr_pre": -0.2, "tc_post": 8.0, "tc_pre": 12.0}
DOPAMINE, SEROTONIN = Neuromodulator(30.0, -0.2, 0.5), Neuromodulator(7.0, 0.3, -1.0)
TAU, DT, STEPS, BATCH = 20.0, 0.5, 24, 2


class Both(la.Rule):
    """One term with either modulator, eligible for equally long, and one with their product."""

    dopamine: Neuromodulator = DOPAMINE
    serotonin: Neuromodulator = SEROTONIN

    def terms(self, window):
        up = [Term(0.3, window.post, window.pre.trace(12.0))]
        down = [Term(-0.2, window.post.trace(8.0), window.pre)]
        product = window.modulator("dopamine") * window.modulator("serotonin")
        return [
            *reward_modulated(window, up, modulator="dopamine", tc=TAU),
            *reward_modulated(window, down, tc=TAU, modulator="serotonin"),
            *reward_modulated(window, [*up, *down], product),
        ]


def naive(pre, post, released, kind, rests):
    """Both parts of the mean change, synapse by synapse, from rest every ``rests`` steps."""
    left = {tc: math.exp(-DT / tc) for tc in (8.0, 12.0, TAU, DOPAMINE.tc, SEROTONIN.tc)}
    parts = torch.zeros(2, BATCH, post.shape[2], pre.shape[2], dtype=torch.float64)
    for b in range(BATCH):
        for o in range(post.shape[2]):
            for i in range(pre.shape[2]):
                for t in range(STEPS):
                    if t % rests == 0:
                        x = y = up = down = first = second = 0.0
                    s, r = float(pre[t, b, i]), float(post[t, b, o])
                    x, y = left[12.0] * x + s, left[8.0] * y + r
                    now_up, now_down = 0.3 * r * x, 0.2 * y * s
                    up = left[TAU] * up + now_up / TAU
                    down = left[TAU] * down + now_down / TAU
                    first = left[DOPAMINE.tc] * first + float(released["dopamine"][t, b])
                    second = left[SEROTONIN.tc] * second + float(released["serotonin"][t, b])
                    d, z = -0.2 + 0.5 * first, 0.3 - second
                    products = {
                        "Both": [(d * DT, up, 0.0), (z * DT, 0.0, down), (d * z, now_up, now_down)],
                        "MSTDP": [(d, now_up, now_down)],
                        "MSTDPET": [(d * DT, up, down)],
                    }[kind]
                    for level, good, bad in products:
                        good, bad = (good, bad) if level > 0 else (bad, good)
                        parts[0, b, o, i] += abs(level) * good
                        parts[1, b, o, i] += abs(level) * bad
    return parts.mean(1)


RULES = {
    "Both": Both(),
    "MSTDP": MSTDP(**PAIR, reward=DOPAMINE),
    "MSTDPET": MSTDPET(**PAIR, tc_eligibility=TAU, reward=DOPAMINE),
}


def activity(seed=0):
    pre, post = (raster(STEPS, BATCH, n, density=0.3, seed=seed + n) for n in (3, 2))
    generator = torch.Generator().manual_seed(seed)
    names = ("dopamine", "serotonin")
    return pre, post, {n: torch.randn(STEPS, BATCH, generator=generator).double() for n in names}


def given(kind, released):
    return released if kind == "Both" else {"reward": released["dopamine"]}


@pytest.mark.parametrize("backend", ["auto", "plain"])
@pytest.mark.parametrize(
    ("cuts", "forgets"),
    [([], None), ([12], None), ([5, 6, 17], None), (range(1, STEPS), None),
     ([12], "carries nothing"), ([12], "is cleared")],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("kind", RULES)
def test_equals_a_loop_over_steps_and_synapses(kind, cuts, forgets, backend):
    pre, post, released = activity()
    model, carries = layer(3, 2), forgets != "carries nothing"
    rule = RuleTrainer(RULES[kind], dt=DT, backend=backend, carry=carries)
    unit = rule.register_cell("cell", model.cell)
    for lo, hi in zip([0, *cuts], [*cuts, STEPS], strict=True):
        show(model, pre[lo:hi], post[lo:hi])
        rule(**given(kind, {name: each[lo:hi] for name, each in released.items()}))
        assert any("released" in key.kind for key in unit.state.carried) == carries
        if forgets == "is cleared":
            rule.clear()
            assert not unit.state.carried
    weight, rests = get_updater(model.connection).weight, 12 if forgets else STEPS
    for found, part in zip((weight.pos, weight.neg), naive(*activity(), kind, rests), strict=True):
        torch.testing.assert_close(found, part, rtol=1e-12, atol=1e-12)


def change(rule, *calls):
    """The change by a window before each call."""
    pre, post, _ = activity()
    model = layer(3, 2)
    rule.register_cell("cell", model.cell)
    for call in calls:
        show(model, pre, post)
        rule(**call)
    return get_updater(model.connection).weight.update(model.connection.weight)


def test_a_call_releases_in_the_last_step_of_its_window():
    per_sample, steps = torch.tensor([1.0, -2.0]), torch.zeros(STEPS, BATCH)
    steps[-1] = per_sample
    rewarded = RuleTrainer(MSTDPET(**PAIR, reward=Neuromodulator(30.0)))
    calls = [[{"reward": each}, {}] for each in (per_sample, steps, per_sample.long())]
    once, stepwise, whole = (change(copy.deepcopy(rewarded), *each) for each in calls)
    assert once.any()
    assert torch.equal(once, stepwise)
    assert torch.equal(once, whole)
    number, tensor = (change(copy.deepcopy(rewarded), {"reward": r}) for r in (2, steps * 0 + 2.0))
    assert not torch.allclose(number, tensor)
    assert torch.equal(number, change(rewarded, {"reward": torch.full((BATCH,), 2.0)}))
    each = 0.1, torch.full((BATCH,), 0.1, dtype=torch.float64)  # is as exact as a number
    for kind in ("MSTDP", "MSTDPET"):
        assert torch.equal(*(change(RuleTrainer(RULES[kind]), {"reward": r}) for r in each))


def test_a_baseline_multiplies_where_nothing_is_released():
    resting = change(RuleTrainer(MSTDP(**PAIR, reward=Neuromodulator(30.0, baseline=0.5))), {}, {})
    torch.testing.assert_close(resting, change(RuleTrainer(MSTDP(**PAIR)), *[{"reward": 0.5}] * 2))


def test_learns_online_from_what_is_released():
    released, inputs, results = torch.randn(20, 2), raster(20, 2, 3).float(), []
    for online in (True, False):
        torch.manual_seed(0)
        model = la.Serial(torch.nn.Linear(3, 2, bias=False), la.nn.LIF(2, v_threshold=0.1))
        rule = RuleTrainer(Both())
        rule.register_cell("cell", model.cell)
        if online:
            la.learn_online(rule, model, inputs, dopamine=released)
        for t, step in () if online else enumerate(inputs):
            model(step)
            rule(dopamine=released[t])
            rule.update()
        results.append(model.connection.weight.detach())
    assert torch.equal(*results)


class Reads(la.Rule):
    """Has a modulator, and reads it, another one, or none."""

    dopamine: Neuromodulator = DOPAMINE
    read: str | None = None
    reward: float | None = None

    def terms(self, window):
        term = Term(0.3, window.post, window.pre)
        return reward_modulated(window, [term], self.reward, None, self.read) if self.read else term


@pytest.mark.parametrize(("rule", "call", "error", "message"), [
    (lambda: Reads(dopamine=1.0), {}, TypeError, r"`dopamine` should .* Found `float`: give"),
    (Both, {"dopamine": torch.ones(3)}, ValueError, "`dopamine` should be a"),
    (Both, {"dopamine": "much"}, ValueError, r"torch.as_tensor\(dopamine\)"),
    (lambda: Reads(read="dopamine", reward=1.0), {}, ValueError, "should not both be given"),
    (lambda: Reads(read="dopa"), {}, KeyError, r"among \['dopamine'\]"),
])  # fmt: skip
def test_refuses_what_makes_no_sense(rule, call, error, message):
    with pytest.raises(error, match=message):
        change(RuleTrainer(rule()), call)


def test_a_modulator_that_no_term_reads_is_unread_and_one_that_is_missing_is_named():
    for kind, call in ((Reads, {"dopamine": 1.0}), (Both, {"dopamine": 1.0, "serotonine": 2.0})):
        rule = RuleTrainer(kind())
        change(rule, call)
        assert rule.unread == [[*call][-1]]


def test_what_is_eligible_belongs_to_its_samples():
    model, rule = layer(3, 2), RuleTrainer(MSTDPET(**PAIR))
    rule.register_cell("cell", model.cell)
    show(model, raster(4, 2, 3), raster(4, 2, 2))
    rule(reward=0.0)
    get_updater(model.connection).clear()
    show(model, torch.zeros(1, 5, 3).double(), torch.zeros(1, 5, 2).double())
    rule(reward=1.0)
    assert not get_updater(model.connection).weight.pos.any()

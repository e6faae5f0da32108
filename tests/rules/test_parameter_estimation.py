"""Rates and time constants are found from the changes that a rule made."""

import pytest
import torch
from subtests import turns
from torch import nn

import lightning_accum as la
from lightning_accum.rules import fit_rates

WINDOWS, STEPS, BATCH, INPUTS, NEURONS = 6, 120, 2, 20, 12
OF_PAIRS = {"lr_post": 0.02, "lr_pre": -0.013, "tc_post": 32.0, "tc_pre": 14.0}

# what the rule that made the changes had, and which of it is to be found besides rates
RULES = {
    "STDP": (OF_PAIRS, ("tc_post", "tc_pre")),
    "TripletSTDP": (
        {"lr_post_pair": 0.01, "lr_post_triplet": 0.03, "lr_pre_pair": -0.02,
         "lr_pre_triplet": -0.01, "tc_post_slow": 90.0, "tc_pre_fast": 12.0},
        ("tc_post_slow", "tc_pre_fast"),
    ),
    "WeightDependentSTDP": (OF_PAIRS, ("tc_post", "tc_pre")),
    "MSTDP": ({"lr_post": 0.02, "lr_pre": 0.013, "tc_pre": 14.0}, ("tc_pre",)),
    "MSTDPET": ({"lr_post": 0.02, "lr_pre": -0.013, "tc_eligibility": 40.0}, ("tc_eligibility",)),
    "Oja": ({"lr": 0.02}, ()),
    "BCM": ({"lr": 0.02, "tc_threshold": 60.0}, ("tc_threshold",)),
}  # fmt: skip


def activity(name):
    torch.manual_seed(3)
    pre = torch.rand(WINDOWS, STEPS, BATCH, INPUTS, dtype=torch.float64)
    post = torch.rand(WINDOWS, STEPS, BATCH, NEURONS, dtype=torch.float64)
    if name in ("Oja", "BCM"):
        return pre, post, {}
    rewards = {"reward": torch.randn(WINDOWS, STEPS, BATCH, dtype=torch.float64)}
    return pre < 0.1, post < 0.1, rewards if name.startswith("MSTDP") else {}


def changes(name, **settings):
    """What a rule makes of each window of a stream, and the weights before it."""
    pre, post, inputs = activity(name)
    fc = nn.Linear(INPUTS, NEURONS, bias=False, dtype=torch.float64)
    fc.weight.data.uniform_(0.2, 0.8)
    cell = la.Cell(fc, nn.Identity())
    rule = la.RuleTrainer(getattr(la, name)(**settings), time_dim=0)
    unit, found, before = rule.register_cell("cell", cell), [], []
    for i in range(WINDOWS):
        before.append(fc.weight.detach().clone())
        unit.monitors["pre"](pre[i])
        unit.monitors["post"](post[i])
        rule(**{key: value[i] for key, value in inputs.items()})
        rule.update()
        found.append(fc.weight.detach() - before[-1])
    return torch.stack(found), torch.stack(before)


@turns("name", RULES)
def test_finds_what_made_the_changes_within_its_error(name):
    make, (settings, tune) = getattr(la, name), RULES[name]
    change, weight = changes(name, **settings)
    pre, post, inputs = activity(name)
    begun = {key: 1.7 * v if key in tune else 1.0 if v > 0 else -1.0 for key, v in settings.items()}
    exact = fit_rates(make(**begun), pre, post, change, weight, tune, **inputs)
    assert exact.values == pytest.approx(settings, rel=1e-5)
    assert exact.explained == pytest.approx(1.0, abs=1e-9)
    noisy = change + 0.01 * change.std() * torch.randn_like(change)
    found = fit_rates(make(**begun), pre, post, noisy, weight, tune, **inputs)
    assert found.values == pytest.approx(settings, rel=0.01)
    away = [abs(v - settings[key]) / found.errors[key] for key, v in found.values.items()]
    assert max(away) < 4
    assert 0.999 < found.explained < 1
    assert str(found).startswith(next(iter(settings)))


def test_standard_errors_are_those_of_repeated_measurements():
    change, _ = changes("STDP", **OF_PAIRS)
    pre, post, _ = activity("STDP")
    found = []
    for _ in range(20):
        noisy = change + 0.1 * change.std() * torch.randn_like(change)
        found.append(fit_rates(la.STDP(**OF_PAIRS), pre, post, noisy))
    for name in ("lr_post", "lr_pre"):
        spread = torch.tensor([each.values[name] for each in found]).std().item()
        said = sum(each.errors[name] for each in found) / len(found)
        assert said / 1.6 < spread < 1.6 * said


def test_one_window_and_a_rate_that_is_held_at_zero():
    pre, post, _ = activity("STDP")
    change, _ = changes("STDP", lr_post=0.02, lr_pre=0.0)
    found = fit_rates(la.STDP(1.0, 0.0), pre[0], post[0], change[0])
    assert found.values == pytest.approx({"lr_post": 0.02})


def fit(rule, change=None, spikes=0.1, **options):
    torch.manual_seed(0)
    pre, post = (torch.rand(2, 30, 1, n) < spikes for n in (4, 3))
    fit_rates(rule, pre, post, torch.ones(2, 3, 4) if change is None else change, **options)


@turns("rule, options, words", [
    (la.STDP(1.0, -1.0), {"change": torch.ones(2, 4, 3)}, r"= \[2, 3, 4\].* \(2, 4, 3\)"),
    (la.STDP(1.0, -1.0), {"change": [1.0]}, "`change` should be a tensor"),
    (la.STDP(1.0, -1.0), {"change": torch.ones(3, 4)}, r"`change` should have the shape \[windows"),
    (la.STDP(0.0, 0.0), {}, "a rate that is not 0"),
    (la.STDP(1.0, 1.0), {"spikes": 0.0}, "`lr_post` and `lr_pre` change nothing"),
    (la.STDP(1.0, 1.0), {"spikes": 1.1}, "proportional in this activity"),
    (la.Oja(1.0), {}, "`weight` should be the weights before .* `Oja`"),
    (la.STDP(1.0, 1.0), {"tune": "tc_pst"}, "did you mean `tc_post`"),
    (la.Clopath(0.1, -0.1, 0.0, 0.5), {}, "which records `membrane`"),
])  # fmt: skip
def test_what_is_refused(rule, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        fit(rule, **options)

"""Rules of the page *Write your own rule*: equal to loops over spikes, however evaluated."""

import math
import re

import pytest
import torch
from pages import ROOT
from torch import nn

from lightning_accum import Cell, RuleTrainer, get_updater

PAGE = (ROOT / "docs/write-your-own-rule.md").read_text(encoding="utf-8")
WEIGHT, STEPS, BATCH, INPUTS, OUTPUTS = 0.4, 30, 4, 5, 3


def rule_of(name):
    """A rule that a block of the page defines."""
    (block,) = (b for b in re.findall(r"```\{testcode\}\n(.*?)```", PAGE, re.S) if f" {name}(" in b)
    scope = {"__name__": "page"}
    exec(block, scope)
    return scope[name]()


def change(rule, pre, post, windows, backend):
    fc = nn.Linear(INPUTS, OUTPUTS, bias=False, dtype=torch.float64)
    nn.init.constant_(fc.weight, WEIGHT)
    trainer = RuleTrainer(rule, time_dim=0, backend=backend)
    unit = trainer.register_cell("enc", Cell(fc, nn.Identity()))
    for pre_part, post_part in zip(pre.chunk(windows), post.chunk(windows), strict=True):
        unit.monitors["pre"](pre_part)
        unit.monitors["post"](post_part)
        trainer()
    pending = get_updater(fc).weight
    return pending.pos - pending.neg


def target(rule, pre, post):
    total = x = 0.0
    for before, after in zip(pre, post, strict=True):
        x = x * math.exp(-1 / rule.tc_pre) + before
        total += rule.lr * after * (x - rule.target)
    return total


def triplet(rule, pre, post):
    total = x = slow = 0.0
    for before, after in zip(pre, post, strict=True):
        x = x * math.exp(-1 / rule.tc_pre) + before
        slow *= math.exp(-1 / rule.tc_slow)
        total += rule.lr * after * slow * x
        slow += after
        total -= rule.lr * slow * before
    return total


def calcium(rule, pre, post):
    total = level = 0.0
    late = round(rule.delay)
    for t, after in enumerate(post):
        level *= math.exp(-1 / rule.tc_calcium)
        level += rule.pre * (pre[t - late] if t >= late else 0.0) + rule.post * after
        total += rule.gamma_p * (1 - WEIGHT) * (level > rule.theta_p) / rule.tc_weight
        total -= rule.gamma_d * WEIGHT * (level > rule.theta_d) / rule.tc_weight
    return total


@pytest.mark.parametrize("backend", ["auto", "plain"])
@pytest.mark.parametrize("windows", [1, 6, 30])
@pytest.mark.parametrize(("name", "loop"), [
    ("TargetSTDP", target), ("PostTriplet", triplet), ("CalciumRule", calcium),
])  # fmt: skip
def test_a_rule_of_the_page_is_its_equation(name, loop, windows, backend):
    torch.manual_seed(0)
    pre, post = torch.rand(STEPS, BATCH, INPUTS) < 0.2, torch.rand(STEPS, BATCH, OUTPUTS) < 0.1
    rule, expected = rule_of(name), torch.zeros(OUTPUTS, INPUTS, dtype=torch.float64)
    for o in range(OUTPUTS):
        for i in range(INPUTS):
            for b in range(BATCH):
                spikes = pre[:, b, i].double().tolist(), post[:, b, o].double().tolist()
                expected[o, i] += loop(rule, *spikes) / BATCH
    assert expected.abs().min() > 0
    found = change(rule, pre, post, windows, backend)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)

"""A reward or an error that tells nothing is told in a loop by hand, too."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from lightning_accum import MSTDP, MSTDPET, STDP, Cell, DeltaRule, Rule
from lightning_accum.callbacks import FabricCellTrainer
from lightning_accum.nn import LIF, RewardBaseline

BATCH, STEPS = 4, 10


def learn(
    rule: Rule, given: Callable[[int], dict[str, Any]], calls: int, steps: int = STEPS
) -> Any:
    """Calls a rule with two cells, and returns its modules, which have to exist until its end."""
    torch.manual_seed(0)
    fc, lif = nn.Linear(6, 5, bias=False), LIF(5, v_threshold=0.5)
    other, out = nn.Linear(5, 5, bias=False), LIF(5, v_threshold=0.5)
    for layer in (fc, other):
        nn.init.uniform_(layer.weight, 0.2, 0.6)
    rule.register_cell("first", Cell(fc, lif))
    rule.register_cell("second", Cell(other, out))
    for i in range(calls):
        if steps > 1:
            lif.reset(), out.reset(), rule.clear()
        for _ in range(steps):
            out(other(lif(fc((torch.rand(BATCH, 6) < 0.5).float()))))
        rule(**given(i))
        rule.update()
    return fc, lif, other, out


def said(rule: Rule, given: Callable[[int], dict[str, Any]], calls: int, steps: int = STEPS) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        modules = learn(rule, given, calls, steps)
        rule.eval()
        rule.train().eval()  # once
        del modules
    lines = [str(each.message) for each in found if " of `" in str(each.message)]
    for other in (each for each in found if str(each.message) not in lines):
        warnings.warn(other.message, other.category, stacklevel=2)
    return lines


def ones(i: int) -> dict[str, Any]:
    return {"reward": torch.ones(BATCH)}


def hits(i: int) -> dict[str, Any]:
    return {"reward": (torch.arange(BATCH) <= i % BATCH).float()}


def test_a_constant_reward() -> None:
    (line,) = said(MSTDP(0.01, -0.01), ones, 8)
    assert line.startswith("Each value of `reward` was 1, in all 8 calls: a reward that is always")
    assert said(MSTDP(0.01, -0.01), ones, 7) == []  # too few
    assert said(MSTDP(0.01, -0.01), lambda i: {"reward": 1.0 - i % 2 * 2}, 8) == []


def test_a_reward_that_is_never_negative() -> None:
    (line,) = said(MSTDP(0.01, -0.01), hits, 16)
    assert line.startswith("No value of `reward` was below 0, in all 16 calls")
    assert said(MSTDP(0.01, -0.01), hits, 15) == []
    for at in (0, 6, 13, 19):  # also in calls whose activity is not looked at
        late = said(MSTDP(0.01, -0.01), lambda i, at=at: {"reward": 1.0 - 2.0 * (i == at)}, 20)
        assert late == []


def test_a_baseline_is_fine() -> None:
    baseline = RewardBaseline(decay=0.9)
    assert said(MSTDP(0.01, -0.01), lambda i: {"reward": baseline(hits(i)["reward"])}, 20) == []


def test_an_error_that_is_never_negative() -> None:
    found = said(DeltaRule(0.01), lambda i: {"error": torch.rand(STEPS, BATCH, 5)}, 16)
    assert len(found) == 1
    assert found[0].startswith("No value of `error` was below 0, in all 16 calls")


def test_rewards_of_single_steps_may_come_rarely() -> None:
    assert said(MSTDPET(0.01, -0.01), lambda i: {"reward": float(i % 20 == 19)}, 100, 1) == []


@pytest.mark.parametrize("value", [None, 1.0, "high"])
def test_a_reward_that_the_rule_does_not_read_is_not_looked_at(value: Any) -> None:
    with pytest.warns(UserWarning, match=r"Found \['reward'\], which they do not"):
        assert said(STDP(0.01, -0.01), lambda i: {"reward": value}, 20) == []


def test_it_is_told_once_if_the_modules_are_deleted_first() -> None:
    rule = MSTDP(0.01, -0.01)
    modules = learn(rule, ones, 8)
    with pytest.warns(RuntimeWarning, match="Each value of `reward` was 1") as found:
        del modules
    assert len(found) == 1


def test_a_fabric_loop_tells_it_once() -> None:
    model = nn.Sequential(nn.Linear(6, 5, bias=False), LIF(5, v_threshold=0.5, time_dim=0))
    nn.init.uniform_(model[0].weight, 0.2, 0.6)
    rule = MSTDP(0.01, -0.01, time_dim=0)
    rule.register_cell("enc", Cell(model[0], model[1]))
    learner = FabricCellTrainer(rule)
    learner.setup(model)
    for _ in range(20):
        model[1].reset()
        with learner.batch():
            model((torch.rand(STEPS, BATCH, 6) < 0.5).float())
        learner.step(reward=1.0)
    with pytest.warns(RuntimeWarning, match="Each value of `reward` was 1, in all 20 batches"):
        learner.release()
    rule.eval()

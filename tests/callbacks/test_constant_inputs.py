"""A reward or an error that never varies has a line in the summary."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import BATCH, Net, loader, trainer, warning_of
from torch import Tensor

from lightning_accum import MSTDP, CellSpec
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.callbacks._input_watch import InputWatch
from lightning_accum.nn import RewardBaseline


class Rewarded(Net):
    def __init__(self, rewards: Any) -> None:
        super().__init__()
        self.rewards = rewards

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        self(batch[0])
        return {"reward": self.rewards(batch_idx)}


@pytest.mark.parametrize(
    ("rewards", "value"),
    [
        (lambda i: 1.0, "1"),
        (lambda i: torch.full((BATCH,), -0.5), "-0.5"),
        (lambda i: torch.ones(BATCH).long(), "1"),
        (lambda i: float(i == 5), ""),
        (lambda i: (torch.arange(BATCH) == i).float(), ""),
    ],
)
def test_a_reward(
    rewards: Any, value: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rule = MSTDP(0.01, -0.01, time_dim=0)
    learner = CellTrainerCallback(rule, {"enc": CellSpec("fc", "lif")}, input_keys=("reward",))
    with caplog.at_level(logging.INFO):
        trainer(tmp_path, learner).fit(Rewarded(rewards), loader(8))
    line = f"Each value of `reward` was {value}, in all 8 batches that were looked at"
    assert (line in caplog.text) == bool(value)
    assert ("Each value" in caplog.text) == bool(value)


def lines(name: str, values: list[Any]) -> list[str]:
    watch = InputWatch()
    for value in values:
        watch.note({name: value})
    return watch.lines()


def test_what_tells_nothing() -> None:
    zero: Tensor = torch.zeros(3, 2)
    assert "`error` was 0, in all 3 batches" in lines("error", [zero] * 3)[0]
    assert not lines("error", [zero] * 2)  # too few
    assert not lines("error", [zero, zero, torch.tensor([0.0, torch.nan])])
    assert not lines("reward", [torch.ones(0)] * 5)
    assert not lines("phase", [1.0] * 5)  # an input of somebody's own rule


@pytest.mark.parametrize("name", ["reward", "error"])
def test_what_is_never_negative(name: str) -> None:
    positive = [torch.arange(6.0).reshape(3, 2) + i % 2 for i in range(40)]
    (line,) = lines(name, positive)
    assert line.startswith(f"No value of `{name}` was below 0, in all 17 batches")
    assert ("RewardBaseline" in line) == (name == "reward")
    assert not lines(name, positive[:15])  # too few
    for other in (-1.0, torch.nan):
        late = torch.tensor([0.5, other])
        assert not lines(name, [*positive[:31], late])  # the last one that is looked at
        assert not lines(name, [late, *positive])
    assert not lines("phase", positive)


def test_rewards_without_a_baseline(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def said(rewards: Any) -> bool:
        caplog.clear()
        rule = MSTDP(0.01, -0.01, time_dim=0)
        learner = CellTrainerCallback(rule, {"enc": CellSpec("fc", "lif")}, input_keys=("reward",))
        trainer(tmp_path, learner).fit(Rewarded(rewards), loader(16))
        return "No value of `reward` was below 0" in caplog.text

    baseline = RewardBaseline(decay=0.9)
    with caplog.at_level(logging.INFO):
        assert said(lambda i: (torch.arange(BATCH) <= i % BATCH).float())
        assert not said(lambda i: baseline((torch.arange(BATCH) <= i % BATCH).float()))


@pytest.mark.parametrize("at", [0, 15, 63])
def test_one_value_that_differs(at: int) -> None:
    assert not lines("reward", [-float(i == at) for i in range(100)])
    assert len(lines("reward", [0.0] * 100)) == 1


@pytest.mark.parametrize("zero", [0, 0.0, torch.zeros(BATCH)])
def test_a_reward_of_zero_is_named_where_nothing_moves(zero: Any, tmp_path: Path) -> None:
    rule = MSTDP(0.01, -0.01, time_dim=0)
    learner = CellTrainerCallback(rule, {"enc": CellSpec("fc", "lif")}, input_keys=("reward",))
    with warning_of("`reward` of the rule was 0 in all batches that were looked at"):
        trainer(tmp_path, learner).fit(Rewarded(lambda i: zero), loader(4))

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
from lightning_accum.cells.input_watch import InputWatch
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
    line = f"Each value of `reward` was {value}, in all 8 batches"
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
    assert line.startswith(f"No value of `{name}` was below 0, in all 40 batches")
    assert ("RewardBaseline" in line) == (name == "reward")
    assert not lines(name, positive[:15])  # too few
    for other in (-1.0, torch.nan):
        late = torch.tensor([0.5, other])
        assert not lines(name, [*positive[:19], late, *positive])  # wherever it is
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


@pytest.mark.parametrize("at", [0, 15, 19, 98])
def test_one_value_that_differs(at: int) -> None:
    assert not lines("reward", [-float(i == at) for i in range(100)])
    assert not lines("reward", [torch.full((8 - i % 2,), -float(i == at)) for i in range(100)])
    assert not lines("reward", [torch.full((8,), -int(i == at)) for i in range(100)])
    (line,) = lines("reward", [-0.0] * 100)
    assert "was 0, in all 100 batches" in line


def test_kinds_of_values_may_follow_one_another() -> None:
    kinds: list[Any] = [1, 1.0, torch.ones(8), torch.ones(8).double(), torch.ones(3, 8).int()]
    (line,) = lines("reward", kinds)
    assert "was 1, in all 5 batches" in line
    for i in range(len(kinds)):
        assert not lines("reward", [*kinds[:i], kinds[i] - 2, *kinds[i + 1 :]])


def test_a_reward_that_comes_rarely(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rule = MSTDP(0.01, -0.01, time_dim=0)
    learner = CellTrainerCallback(rule, {"enc": CellSpec("fc", "lif")}, input_keys=("reward",))
    with caplog.at_level(logging.INFO):
        trainer(tmp_path, learner).fit(Rewarded(lambda i: -float(i == 19)), loader(24))
    assert "reward" not in caplog.text


@pytest.mark.parametrize("zero", [0, 0.0, torch.zeros(BATCH)])
def test_a_reward_of_zero_is_named_once(
    zero: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rule = MSTDP(0.01, -0.01, time_dim=0)
    learner = CellTrainerCallback(rule, {"enc": CellSpec("fc", "lif")}, input_keys=("reward",))
    caplog.set_level(logging.INFO)
    with warning_of("`reward` of the rule was always 0: look"):
        trainer(tmp_path, learner).fit(Rewarded(lambda i: zero), loader(4))
    assert "Each value" not in caplog.text

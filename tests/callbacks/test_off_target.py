"""Neurons whose rate moves away from a rule's target, or whose target is in another unit."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import STDP, CellSpec, EProp, Homeostasis, InhibitorySTDP
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.callbacks._all_findings import findings
from lightning_accum.callbacks._counts import Counts, Weights
from lightning_accum.cells import Cell
from lightning_accum.cells.activity import Activity, Silence
from lightning_accum.cells.tally import Tally
from lightning_accum.nn import LIF, SurrogateLIF


def found(rates: tuple[float, ...], target: float | None, **changed: Any) -> list[str]:
    """What is said of neurons with these rates in Hz, at a step of 1 ms."""
    counts: dict[str, Any] = {
        "course": tuple((round(rate * 100), 100_000) for rate in rates),
        "target": target,
        "h": {"dt": 1.0},
        "activity": Activity(0.1, 0.02, 10_000, True),
        "ended": True,
        "weights": (Weights("weight"),),
    }
    return [each.text for each in findings(Counts("enc", **{**counts, **changed}))]


@pytest.mark.parametrize(
    ("rates", "target", "told"),
    [
        ((20.0, 25.0, 30.0), 10.0, "from their target of 10 Hz"),
        ((20.0, 25.0, 10.0), 40.0, ""),  # not all the way
        ((20.0, 10.0, 5.0), 40.0, "away from their target of 40 Hz"),
        ((30.0, 20.0, 12.0), 10.0, ""),
        ((20.0, 20.5, 21.0), 10.0, ""),  # hardly
        ((10.0, 10.2, 10.4), 10.0, ""),  # by chance
        ((50.0, 49.0, 48.0), 0.05, "give it in spikes per second"),
        ((50.0, 10.0, 0.1), 0.05, ""),  # it is reached
        ((50.0, 49.0, 48.0), 0.0, ""),
        ((20.0, 25.0, 30.0), None, ""),
    ],
)
def test_rates_and_targets(rates: tuple[float, ...], target: float | None, told: str) -> None:
    lines = found(rates, target)
    assert len(lines) == bool(told)
    assert all(told in line and line.startswith("The neurons of `enc` fired") for line in lines)


def test_a_target_that_only_silent_neurons_reach() -> None:
    silent = Silence(looks=3, of=12, since=16)
    (line,) = found((50.0, 10.0, 0.1), 0.05, silence=silent, windows=24)
    assert "at 50 Hz at first and at 0.1 Hz at last, and their target is 0.05 Hz: give it" in line
    assert found((20.0, 15.0, 10.0), 10.0, silence=silent, windows=24) == []


def test_what_is_not_known_is_not_told() -> None:
    rates = 20.0, 25.0, 30.0
    assert found(rates, 10.0, ended=False) == []
    assert found(rates, 10.0, course=()) == []
    assert found(rates, 10.0, h={}) == []
    assert found(rates, 10.0, activity=Activity(0.1, 0.02, 10_000, False)) == []


def test_the_step_counts() -> None:
    assert found((20.0, 25.0, 30.0), 100.0, h={"dt": 0.5}) == found((40.0, 50.0, 60.0), 100.0) == []
    (text,) = found((20.0, 25.0, 30.0), 20.0, h={"dt": 0.5})
    assert "at 40 Hz at first and at 60 Hz at last" in text


def test_the_course_of_a_tally() -> None:
    tally = Tally()
    for _ in range(5):
        tally.note(torch.zeros(4, 1, 2), torch.zeros(4, 1, 2))
    assert tally.looks.course() == ()
    tally.begin()
    for spikes in range(1, 7):
        tally.looks.look()
        tally.note(torch.zeros(4, 1, 2), (torch.arange(8) < spikes).float().reshape(4, 1, 2))
    assert tally.looks.course() == ((3, 16), (7, 16), (11, 16))


def test_the_targets_of_rules() -> None:
    def target(rule: Any, neuron: nn.Module) -> float | None:
        rule.register_cell("enc", Cell(nn.Linear(3, 2), neuron))
        held: float | None = rule.held_rate("enc")
        return held

    assert target(Homeostasis(0.1, 7.0), LIF(2)) == 7.0
    assert target(InhibitorySTDP(0.1, target_rate=3.0), LIF(2)) == 3.0
    assert target(EProp(0.1, lr_rate=0.1), SurrogateLIF(2)) == 10.0
    assert target(EProp(0.1), SurrogateLIF(2)) is None
    assert target(STDP(0.1, -0.1), LIF(2)) is None


# ---------------------------------------------------------------------- fits
class Excited(pl.LightningModule):
    """Neurons whose drive rises with their weights, or falls."""

    def __init__(self, sign: float = 1.0) -> None:
        super().__init__()
        self.sign = sign
        self.drive, self.fc = nn.Linear(8, 4, bias=False), nn.Linear(8, 4, bias=False)
        nn.init.constant_(self.drive.weight, 0.4)
        nn.init.constant_(self.fc.weight, 0.1)
        self.lif = LIF(4, tc_mem=10.0, time_dim=0)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        x = batch[0].transpose(0, 1)
        self.lif.reset()
        self.lif(self.drive(x) + self.sign * self.fc(x))

    def configure_optimizers(self) -> None:
        return None


@pytest.mark.parametrize(
    ("rule", "sign", "told"),
    [
        (Homeostasis(-0.002, 40.0, time_dim=0), 1.0, "away from their target of 40 Hz"),
        (Homeostasis(0.002, 40.0, time_dim=0), 1.0, ""),
        (Homeostasis(-0.002, 40.0, time_dim=0), -1.0, ""),
        (InhibitorySTDP(0.002, target_rate=40.0, time_dim=0), 1.0, "`InhibitorySTDP` assumes"),
        (InhibitorySTDP(0.002, target_rate=40.0, time_dim=0), -1.0, ""),
        (InhibitorySTDP(0.002, target_rate=0.04, time_dim=0), -1.0, "in spikes per second"),
    ],
)
def test_the_sign_and_the_unit_of_a_fit(
    rule: Any, sign: float, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    spikes = (torch.rand(160, 30, 8) < 0.15).float()
    use = CellTrainerCallback(rule, {"enc": CellSpec("fc", "lif")}, log=False)
    with caplog.at_level(logging.INFO, "lightning_accum.callbacks"):
        data = DataLoader(TensorDataset(spikes), batch_size=8)
        trainer(tmp_path, use, max_epochs=2).fit(Excited(sign), data)
    lines = [line for line in caplog.text.splitlines() if " target " in line]
    assert len(lines) == bool(told)
    assert all(told in line for line in lines)

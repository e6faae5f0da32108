"""Constraints hold for the parameters that they were set on, and it is told if they never run."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from callback_helpers import OUTPUTS, RULE, Net, callback, loader, trainer
from torch import nn

from lightning_accum import STDP, CellSpec, Clamp, attach_updater
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.functional import bound_upper_power

TOLD = "No constraint or bound of"


@pytest.fixture
def fit(caplog: pytest.LogCaptureFixture, tmp_path: Any) -> Any:
    caplog.set_level(logging.INFO, "lightning_accum.callbacks")

    def lines(net: Net, **options: Any) -> list[str]:
        caplog.clear()
        trainer(tmp_path, callback(**options)).fit(net, loader(8))
        return [line for text in caplog.messages for line in text.splitlines()]

    return lines


def told(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(TOLD)]


class Biased(Net):
    def __init__(self) -> None:
        super().__init__()
        weight = self.fc.weight
        self.fc = nn.Linear(weight.shape[1], OUTPUTS, dtype=weight.dtype)
        self.fc.weight = weight
        nn.init.zeros_(self.fc.bias)


class Deep(Net):
    def __init__(self) -> None:
        super().__init__()
        self.fc2 = nn.Linear(OUTPUTS, OUTPUTS, bias=False, dtype=torch.float64)

    def forward(self, x: Any) -> Any:
        return self.fc2(super().forward(x).double())


def test_on_another_parameter_than_that_of_the_cell(fit: Any) -> None:
    net = Biased()
    attach_updater(net.fc, "bias").register_constraint(Clamp(0.1, 0.2))
    lines = fit(net)
    assert net.fc.weight.max() > 0.2
    assert [line.split()[:2] for line in lines if line.startswith("enc ")] == [["enc", "weight"]]
    assert not any("limit" in line for line in lines if line not in told(lines))
    assert [line.split("`")[1] for line in told(lines)] == ["fc.bias"]


def test_on_a_layer_without_a_cell(fit: Any) -> None:
    net = Deep()
    attach_updater(net.fc2, "weight").register_constraint(Clamp(0.0, 0.3))
    assert [line.split("`")[1] for line in told(fit(net))] == ["fc2.weight"]
    net = Deep()
    attach_updater(net.fc2, "weight").weight.upperbound(bound_upper_power, 1.0, power=1.0)
    assert [line.split("`")[1] for line in told(fit(net))] == ["fc2.weight"]


def test_on_a_layer_that_an_optimizer_trains(fit: Any) -> None:
    class Head(Deep):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = True

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.fc2.parameters())

    net = Head()
    attach_updater(net.fc2, "weight").register_constraint(Clamp(0.0, 0.3))
    assert [line.split("`")[1] for line in told(fit(net))] == ["fc2.weight"]


@pytest.mark.parametrize("names", [(), ("weight", "bias")])
def test_on_all_parameters_of_a_layer_is_meant_for_those_that_learn(fit: Any, names: Any) -> None:
    net = Biased()
    attach_updater(net.fc, "weight", "bias").register_constraint(Clamp(0.0, 1.0), *names)
    lines = fit(net)
    assert not told(lines)
    assert [line.split()[:2] for line in lines if line.startswith("enc ")] == [["enc", "weight"]]


@pytest.mark.filterwarnings("ignore:Found 1 module.s. in eval mode")
def test_of_a_layer_that_rests_or_learns_by_hand(fit: Any) -> None:
    net = Deep()
    attach_updater(net.fc2, "weight").register_constraint(Clamp(0.0, 0.3))
    net.fc2.requires_grad_(False).eval()  # its turn comes later
    assert not told(fit(net))

    class ByHand(Deep):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            super().training_step(batch, batch_idx)
            updater = attach_updater(self.fc2)
            updater.weight = torch.full_like(self.fc2.weight, 0.01)
            updater()

    net = ByHand()
    attach_updater(net.fc2, "weight").register_constraint(Clamp(0.0, 0.3))
    assert not told(fit(net))
    assert net.fc2.weight.min() >= 0


def test_changes_by_hand_of_a_parameter_that_no_cell_trains_are_in_the_table(fit: Any) -> None:
    class Moved(Biased):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            super().training_step(batch, batch_idx)
            attach_updater(self.fc).bias = torch.full_like(self.fc.bias, 0.01)

    net = Moved()
    attach_updater(net.fc, "bias")
    lines = fit(net)
    table = [line.split()[:2] for line in lines if line.startswith("enc ")]
    assert sorted(table) == [["enc", "bias"], ["enc", "weight"]]
    assert bool((net.fc.bias > 0).all())


def test_of_two_learners_of_one_layer(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lightning_accum.callbacks")
    net = Biased()
    attach_updater(net.fc, "bias").register_constraint(Clamp(-0.2, 0.2))
    learners = [
        CellTrainerCallback(
            STDP(**RULE, time_dim=0, params=(param,)),
            {name: CellSpec("fc", "lif")},
            name=name,
        )
        for name, param in (("a", "weight"), ("b", "bias"))
    ]
    trainer(tmp_path, *learners).fit(net, loader(8))
    assert not any(TOLD in message for message in caplog.messages)
    assert net.fc.bias.abs().max() <= 0.2

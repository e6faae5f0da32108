"""Delays that leave what their connection can keep are told once, by name and with the remedy."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import Net, callback, loader, trainer
from torch import Tensor, nn

from lightning_accum import Cell, CellSpec, Clamp, DelayAdjustedSTDP, attach_updater
from lightning_accum.callbacks import FabricCellTrainer
from lightning_accum.nn import LIF, DelayedLinear

LONGEST = 10.1  # which float32 rounds up
FOUND = r"The delays of cell `enc` should be from 0 to `max_delay = 10.1`"


class Delayed(Net):
    """Trains delays with rates that move them far."""

    def __init__(self, clamps: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = DelayedLinear(6, 4, LONGEST, time_dim=0)
        self.fc.weight.requires_grad_(False).fill_(1.0)
        self.lif = LIF(4, tc_mem=10.0, time_dim=0)
        if clamps:
            attach_updater(self.fc, "delay").register_constraint(Clamp(0.0, LONGEST), "delay")

    def forward(self, x: Tensor) -> Tensor:
        self.fc.reset()
        self.lif.reset()
        return self.lif(self.fc(x.float().transpose(0, 1)))

    @property
    def rule(self) -> DelayAdjustedSTDP:
        return DelayAdjustedSTDP(8.0, -8.0, params=["delay"], time_dim=0)


def in_a_fit(net: Delayed, path: Path) -> None:
    trainer(path, callback(net.rule, log=False), max_epochs=2).fit(net, loader(4))


def in_a_loop_of_a_callback(net: Delayed, path: Path) -> None:
    learner = FabricCellTrainer(net.rule, {"enc": CellSpec("fc", "lif")})
    learner.setup(net)
    for x, _ in loader(8):
        with learner.batch():
            net(x)
        learner.step()
    learner.release()


def in_a_loop(net: Delayed, path: Path, ends: bool = True) -> None:
    rule = net.rule
    rule.register_cell("enc", Cell(net.fc, net.lif))
    for x, _ in loader(8):
        net(x)
        rule(carry=False)
        rule.update()
    if ends:
        rule.eval()


def said(run: Any, net: nn.Module, path: Path) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run(net, path)
    return [str(each.message) for each in found if "delays of cell" in str(each.message)]


@pytest.mark.parametrize("run", [in_a_fit, in_a_loop_of_a_callback, in_a_loop])
def test_delays_beyond_the_bounds_are_told_once(run: Any, tmp_path: Path) -> None:
    net = Delayed(clamps=False)
    (text,) = said(run, net, tmp_path)
    least, most = net.fc.delay.aminmax()
    assert least < 0 or most > LONGEST
    assert text.startswith(FOUND)
    assert 'register_constraint(Clamp(0.0, 10.1), "delay")' in text


@pytest.mark.parametrize("run", [in_a_fit, in_a_loop_of_a_callback, in_a_loop])
def test_delays_that_a_clamp_holds_are_fine(run: Any, tmp_path: Path) -> None:
    net = Delayed(clamps=True)
    assert said(run, net, tmp_path) == []
    assert (net.fc.delay == net.fc.delay.new_tensor(LONGEST)).any()  # above 10.1 in float64


def test_a_loop_without_an_end_is_told(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match=FOUND):
        in_a_loop(Delayed(clamps=False), tmp_path, ends=False)


def test_a_connection_takes_the_nearest_bound() -> None:
    net, same = Delayed(clamps=False), Delayed(clamps=False)
    x = (torch.rand(3, 30, 6) < 0.3).float()
    with torch.no_grad():
        net.fc.delay.copy_(torch.linspace(-18.8, 17.8, 24).view(4, 6))
        same.fc.delay.copy_(net.fc.delay.clamp(0.0, LONGEST))
    assert torch.equal(net.fc(x.transpose(0, 1)), same.fc(x.transpose(0, 1)))


@pytest.mark.parametrize(("rate", "told"), [(1e-4, 1), (0.3, 0), (0.0, 0)])
def test_delays_that_stay_in_their_step(
    rate: float, told: int, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level("INFO")
    net = Delayed(clamps=True)
    net.fc.delay.data.fill_(2.0)
    rule = DelayAdjustedSTDP(rate, -rate, params=["delay"], time_dim=0)
    trainer(tmp_path, callback(rule), max_epochs=2).fit(net, loader(4))
    assert bool((net.fc.delay.round() != 2.0).any()) == (rate == 0.3)
    lines = [line for text in caplog.messages for line in text.splitlines()]
    found = [line for line in lines if "to another step of `dt = 1`" in line]
    assert len(found) == told
    assert all("raise `lr_post` and `lr_pre`" in line and "`enc.delay`" in line for line in found)
    assert not any("by a share of" in line for line in lines)


@pytest.mark.parametrize(("rate", "told"), [(1e-4, 1), (0.3, 0), (0.0, 0)])
def test_delays_that_stay_in_their_step_by_hand(rate: float, told: int) -> None:
    net = Delayed(clamps=True)
    net.fc.delay.data.fill_(2.0)
    rule = DelayAdjustedSTDP(rate, -rate, params=["delay"], time_dim=0)
    rule.register_cell("enc", Cell(net.fc, net.lif))
    for x, *_ in loader(12):
        net(x)
        rule()
        rule.update()
        rule.clear()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        rule.eval()
    texts = [str(each.message) for each in found]
    assert sum("moved no delay to another step of `dt = 1`" in text for text in texts) == told
    assert all("raise `lr_post` and `lr_pre`" in text for text in texts)

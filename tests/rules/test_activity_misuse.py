"""Activity that is not what the rule takes it for is told, wherever it comes in a run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_accum import STDP, Cell, Hebb, get_updater

BAD = [torch.nan, 0.001, -1.0, torch.inf]


class Told(nn.Module):
    """A neuron that gives what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.next = torch.ones(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.next


def cell(rule: Any) -> tuple[nn.Linear, Told]:
    fc, neuron = nn.Linear(2, 1, bias=False), Told()
    nn.init.zeros_(fc.weight)
    rule.register_cell("enc", Cell(fc, neuron))
    return fc, neuron


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("at", [1, 2, 20])
@pytest.mark.parametrize("side", ["pre", "post"])
def test_in_a_window_of_steps(bad: float, at: int, side: str) -> None:
    rule = STDP(1.0, 0.0)
    fc, neuron = cell(rule)

    def batch() -> None:
        for t in range(40):
            value = bad if t == at else 1.0
            neuron.next = torch.full((1, 1), value if side == "post" else 1.0)
            neuron(fc(torch.full((1, 2), value if side == "pre" else 1.0)))
        rule()

    place = "before the connection" if side == "pre" else "after the neuron"
    with pytest.raises(ValueError, match=rf"0 or 1\. Found \S+ {place} of cell `enc`"):
        batch()
    assert get_updater(fc).weight.empty
    rule.clear()
    bad = 1.0
    batch()
    assert not get_updater(fc).weight.empty


@pytest.mark.parametrize("bad", BAD)
def test_in_a_run_of_single_steps(bad: float) -> None:
    rule = STDP(1.0, 0.0)
    fc, neuron = cell(rule)

    def run(steps: int) -> None:
        for t in range(steps):
            neuron.next = torch.full((1, 1), 1.0 if t == 0 else bad)
            neuron(fc(torch.ones(1, 2)))
            rule()
            rule.update()

    with pytest.raises(ValueError, match="0 or 1"):
        run(20)
    rule.clear()

    def run_few() -> None:
        run(5)  # the kernel checks each step, torch several together
        rule.confirm()

    with pytest.raises(ValueError, match="0 or 1"):
        run_few()


def test_what_a_rule_on_rates_is_given_is_not_looked_at() -> None:
    rule = Hebb(1.0)
    fc, neuron = cell(rule)
    for value in (1.0, 0.5, -3.0, 7.0):
        neuron.next = torch.full((1, 1), value)
        neuron(fc(torch.ones(1, 2)))
    rule()
    rule.confirm()
    assert get_updater(fc).weight.pos.flatten().tolist() == [5.5, 5.5]

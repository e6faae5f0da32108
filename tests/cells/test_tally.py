"""A rule that learns nothing says so, also without a Lightning Trainer."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_accum import STDP, Cell, Serial, attach_updater
from lightning_accum.cells.tally import Tally
from lightning_accum.nn import LIF
from lightning_accum.optim import updates_as_gradients

ON = torch.ones(3, 2, 4)  # steps, samples, inputs


class Relay(nn.Module):
    """Gives a spike for whatever is positive."""

    def forward(self, x: Tensor) -> Tensor:
        return (x > 0).to(x)


def learner(time_dim: int | None = 0) -> tuple[STDP, Serial]:
    layer = Serial(nn.Linear(4, 2, bias=False), Relay())
    nn.init.ones_(layer.connection.weight)
    rule = STDP(1e-6, -2e-6, time_dim=time_dim)
    rule.register_cell("enc", layer.cell)
    return rule, layer


def calls(rule: STDP, count: int) -> None:
    for _ in range(count):
        rule()


# ---------------------------------------------------------------------- counting
def test_counts_every_window_and_looks_at_few() -> None:
    tally = Tally()
    looked = [tally.note(torch.ones(n, 1, 4), torch.zeros(n, 1, 2)) for n in range(1, 15)]
    assert [n for n, look in enumerate(looked, 1) if look] == [1, 2, 3, 4, 6, 8, 12]
    assert (tally.windows, tally.longest) == (14, 14)
    assert tally.looks.activity() == (1.0, 0.0, 2 * (1 + 2 + 3 + 4 + 6 + 8 + 12), False, False, 0.0)


def test_the_share_that_is_active() -> None:
    tally = Tally()
    for active in (1, 3):
        tally.note(torch.arange(8).reshape(2, 1, 4) < active, torch.eye(4)[None])
    assert tally.looks.activity() == (0.25, 0.25, 32, False, True, 0.0)


def test_looks_where_it_is_asked_to() -> None:
    tally = Tally()
    looked = []
    for n in range(1, 8):
        if n == 5:
            tally.looks.look()
        looked.append(tally.note(ON, ON))
    assert [n for n, look in enumerate(looked, 1) if look] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("spikes", "silence"),
    [("1", None), ("0000", None), ("110", (1, 3, 3)), ("1000", (3, 4, 2)), ("0101", None)],
)
def test_neurons_that_fell_silent(spikes: str, silence: tuple[int, int, int] | None) -> None:
    tally = Tally()
    for each in spikes:
        tally.note(ON, torch.full((2, 1, 3), each == "1"))
    found = tally.looks.silence()
    assert (found and found[:3]) == silence


def test_nothing_is_known_before_a_window_and_after_a_new_beginning() -> None:
    tally = Tally()
    assert tally.looks.activity() is None
    tally.note(ON, ON)
    tally.begin()
    assert (tally.windows, tally.longest, tally.looks.activity()) == (0, 0, None)


def test_a_rule_counts_what_it_evaluates() -> None:
    rule, layer = learner()
    for _ in range(3):
        layer(ON)
        rule()
    rule()  # finds nothing
    tally = rule.tally("enc")
    assert (tally.windows, tally.longest) == (3, 3)
    assert tally.looks.activity() == (1.0, 1.0, 36, True, True, 0.0)
    assert copy.deepcopy(rule).tally("enc").windows == 3
    assert not any("tally" in key for key in rule.state_dict())


def test_an_updater_counts_what_it_applies() -> None:
    fc = nn.Linear(2, 1)
    updater = attach_updater(fc, "weight", "bias")
    updater()  # nothing pending
    assert updater.applied == {}
    for _ in range(2):
        updater.weight = torch.ones(1, 2)
        updater()
    updater.bias = torch.ones(1)
    updater()
    assert updater.applied == {"weight": 2, "bias": 1}


# ---------------------------------------------------------------------- nothing recorded
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda rule, layer: layer.eval(), r"in evaluation mode.*`train\(\)` on the model"),
        (lambda rule, layer: None, "were not called.*not see `fc.forward"),
    ],
)
def test_says_once_that_nothing_was_recorded(spoil: Any, why: str) -> None:
    rule, layer = learner()
    spoil(rule, layer)
    for _ in range(7):
        if "called" not in why:
            layer(ON)
        rule()
    with pytest.warns(RuntimeWarning, match=f"Cell `enc` should.*Found none in 8 calls.*{why}"):
        rule()
    calls(rule, 100)  # warnings are errors


@pytest.mark.parametrize("rest", [STDP.eval, lambda rule: setattr(rule, "recording", False)])
def test_a_rule_that_rests_is_no_mistake(rest: Any) -> None:
    rule, layer = learner()
    rest(rule)
    for _ in range(20):
        layer(ON)
        rule()


def test_a_method_called_around_the_hooks() -> None:
    rule, layer = learner()
    for _ in range(7):
        layer.neuron.forward(layer.connection.forward(ON))
        rule()
    with pytest.warns(RuntimeWarning, match="were not called"):
        rule()


def test_a_pause_is_no_mistake() -> None:
    rule, layer = learner()
    calls(rule, 7)
    layer(ON)
    calls(rule, 100)


def others_learn(count: int) -> tuple[STDP, Cell, Serial]:
    rule, layer = learner()
    other = Cell(nn.Linear(4, 2, bias=False), LIF(2, time_dim=0))
    rule.register_cell("later", other)
    for _ in range(count):
        layer(ON)
        rule()
        rule.update()
    return rule, other, layer


def test_the_turn_of_a_cell_may_come() -> None:
    rule, other, _layer = others_learn(99)
    other.neuron(other.connection(ON))
    rule()
    calls(rule, 20)


@pytest.mark.parametrize("count", [20, 99])
def test_a_cell_that_is_not_called_while_others_learn(count: int) -> None:
    found = f"Cell `later` should record.*none in {count} calls, which found that of other cells"
    rule, _other, _layer = others_learn(count)
    with pytest.warns(RuntimeWarning, match=found) as said:
        rule.eval()
    assert len(said) == 1


def test_a_cell_that_rests_while_others_learn() -> None:
    rule, layer = learner()
    other = Cell(nn.Linear(4, 2, bias=False).eval(), LIF(2, time_dim=0).eval())
    rule.register_cell("later", other)
    for _ in range(120):
        layer(ON)
        rule()
        rule.update()
    rule.eval()


# ---------------------------------------------------------------------- never applied
def test_says_once_that_nothing_is_ever_applied() -> None:
    rule, layer = learner()
    for _ in range(1023):
        layer(ON)
        rule()
    layer(ON)
    with pytest.warns(RuntimeWarning, match="1024 windows pending for `weight`.*`update\\(\\)`"):
        rule()
    for _ in range(500):
        layer(ON)
        rule()


def test_what_is_applied_now_and_then_is_no_mistake() -> None:
    rule, layer = learner()
    for i in range(1100):
        layer(ON)
        rule()
        if i == 1000:
            rule.update()


def test_what_is_handed_over_is_no_mistake() -> None:
    rule, layer = learner()
    updater = layer.cell.updater
    assert updater is not None
    optimizer = torch.optim.SGD(layer.connection.parameters(), 0.1)
    for _ in range(1100):
        layer(ON)
        rule()
        optimizer.zero_grad()
        updates_as_gradients(updater)
        optimizer.step()


def test_single_steps_may_be_many() -> None:
    rule, layer = learner(None)
    for _ in range(1100):
        layer(ON[0])
        rule()
    rule.update()

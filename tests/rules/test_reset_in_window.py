"""A neuron that is reset within a window is noticed; one that is reset between windows is not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lightning_accum as la
from lightning_accum.nn import LIF, AdaptiveLIF, SurrogateLIF

KINDS = pytest.mark.parametrize("kind", [LIF, AdaptiveLIF, SurrogateLIF])
WORDS = r"Cell `enc` should be reset between windows.*`clear\(\)`, before `reset\(\)`"


def learner(kind: type[nn.Module], time_dim: int | None = None) -> tuple[la.Serial, la.STDP]:
    layer = la.Serial(nn.Linear(3, 2), kind(2, time_dim=time_dim))
    rule = la.STDP(0.1, -0.1, time_dim=time_dim)
    rule.register_cell("enc", layer.cell)
    return layer, rule


@KINDS
def test_in_every_step(kind: type[nn.Module]) -> None:
    layer, rule = learner(kind)
    for x in torch.ones(5, 1, 3):
        layer.neuron.reset()
        layer(x)
    with pytest.warns(RuntimeWarning, match=WORDS):
        rule()


@KINDS
def test_between_two_presentations(kind: type[nn.Module]) -> None:
    layer, rule = learner(kind, 0)
    for x in torch.ones(2, 5, 1, 3):
        layer.neuron.reset()
        layer(x)
    with pytest.warns(RuntimeWarning, match=WORDS):
        rule()


@KINDS
@pytest.mark.parametrize("time_dim", [None, 0])
@pytest.mark.parametrize("late", [False, True])
def test_between_windows(kind: type[nn.Module], time_dim: int | None, late: bool) -> None:
    layer, rule = learner(kind, time_dim)
    for x in torch.ones(3, 5, 1, 3):
        if not late:
            layer.neuron.reset()
        for now in [x] if time_dim == 0 else x:
            layer(now)
        if late:
            layer.neuron.reset()
        rule()


def test_a_state_that_was_loaded_within_a_window() -> None:
    layer, rule = learner(LIF)
    layer(torch.ones(1, 3))
    layer.neuron.load_state_dict(layer.neuron.state_dict())
    layer(torch.ones(1, 3))
    rule()

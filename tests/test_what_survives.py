"""What a state of the pipe restores, and what stays as it was set."""

import copy

import pytest
import torch
from torch import nn

from lightning_accum import STDP, RuleTrainer, Serial, attach_updater, get_updater
from lightning_accum.cells.trainer import recorded_steps
from lightning_accum.nn import LIF, Linear


@pytest.mark.filterwarnings("ignore:.*evaluated.$:RuntimeWarning")
def test_a_state_restores_all_but_hyperparameters_and_each_verb_drops_its_own():
    layer, spikes = Serial(Linear(4, 3, bias=False), LIF(3, time_dim=0)), torch.ones(20, 2, 4)
    nn.init.ones_(layer.connection.weight)
    updater = attach_updater(layer.connection, "weight")
    updater.weight.fullbound("power", 1.0, 0.0)
    rule, fresh = (RuleTrainer(STDP(lr_post=0.1, lr_pre=-0.1), time_dim=0) for _ in range(2))
    rule.register_cell("enc", layer.cell, tc_pre=5.0)
    for _ in range(2):  # with a change pending, traces carried and a window recorded
        layer(spikes)
        if updater.weight.empty:
            rule()
    other = copy.deepcopy(layer)
    into = get_updater(other.connection)
    into.clear()
    into.weight.fullbound("power", 5.0, -5.0)
    fresh.register_cell("enc", other.cell)
    fresh.load_state_dict(rule.state_dict())
    with pytest.warns(UserWarning, match="bounds of `weight` should be those of the state"):
        into.load_state_dict(updater.state_dict())
    assert recorded_steps(fresh, "enc") == 20
    assert fresh.state_of("enc").carried.keys() == rule.state_of("enc").carried.keys() != set()
    assert fresh.state_of("enc").rule.tc_pre == 20.0
    assert torch.equal(into.weight.pos, updater.weight.pos)
    into.clear()
    assert into.weight.empty
    assert into.weight.limits == (0.0, 1.0)
    rule.clear()
    assert recorded_steps(rule, "enc") == len(rule.state_of("enc").carried) == 0
    assert not updater.weight.empty

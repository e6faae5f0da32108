"""The pipe's table of what survives what, row by row."""

import copy

import pytest
import torch
from torch import nn

from lightning_accum import STDP, Clamp, RuleTrainer, Serial, attach_updater, get_updater
from lightning_accum._packing import unpack
from lightning_accum.nn import AdaptiveLIF, Linear

SPIKES = (torch.rand(20, 2, 4, generator=torch.Generator().manual_seed(0)) < 0.5).float()


def carried(rule):
    return unpack(rule.state_dict()["_states.enc._extra_state"], "")["carried"]


def recorded(rule):
    return rule.get_monitor("enc", "post").reducer.length


@pytest.fixture
def trained():
    """A layer with a change pending, traces carried and a window recorded."""
    layer = Serial(Linear(4, 3, bias=False), AdaptiveLIF(3, time_dim=0))
    nn.init.ones_(layer.connection.weight)
    updater = attach_updater(layer.connection, "weight")
    updater.weight.fullbound("power", 1.0, 0.0)
    updater.register_constraint(Clamp(0.0, 1.0))
    rule = RuleTrainer(STDP(lr_post=0.1, lr_pre=-0.1), time_dim=0)
    rule.register_cell("enc", layer.cell, tc_pre=5.0)
    layer(SPIKES)
    rule()
    layer(SPIKES)
    assert recorded(rule) == 20
    assert carried(rule)
    assert pending(updater).sum() > 0
    return layer, rule, updater


def pending(updater):
    pos = updater.weight.pos
    assert pos is not None
    return pos


@pytest.mark.filterwarnings("ignore:.*evaluated.$:RuntimeWarning")
def test_the_callbacks_part_restores_all_but_hyperparameters(trained):
    layer, rule, updater = trained
    fresh, other = RuleTrainer(STDP(lr_post=0.1, lr_pre=-0.1), time_dim=0), copy.deepcopy(layer)
    into = get_updater(other.connection)
    into.clear()
    into.weight.fullbound("power", 5.0, -5.0)
    fresh.register_cell("enc", other.cell)
    fresh.load_state_dict(rule.state_dict())
    with pytest.warns(UserWarning, match="bounds of `weight` should be those of the state"):
        into.load_state_dict(updater.state_dict())
    assert recorded(fresh) == 20
    assert set(carried(fresh)) == set(carried(rule))
    assert fresh.state_of("enc").rule.tc_pre == 20.0
    assert torch.equal(pending(into), pending(updater))
    assert into.weight.limits == (0.0, 1.0)


def test_each_verb_drops_its_own(trained):
    layer, rule, updater = trained
    rule.eval()
    layer(SPIKES)
    rule.train()
    assert recorded(rule) == 20
    theta = layer.neuron.theta.clone()
    layer.neuron.reset()
    assert layer.neuron.voltage is None
    assert torch.equal(layer.neuron.theta, theta)
    rule.clear()
    assert recorded(rule) == 0
    assert not carried(rule)
    assert pending(updater).sum() > 0
    updater.clear()
    assert updater.weight.pos is None
    assert updater.weight.limits == (0.0, 1.0)

"""Nothing waits for the device: on `meta`, where there are no values, looking at one raises."""

import pytest
import torch
from references import RULES
from subtests import turns
from torch import nn

from lightning_accum import Cell, Clamp, attach_updater
from lightning_accum.nn import LIF, AdaptiveLIF, Linear
from lightning_accum.optim import AdaBelief, Adam, UpdateOptimizer


def ones(*shape):
    return torch.ones(shape, device="meta")


@turns("time_dim, policy", [(None, "skip"), (0, "ignore")])
@pytest.mark.parametrize("name", RULES)
def test_from_activity_to_the_applied_update(name, time_dim, policy):
    case = RULES[name]
    fc, neuron = nn.Linear(4, 2, device="meta"), nn.Identity()
    fc.register_buffer("delay", ones(2, 4))
    rule = case.make(time_dim=time_dim, params=["weight"])
    rule.register_cell("cell", Cell(fc, neuron))
    updater = attach_updater(fc, "weight")
    updater.nonfinite = policy
    updater.weight.fullbound("power", 1.0, 0.0, power=0.5)
    updater.register_constraint(Clamp(0.0, 1.0), "weight")
    optimizer = UpdateOptimizer(fc.parameters(), lr=0.5)
    optimizer.attach([updater])
    for by_optimizer in (False, True):
        for _ in range(5 if time_dim is None else 1):
            time = () if time_dim is None else (5,)
            fc(ones(*time, 3, 4)), neuron(ones(*time, 3, 2))
        rule(**({"reward": ones(3)} if case.rewarded else {}))
        assert not updater.weight.empty
        if by_optimizer:
            optimizer.step()
        else:
            rule.update()
        assert updater.weight.empty


def test_native_layers_and_optimizers():
    fc = Linear(4, 2, device="meta")
    for kind in (LIF, AdaptiveLIF):
        lif = kind(2, refractory=2.0, time_dim=0).to("meta")
        for x in (ones(5, 3, 4), ones(5, 3, 4).bool()):
            assert lif(fc(x)).shape == (5, 3, 2)
    for make in (Adam, AdaBelief):
        optimizer = make(fc.parameters())
        for _ in range(2):
            for param in fc.parameters():
                param.grad = ones(*param.shape)
            optimizer.step()

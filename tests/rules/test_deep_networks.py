"""Deep networks learn by the rules for them: by gradients within a step, and by direct feedback."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lightning_accum as la
from lightning_accum import Cell
from lightning_accum.functional import FastSigmoid
from lightning_accum.nn import SurrogateLIF
from lightning_accum.rules import RandomFeedback

WIDE = FastSigmoid(3.0)
Make = Callable[[int], la.RuleTrainer]


def losses(make, gradient, reads):
    """The loss of each batch, of two hidden layers and a readout that learns, or stays."""
    torch.manual_seed(0)
    fcs = nn.ModuleList([nn.Linear(8, 30), nn.Linear(30, 30), nn.Linear(30, 3)])
    fcs.requires_grad_(False)
    neurons = [SurrogateLIF(30, 10.0, gradient=gradient, surrogate=WIDE, time_dim=0)
               for _ in range(2)]  # fmt: skip
    rules, output = [make(i) for i in range(2)], nn.Identity()
    cells = [*zip(fcs, neurons, strict=False)]
    if reads:
        nn.init.zeros_(fcs[2].weight)
        rules.append(la.RuleTrainer(la.DeltaRule(0.3), time_dim=0, batch_reduction="sum"))
        cells.append((fcs[2], output))
    for rule, cell in zip(rules, cells, strict=True):
        rule.register_cell("cell", Cell(*cell))
    found, rates, target = [], 0.1 + 0.5 * torch.rand(3, 8), torch.arange(24) % 3
    for _ in range(40):
        z = (torch.rand(20, 24, 8) < rates[target]).float().requires_grad_(gradient == "step")
        for fc, neuron in zip(fcs, neurons, strict=False):
            neuron.reset()
            z = neuron(fc(z))
        y = output(fcs[2](z)).mean(0)
        loss = F.cross_entropy(y, target)
        error = (y.softmax(-1) - F.one_hot(target, 3)).detach() / (20 * 24)
        if gradient == "step":
            loss.backward()
        for rule in rules:
            rule(**({} if gradient == "step" else {"error": error}))
            rule.update(), rule.clear()
        found.append(loss.item())
    return found


@pytest.mark.parametrize(
    "make",
    [
        lambda i: la.RuleTrainer(la.OTTT(5.0), time_dim=0),
        lambda i: la.RuleTrainer(la.OTTT(1.0, tc_next=10.0), time_dim=0),
        lambda i: la.RuleTrainer(la.STLLR(5.0, -1.0, tc_pre=10.0, surrogate=WIDE), time_dim=0),
        lambda i: la.RuleTrainer(la.STLLR(5.0, 1.0, tc_pre=10.0, surrogate=WIDE), time_dim=0),
    ],
    ids=("OTTT", "OTPE", "S-TLLR, opposite signs", "S-TLLR, same signs"),
)
def test_hidden_layers_learn_by_gradients_under_a_readout_that_stays(make):
    found = losses(make, "step", reads=False)
    assert found[0] > 1.0
    assert max(found[-5:]) < 0.6


def test_hidden_layers_learn_by_direct_feedback_of_the_error():
    def make(lr):
        return lambda i: la.RuleTrainer(
            la.EProp(lr, RandomFeedback(3, 30, seed=i)), time_dim=0, batch_reduction="sum"
        )

    still, learned = (losses(make(lr), "none", reads=True) for lr in (0.0, 3.0))
    assert max(learned[-5:]) < 0.2 < 0.9 < min(still[-5:])

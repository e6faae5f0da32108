"""Sides of a cell that were not recorded alike are refused with the reason."""

import pytest
import torch
from torch import nn
from turns import turns

from lightning_accum import STDP, Cell

ON = torch.ones(3, 2, 4)  # steps, samples, inputs


class Relay(nn.Module):
    """Gives a spike for whatever is positive."""

    def forward(self, x):
        return (x > 0).to(x)


def linear():
    return nn.Linear(4, 2, bias=False)


def unseen(fc, neuron):
    neuron(nn.functional.linear(ON, fc.weight))


def asleep(side):
    return lambda *both: (both[side].eval(), both[1](both[0](ON)))


def each(steps):
    return lambda fc, neuron: [neuron(fc(step)) for step in steps]


def folded(x):
    return lambda fc, neuron: neuron(fc(x.flatten(0, 1)).unflatten(0, x.shape[:2]))


@turns(
    "connection, time_dim, show, words",
    [
        (linear, 0, unseen, "none of the connection: the connection, a Linear in"),
        (linear, 0, asleep(0), "none of the connection: .* is in evaluation mode"),
        (linear, 0, asleep(1), "none of the neuron: .* is in evaluation mode"),
        (linear, 0, each(ON), r"`\[B, \.\.\.\]`, give the rule `time_dim=None`"),
        (linear, 0, folded(ON), "takes time and batch as one dimension"),
        (lambda: nn.Conv1d(1, 2, 3), 0, folded(ON.unsqueeze(2)), "time and batch as one dim"),
        (lambda: nn.Conv2d(1, 3, 3), 0, each(torch.ones(4, 2, 1, 5, 5)),
         r"as often as each other.* Found 8 steps of the connection \(1, 5, 5\) and 8 of the neuron"
         r" \(3, 3, 3\): .* give the rule `time_dim=None`\.$"),
        (linear, None, lambda fc, neuron: (neuron(fc(ON[0])), fc(ON[0])),
         r"2 steps .* and 1 of .* as often as the other"),
        (linear, None, lambda fc, neuron: neuron(fc(ON[0])[:1]), "let both see the same samples"),
    ],
)  # fmt: skip
def test_sides_that_differ(connection, time_dim, show, words):
    pair, rule = Cell(connection(), Relay()), STDP(0.1, -0.1, time_dim=time_dim)
    rule.register_cell("enc", pair)
    show(pair.connection, pair.neuron)
    with pytest.raises(ValueError, match=words):
        rule()
    if isinstance(pair.connection, nn.Linear):
        pair.connection.train(), pair.neuron.train()
        x = ON[0] if time_dim is None else ON
        pair.neuron(pair.connection(x))  # what was refused is dropped
        rule()

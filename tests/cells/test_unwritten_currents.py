"""Neurons compute the currents that nobody sees, and nobody can tell but by the memory."""

from __future__ import annotations

import copy

import pytest
import torch
from kernel_helpers import spikes
from subtests import turns
from torch import nn

from lightning_accum import Serial
from lightning_accum.nn import LIF, AdaptiveLIF, Linear, SurrogateLIF, linear
from lightning_accum.observe import InputMonitor, OutputMonitor
from lightning_accum.sparse.event_sums import EventProduct

INPUTS, OUTPUTS = 400, 100
SPIKES = spikes(60, 8, INPUTS, density=0.02)
OPTIONS = {"tc_theta": 50.0, "refractory": 2.0, "time_dim": 0}


@pytest.fixture(autouse=True)
def written(monkeypatch):
    """The currents of spikes that are written."""
    found = []

    def counted(make):
        return lambda *args: found.append(make(*args)) or found[-1]

    monkeypatch.setattr(EventProduct, "values", counted(EventProduct.values))
    monkeypatch.setattr(linear, "event_matmul", counted(linear.event_matmul))
    return found


def connection(make=Linear):
    made = make(INPUTS, OUTPUTS)
    nn.init.uniform_(made.weight, 0.0, 0.05)
    return made


@turns("theta_plus", [0.0, 0.125])
@turns("grad", [False, True])
def test_currents_that_nobody_sees_are_not_written(theta_plus, grad, written):
    options = {"theta_plus": theta_plus, **OPTIONS}
    layer = Serial(connection(), AdaptiveLIF(OUTPUTS, **options))
    plain, whole = copy.deepcopy(layer.connection), AdaptiveLIF(OUTPUTS, **options)
    before, after = InputMonitor(layer.connection), OutputMonitor(layer.neuron)
    x = SPIKES
    for seen in (False, True):
        with torch.set_grad_enabled(grad):
            written.clear()
            found = layer(x)
            assert len(written) == seen
            expected = whole(plain(x))
        assert 0.01 < expected.mean() < 0.2
        assert torch.equal(found, expected)
        assert torch.equal(layer.neuron.voltage, whole.voltage)
        assert torch.equal(layer.neuron.theta, whole.theta)
        assert torch.equal(before.peek(), x)
        assert torch.equal(after.peek(), found)
        layer.neuron.register_forward_pre_hook(lambda module, args: None)


class Doubled(Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Shifted(LIF):
    def forward(self, x):
        return super().forward(x.roll(1, 0))


@turns("make, neuron", [
    (Doubled, LIF), (nn.Linear, LIF), (Linear, Shifted), (Linear, SurrogateLIF),
    (Linear, lambda *_, **options: nn.ReLU()),
])  # fmt: skip
def test_those_of_other_modules_are(make, neuron):
    layer = Serial(connection(make), neuron(OUTPUTS, time_dim=0))
    whole = neuron(OUTPUTS, time_dim=0)
    x = SPIKES.float() if make is nn.Linear else SPIKES
    assert torch.equal(layer(x), whole(layer.connection(x)))


@pytest.mark.filterwarnings("ignore:.torch.jit.trace.*deprecated:DeprecationWarning")
def test_traced_code_is_of_the_whole():
    """A comparison of sizes would cause a warning, which is an error here."""
    layer = Serial(connection(nn.Linear), nn.ReLU())
    x = SPIKES.float()
    traced = torch.jit.trace(layer, x)
    for each in (x.flip(0), x[:3]):
        assert torch.equal(traced(each), layer(each))

"""Cells with neurons of Norse, which give `(z, state)`, per step or per sequence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from foreign import OUTPUTS, Foreign, Net

from lightning_accum.nn import Competition

norse = pytest.importorskip("norse.torch", reason="Norse, or nir or nirtorch, is not installed")


class Stepwise(Net):
    """The caller keeps the state."""

    state: Any = None

    def forward(self, pre):
        spikes = []
        for x in pre:
            z, self.state = self.neuron(self.connection(x), self.state)
            spikes.append(z)
        return torch.stack(spikes)

    def rest(self):
        self.state = None


class Stacked(Stepwise):
    """The library's own container calls connection and neuron."""

    def __init__(self, neuron, gain):
        super().__init__(neuron, gain)
        self.stack = norse.SequentialState(self.connection, self.neuron)

    def forward(self, pre):
        spikes = []
        for x in pre:
            z, self.state = self.stack(x, self.state)
            spikes.append(z)
        return torch.stack(spikes)


class Sequence(Stepwise):
    """A call per sequence."""

    time_dim = 0

    def forward(self, pre):
        z, self.state = self.neuron(self.connection(pre), self.state)
        return z


class Competing(Stepwise):
    """The competition passes the state on, to the neuron and back."""

    def __init__(self, neuron, gain):
        super().__init__(Competition(neuron, OUTPUTS, theta_plus=0.0), gain)

    def rest(self):
        super().rest()
        self.neuron.reset()


class CompetingSequence(Competing, Sequence):
    """A call per sequence, which the competition cuts into steps."""

    def __init__(self, neuron, gain):
        super().__init__(neuron, gain)
        self.neuron.time_dim = 0


NETS = {
    "LIFCell in competition": lambda: Competing(norse.LIFCell(), gain=8.0),
    "LIF in competition": lambda: CompetingSequence(norse.LIF(), gain=8.0),
    "LIFCell": lambda: Stepwise(norse.LIFCell(), gain=2.0),
    "LIFBoxCell": lambda: Stepwise(norse.LIFBoxCell(), gain=3.0),
    "SequentialState": lambda: Stacked(norse.LIFCell(), gain=2.0),
    "LIF": lambda: Sequence(norse.LIF(), gain=2.0),
}


class TestNorse(Foreign):
    @pytest.fixture(params=NETS)
    def net(self, request):
        return NETS[request.param]()

"""Cells with neurons of SpikingJelly, in single-step and in multi-step mode."""

import pytest
import torch
from foreign import BATCH, INPUTS, OUTPUTS, Foreign, Net, raster
from torch import nn

from lightning_accum import STDP, Cell
from lightning_accum.nn import Competition

neurons = pytest.importorskip(
    "spikingjelly.activation_based.neuron", reason="SpikingJelly, or loguru, is not installed"
)
from spikingjelly.activation_based import functional, layer  # noqa: E402 - it may be missing


class SingleStep(Net):
    def forward(self, pre):
        return torch.stack([self.neuron(self.connection(x)) for x in pre])

    def rest(self):
        functional.reset_net(self)


class MultiStep(SingleStep):
    """A call per sequence."""

    time_dim = 0

    def __init__(self, neuron, connection=None):
        super().__init__(neuron)
        if connection is not None:
            connection.weight = self.connection.weight
            self.connection = connection
        functional.set_step_mode(self, "m")

    def forward(self, pre):
        return self.neuron(self.connection(pre))


def competing():
    compete = Competition(neurons.LIFNode(tau=2.0), OUTPUTS, theta_plus=0.0, time_dim=0)
    return MultiStep(compete)  # whose reset reaches the competition and its neuron


NETS = {
    "in_competition": competing,
    "single_step": lambda: SingleStep(neurons.LIFNode(tau=2.0)),
    "multi_step": lambda: MultiStep(neurons.LIFNode(tau=2.0)),
    "soft_reset": lambda: MultiStep(neurons.IFNode(v_threshold=2.5, v_reset=None)),
    "parametric": lambda: MultiStep(neurons.ParametricLIFNode(init_tau=2.0)),
    "own_linear": lambda: MultiStep(
        neurons.LIFNode(tau=2.0), layer.Linear(INPUTS, OUTPUTS, bias=False)
    ),
}


class TestSpikingJelly(Foreign):
    @pytest.fixture(params=NETS)
    def net(self, request):
        return NETS[request.param]().train()  # its neurons share a surrogate with others


def test_own_convolution_learns_as_the_plain_one():
    pre = raster(0).view(-1, BATCH, 1, 1, INPUTS)
    weight = torch.rand(2, 1, 1, 3, generator=torch.Generator().manual_seed(0)).double()
    changes = []
    for conv in (layer.Conv2d(1, 2, (1, 3), bias=False), nn.Conv2d(1, 2, (1, 3), bias=False)):
        conv.double().load_state_dict({"weight": weight})
        lif = neurons.LIFNode(tau=2.0)
        stdp = STDP(0.02, -0.015)
        unit = stdp.register_cell("cell", Cell(conv, lif))
        for x in pre:
            lif(conv(x))
        stdp()
        changes.append(unit.cell.updater.weight.update(conv.weight))
    assert changes[1].abs().max() > 1e-3
    torch.testing.assert_close(*changes, rtol=0, atol=0)

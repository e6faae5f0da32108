"""Cells with neurons of snnTorch, which are called once per step and give `(spk, mem)`."""

import pytest
import torch
from foreign import OUTPUTS, Foreign, Net, raster, rule

from lightning_accum import STDP, Cell
from lightning_accum.nn import Competition

snntorch = pytest.importorskip("snntorch", reason="snnTorch is not installed")


class Stepwise(Net):
    def forward(self, pre):
        spikes = []
        for x in pre:
            given = self.neuron(self.connection(x))
            spikes.append(given[0] if isinstance(given, tuple) else given)
        return torch.stack(spikes)

    def rest(self):
        self.neuron.reset_mem()


NEURONS = {
    "spk_mem": lambda: snntorch.Leaky(beta=0.9),
    "spk_alone": lambda: snntorch.Leaky(beta=0.9, init_hidden=True, reset_mechanism="zero"),
    "spk_syn_mem": lambda: snntorch.Synaptic(alpha=0.5, beta=0.8, threshold=2.0),
}


class TestSnnTorch(Foreign):
    @pytest.fixture(params=NEURONS)
    def net(self, request):
        return Stepwise(NEURONS[request.param](), gain=0.6)


class Competing(Stepwise):
    def rest(self):
        self.neuron.reset()
        self.neuron.neuron.reset_mem()


class TestInCompetition(Foreign):
    @pytest.fixture
    def net(self):
        neuron = snntorch.Leaky(beta=0.9)
        return Competing(Competition(neuron, OUTPUTS, theta_plus=0.0), gain=0.6)


def test_graded_spikes_are_told_from_spikes():
    net = Stepwise(snntorch.Leaky(beta=0.9, graded_spikes_factor=0.5), gain=0.6)
    stdp = rule(net)  # whose monitors look on
    with pytest.raises(ValueError, match=r"should be 0 or 1\. Found 0\.5"):
        net(torch.ones_like(raster(0)))
    assert stdp.recording


def test_a_learner_of_snntorch_on_the_same_layer_sees_each_call_once():
    learning = pytest.importorskip("snntorch.functional.stdp_learner")
    changes = []
    for beside in (False, True):
        torch.manual_seed(0)
        fc, spikes = torch.nn.Linear(6, 3, bias=False), torch.nn.Identity()
        learner = learning.STDPLearner(fc, spikes, tau_pre=20.0, tau_post=20.0)
        own = STDP(0.1, -0.1)
        if beside:
            own.register_cell("enc", Cell(fc, spikes))
        for _ in range(3):
            with torch.no_grad():
                fc((torch.rand(4, 6) < 0.5).float())
                spikes((torch.rand(4, 3) < 0.5).float())
            if beside:
                own()  # the first call checks the connection
        changes.append(learner.step(on_grad=False))
    torch.testing.assert_close(*changes)

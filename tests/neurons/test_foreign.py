"""Cells with the neurons of other libraries learn by STDP and by e-prop, as loops say."""

from __future__ import annotations

import importlib
import math

import pytest
import torch
from eprop_reference import eprop, low_pass
from kernel_helpers import spikes
from torch import nn

from lightning_accum import STDP, Cell, EProp, RuleTrainer, get_updater
from lightning_accum.functional import FastSigmoid, Triangular
from lightning_accum.nn import Competition

INPUTS, OUTPUTS, STEPS, BATCH = 7, 5, 24, 3
LR_POST, LR_PRE, TC_POST, TC_PRE = 0.02, -0.015, 9.0, 14.0
JELLY = "spikingjelly.activation_based"


def raster(seed, steps=STEPS, batch=BATCH):
    return spikes(steps, batch, INPUTS, density=0.4, seed=seed).double()


def pairs(pre, post):
    """The change of a weight, ``[out, in]``: every pair of spikes counts by its lag."""
    post = post.detach().double()
    time = torch.arange(len(pre)).double()
    lag = time[:, None] - time
    after_pre, after_post = (
        torch.where(lag >= 0, torch.exp(-lag / tc), 0.0).double() for tc in (TC_PRE, TC_POST)
    )
    up = torch.einsum("tbo,tu,ubi->boi", post, after_pre, pre)
    down = torch.einsum("tbi,tu,ubo->boi", pre, after_post, post)
    return (LR_POST * up + LR_PRE * down).mean(0)


class Net(nn.Module):
    """A linear connection and a neuron, which keeps its state."""

    def __init__(self, neuron, gain=1.0, time_dim=None, connection=None):
        super().__init__()
        own = nn.Linear(INPUTS, OUTPUTS, bias=False)
        self.connection, self.neuron, self.time_dim = (connection or own).double(), neuron, time_dim
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            weight = torch.rand(OUTPUTS, INPUTS, generator=generator, dtype=torch.float64)
            self.connection.weight.copy_(gain * weight)

    def forward(self, pre):
        """Spikes ``[T, B, out]`` for spikes ``[T, B, in]``, from the state it is in."""
        return self.run(pre) if self.time_dim == 0 else torch.stack([*map(self.run, pre)])

    def run(self, x):
        given = self.neuron(self.connection(x))
        return given[0] if isinstance(given, tuple) else given

    def rest(self):
        """Brings the neuron to rest, as the library and the competition do."""
        for each in self.neuron.modules():
            getattr(each, "reset_mem", getattr(each, "reset", lambda: None))()


class Stateless(Net):
    """The caller keeps the state."""

    state = None

    def run(self, x):
        z, self.state = self.neuron(self.connection(x), self.state)
        return z

    def rest(self):
        super().rest()
        self.state = None


class Stacked(Stateless):
    """The library's own container calls connection and neuron."""

    def run(self, x):
        library = importlib.import_module("norse.torch")
        z, self.state = library.SequentialState(self.connection, self.neuron)(x, self.state)
        return z


def competing(neuron, **options):
    return Competition(neuron, OUTPUTS, theta_plus=0.0, **options)


def jelly(neuron, mode="m", connection=None):
    net = Net(neuron, time_dim=0 if mode == "m" else None, connection=connection)
    importlib.import_module(f"{JELLY}.functional").set_step_mode(net, mode)
    return net.train()  # its neurons share a surrogate with others


def own_linear(library):
    layer = importlib.import_module(f"{JELLY}.layer")
    return jelly(library.LIFNode(tau=2.0), connection=layer.Linear(INPUTS, OUTPUTS, bias=False))


LIBRARIES = {
    "norse.torch": [
        lambda norse: Stateless(competing(norse.LIFCell()), 8.0),
        lambda norse: Stateless(competing(norse.LIF(), time_dim=0), 8.0, time_dim=0),
        lambda norse: Stateless(norse.LIFCell(), 2.0),
        lambda norse: Stateless(norse.LIFBoxCell(), 3.0),
        lambda norse: Stacked(norse.LIFCell(), 2.0),
        lambda norse: Stateless(norse.LIF(), 2.0, time_dim=0),
    ],
    "snntorch": [
        lambda snntorch: Net(snntorch.Leaky(beta=0.9), 0.6),
        lambda snntorch: Net(snntorch.Leaky(0.9, init_hidden=True, reset_mechanism="zero"), 0.6),
        lambda snntorch: Net(snntorch.Synaptic(alpha=0.5, beta=0.8, threshold=2.0), 0.6),
        lambda snntorch: Net(competing(snntorch.Leaky(beta=0.9)), 0.6),
    ],
    f"{JELLY}.neuron": [
        lambda neurons: jelly(competing(neurons.LIFNode(tau=2.0), time_dim=0)),
        lambda neurons: jelly(neurons.LIFNode(tau=2.0), mode="s"),
        lambda neurons: jelly(neurons.LIFNode(tau=2.0)),
        lambda neurons: jelly(neurons.IFNode(v_threshold=2.5, v_reset=None)),
        lambda neurons: jelly(neurons.ParametricLIFNode(init_tau=2.0)),
        own_linear,
    ],
}


@pytest.fixture(params=[(name, i) for name, nets in LIBRARIES.items() for i in range(len(nets))])
def net(request):
    name, i = request.param
    return LIBRARIES[name][i](pytest.importorskip(name, reason=f"{name} cannot be imported"))


def rule(net):
    stdp = RuleTrainer(STDP(LR_POST, LR_PRE, TC_POST, TC_PRE), time_dim=net.time_dim)
    stdp.register_cell("cell", Cell(net.connection, net.neuron))
    return stdp


def test_learns_pairs_of_spikes(net):
    stdp, before, seen = rule(net), net.connection.weight.detach().clone(), []
    for pre in raster(4, batch=2 * BATCH + 1).split(BATCH, 1):  # and the last batch is of one
        net.rest()
        seen.append((pre, net(pre).detach()))
        stdp(carry=False)
        stdp.update()
    assert torch.cat([post.flatten() for _, post in seen]).unique().tolist() == [0.0, 1.0]
    expected = sum(pairs(pre, post) for pre, post in seen)
    assert expected.abs().max() > 1e-3  # the neurons spike, and neither side cancels the other
    found = net.connection.weight.detach() - before
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_graded_spikes_are_told_from_spikes():
    snntorch = pytest.importorskip("snntorch")
    net = Net(snntorch.Leaky(beta=0.9, graded_spikes_factor=0.5), gain=0.6)
    stdp = rule(net)  # whose monitors look on
    with pytest.raises(ValueError, match=r"should be 0 or 1\. Found 0\.5"):
        net(torch.ones_like(raster(0)))
    assert stdp.recording


def test_a_learner_of_snntorch_on_the_same_layer_sees_each_call_once():
    learning = pytest.importorskip("snntorch.functional.stdp_learner")
    changes = []
    for beside in (False, True):
        torch.manual_seed(0)
        fc, fired = torch.nn.Linear(6, 3, bias=False), torch.nn.Identity()
        learner = learning.STDPLearner(fc, fired, tau_pre=20.0, tau_post=20.0)
        own = RuleTrainer(STDP(0.1, -0.1))
        if beside:
            own.register_cell("enc", Cell(fc, fired))
        for _ in range(3):
            with torch.no_grad():
                fc((torch.rand(4, 6) < 0.5).float())
                fired((torch.rand(4, 3) < 0.5).float())
            if beside:
                own()  # the first call checks the connection
        changes.append(learner.step(on_grad=False))
    torch.testing.assert_close(*changes)


# -------------------------------------------------------------------------------- e-prop
DECAY = 0.9
TC_MEM = -1 / math.log(DECAY)


def second(out):
    return out[1]


def state_v(out):
    return out[1].v


def node(library):
    return library.LIFNode(
        tau=1 / (1 - DECAY), decay_input=False, v_reset=None, store_v_seq=True, step_mode="m"
    )


# A library's module, a net with its neuron, the largest weight, and where the potential is found.
MEMBRANES = {
    "snnTorch": ("snntorch", lambda library: Net(library.Leaky(beta=DECAY)), 0.4, second),
    "Norse": ("norse.torch", lambda library: Stateless(library.LIFBoxCell()), 1.2, state_v),
    "SpikingJelly": (f"{JELLY}.neuron", lambda library: jelly(node(library), "s"), 0.4, "v"),
    "its sequences": (f"{JELLY}.neuron", lambda library: jelly(node(library)), 0.4, "v_seq"),
}


@pytest.mark.filterwarnings("ignore:.*before the reset:UserWarning")  # Norse and SpikingJelly
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("surrogate", [None, FastSigmoid(3.0)], ids=str)
@pytest.mark.parametrize("name", MEMBRANES)
def test_it_is_the_loop_over_what_was_returned(name, surrogate, calls):
    torch.manual_seed(0)
    library, make, most, membrane = MEMBRANES[name]
    net, seen = make(pytest.importorskip(library, reason=f"{library} cannot be imported")), []
    fc, neuron = net.connection, net.neuron
    nn.init.uniform_(fc.weight, -most / 4, most)
    rule = RuleTrainer(EProp(
        0.2, tc_mem=TC_MEM, tc_readout=12.0, surrogate=surrogate,
        membrane=membrane, threshold=1.0), time_dim=net.time_dim)  # fmt: skip
    rule.register_cell("cell", Cell(fc, neuron))

    def see(_, given, out):
        found = membrane(out) if callable(membrane) else getattr(neuron, membrane)
        shape = STEPS // calls if net.time_dim == 0 else 1, BATCH, OUTPUTS
        spikes = out[0] if isinstance(out, tuple) else out
        seen.append([each.detach().reshape(shape) for each in (spikes, found)])

    neuron.register_forward_hook(see)
    pre, errors = raster(0), torch.randn(STEPS, BATCH, OUTPUTS).double()
    for x, error in zip(pre.chunk(calls), errors.chunk(calls), strict=True):
        net(x)
        rule(error=error)
    spikes, potential = map(torch.cat, zip(*seen, strict=True))
    assert 0.02 < spikes.mean() < 0.98
    psi = (surrogate or Triangular()).derivative(potential - 1.0)
    constants = (math.exp(-1 / 12.0), 0.0, 0.0)
    expected = -0.2 * eprop(errors, psi, low_pass(pre, TC_MEM), *constants)[0].mean(0)
    assert expected.abs().max() > 1e-2
    weight = get_updater(fc).weight
    torch.testing.assert_close(weight.update(fc.weight), expected, rtol=0, atol=1e-10)


def test_the_last_potential_of_a_sequence_is_not_that_of_every_step():
    library = pytest.importorskip("norse.torch", reason="Norse is not installed")
    fc, neuron = nn.Linear(INPUTS, OUTPUTS), library.LIF()
    rule = RuleTrainer(EProp(0.2, tc_mem=TC_MEM, membrane=state_v, threshold=1.0), time_dim=0)
    rule.register_cell("cell", Cell(fc, neuron))
    neuron(fc(raster(0).float()))
    with pytest.raises(ValueError, match=r"Signal `membrane` of cell `cell` should be recorded as"):
        rule(error=torch.ones(BATCH, OUTPUTS))
    assert get_updater(fc).weight.empty


def test_snntorchs_beta_is_not_taken_for_an_adaptation():
    library = pytest.importorskip("snntorch", reason="snnTorch is not installed")
    rule = RuleTrainer(EProp(0.2, tc_mem=TC_MEM, membrane=second, threshold=1.0))
    unit = rule.register_cell("cell", Cell(nn.Linear(INPUTS, OUTPUTS), library.Leaky(beta=DECAY)))
    assert unit.state.rule.beta is None

"""E-prop with the neurons of other libraries equals a loop over what they returned."""

import math

import pytest
import torch
from eprop_reference import eprop, low_pass
from test_foreign import BATCH, INPUTS, JELLY, OUTPUTS, STEPS, Net, Stateless, jelly, raster
from torch import nn

from lightning_accum import Cell, EProp, RuleTrainer, get_updater
from lightning_accum.functional import FastSigmoid, Triangular

DECAY = 0.9
TC_MEM = -1 / math.log(DECAY)
CLOSE = {"rtol": 0.0, "atol": 1e-10}


def second(out):
    return out[1]


def state_v(out):
    return out[1].v


def node(library):
    return library.LIFNode(
        tau=1 / (1 - DECAY), decay_input=False, v_reset=None, store_v_seq=True, step_mode="m"
    )


# A library's module, a net with its neuron, the largest weight, and where the potential is found.
LIBRARIES = {
    "snnTorch": ("snntorch", lambda library: Net(library.Leaky(beta=DECAY)), 0.4, second),
    "Norse": ("norse.torch", lambda library: Stateless(library.LIFBoxCell()), 1.2, state_v),
    "SpikingJelly": (f"{JELLY}.neuron", lambda library: jelly(node(library), "s"), 0.4, "v"),
    "its sequences": (f"{JELLY}.neuron", lambda library: jelly(node(library)), 0.4, "v_seq"),
}


@pytest.mark.filterwarnings("ignore:.*before the reset:UserWarning")  # Norse and SpikingJelly
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("surrogate", [None, FastSigmoid(3.0)], ids=str)
@pytest.mark.parametrize("name", LIBRARIES)
def test_it_is_the_loop_over_what_was_returned(name, surrogate, calls):
    torch.manual_seed(0)
    library, make, most, membrane = LIBRARIES[name]
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
    torch.testing.assert_close(weight.update(fc.weight), expected, **CLOSE)


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

"""E-prop with the neurons of other libraries equals a loop over what they returned."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from eprop_reference import eprop
from test_foreign import BATCH, INPUTS, OUTPUTS, STEPS, raster
from torch import nn

from lightning_accum import Cell, EProp, get_updater
from lightning_accum.functional import FastSigmoid, Triangular

DECAY = 0.9
TC_MEM = -1 / math.log(DECAY)
CLOSE = {"rtol": 0.0, "atol": 1e-10}


def second(out):
    return out[1]


def state_v(out):
    return out[1].v


class Leaky:
    """Of snnTorch, which gives `(spk, mem)`."""

    time_dim, options = None, {"membrane": second, "threshold": 1.0}

    def __init__(self):
        library = pytest.importorskip("snntorch", reason="snnTorch is not installed")
        self.neuron = library.Leaky(beta=DECAY)

    def run(self, currents):
        spikes, membrane = zip(*(self.neuron(now) for now in currents), strict=True)
        return torch.stack(spikes), torch.stack(membrane)


class Box:
    """Of Norse, which gives `(z, state)`."""

    time_dim, options = None, {"membrane": state_v, "threshold": 1.0}

    def __init__(self):
        library = pytest.importorskip("norse.torch", reason="Norse is not installed")
        self.neuron, self.state = library.LIFBoxCell(), None

    def run(self, currents):
        rows = []
        for now in currents:
            z, self.state = self.neuron(3.0 * now, self.state)
            rows.append((z, self.state.v))
        spikes, membrane = zip(*rows, strict=True)
        return torch.stack(spikes), torch.stack(membrane)


class Node:
    """Of SpikingJelly, which keeps its potential as `v`."""

    time_dim: int | None = None
    options: dict[str, Any] = {"membrane": "v", "threshold": 1.0}  # noqa: RUF012
    mode: dict[str, Any] = {"step_mode": "s"}  # noqa: RUF012

    def __init__(self):
        library = pytest.importorskip(
            "spikingjelly.activation_based.neuron", reason="SpikingJelly is not installed"
        )
        self.neuron = library.LIFNode(tau=1 / (1 - DECAY), decay_input=False, v_reset=None)
        for name, value in self.mode.items():
            setattr(self.neuron, name, value)

    def run(self, currents):
        rows = [(self.neuron(now), self.neuron.v) for now in currents]
        spikes, membrane = zip(*rows, strict=True)
        return torch.stack(spikes), torch.stack(membrane)


class NodeOfSequences(Node):
    """Of SpikingJelly, which keeps the potential of every step as `v_seq`."""

    time_dim = 0
    options = {"membrane": "v_seq", "threshold": 1.0}  # noqa: RUF012
    mode = {"step_mode": "m", "store_v_seq": True}  # noqa: RUF012

    def run(self, currents):
        return self.neuron(currents), self.neuron.v_seq


@pytest.mark.filterwarnings("ignore:.*before the reset:UserWarning")  # Norse and SpikingJelly
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("surrogate", [None, FastSigmoid(3.0)], ids=str)
@pytest.mark.parametrize("library", [Leaky, Box, Node, NodeOfSequences])
def test_it_is_the_loop_over_what_was_returned(library, surrogate, calls):
    torch.manual_seed(0)
    layer, fc = library(), nn.Linear(INPUTS, OUTPUTS, bias=False).double()
    nn.init.uniform_(fc.weight, -0.1, 0.4)
    rule = EProp(
        0.2, tc_mem=TC_MEM, tc_readout=12.0, surrogate=surrogate, time_dim=layer.time_dim,
        **layer.options,
    )  # fmt: skip
    rule.register_cell("cell", Cell(fc, layer.neuron))
    pre, errors = raster(0), torch.randn(STEPS, BATCH, OUTPUTS).double()
    seen = []
    for x, error in zip(pre.chunk(calls), errors.chunk(calls), strict=True):
        currents = fc(x) if layer.time_dim == 0 else map(fc, x)
        seen.append([each.detach() for each in layer.run(currents)])
        rule(error=error)
    spikes, membrane = map(torch.cat, zip(*seen, strict=True))
    assert 0.02 < spikes.mean() < 0.98
    psi = (surrogate or Triangular()).derivative(membrane - 1.0)
    low_pass = [pre[0]]
    for now in pre[1:]:
        low_pass.append(DECAY * low_pass[-1] + now)
    constants = (math.exp(-1 / 12.0), 0.0, 0.0)
    expected = -0.2 * eprop(errors, psi, torch.stack(low_pass), *constants)[0].mean(0)
    assert expected.abs().max() > 1e-2
    weight = get_updater(fc).weight
    torch.testing.assert_close(weight.update(fc.weight), expected, **CLOSE)


def test_the_last_potential_of_a_sequence_is_not_that_of_every_step():
    library = pytest.importorskip("norse.torch", reason="Norse is not installed")
    fc, neuron = nn.Linear(INPUTS, OUTPUTS), library.LIF()
    rule = EProp(0.2, tc_mem=TC_MEM, membrane=state_v, threshold=1.0, time_dim=0)
    rule.register_cell("cell", Cell(fc, neuron))
    neuron(fc(raster(0).float()))
    with pytest.raises(ValueError, match=r"Signal `membrane` of cell `cell` should be recorded as"):
        rule(error=torch.ones(BATCH, OUTPUTS))
    assert get_updater(fc).weight.empty


def test_snntorchs_beta_is_not_taken_for_an_adaptation():
    layer, fc = Leaky(), nn.Linear(INPUTS, OUTPUTS)
    rule = EProp(0.2, tc_mem=TC_MEM, **layer.options)
    unit = rule.register_cell("cell", Cell(fc, layer.neuron))
    assert unit.state.hyperparameters.beta is None

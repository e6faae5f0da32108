"""Rules with an error: equal to loops over synapses, and to autograd where they should be."""

import math

import pytest
import references
import torch
from clamped_layers import raster
from eprop_reference import eprop, low_pass
from rule_trainers import trainer_of
from subtests import turns
from test_error_rules import change
from torch import nn
from torch.nn import functional as F

import lightning_accum as la
from lightning_accum import Cell
from lightning_accum._training_events import SILENT
from lightning_accum.engine import summation_forms as forms
from lightning_accum.engine import window_changes as run_module
from lightning_accum.functional import ArcTan, FastSigmoid, Surrogate, Triangular
from lightning_accum.nn import LeakyIntegrator, SurrogateLIF
from lightning_accum.rules import RandomFeedback, SymmetricFeedback, _eprop_windows
from lightning_accum.sparse import eprop as folds
from lightning_accum.sparse.kernel_library import has_kernel

exact = {"rtol": 0.0, "atol": 1e-10}
CPU = torch.device("cpu")
STEPS, BATCH, INPUTS, NEURONS, CLASSES = 30, 3, 6, 5, 4


class Network(nn.Module):
    """A hidden layer of spiking neurons, and a leaky readout."""

    def __init__(self, **options):
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(INPUTS, NEURONS)
        self.lif = SurrogateLIF(NEURONS, tc_mem=15.0, time_dim=0, **options)
        self.readout = nn.Linear(NEURONS, CLASSES)
        self.leak = LeakyIntegrator(CLASSES, tc_mem=12.0, time_dim=0)
        self.double()

    def forward(self, x):
        return self.leak(self.readout(self.lif(self.fc(x))))


X = raster(STEPS, BATCH, INPUTS, density=0.6)
TARGET = torch.tensor([0, 2, 3])
ADAPTIVE = {"beta": 0.4, "tc_adaptation": 40.0}


def error_of(y):
    """The gradient of the cross entropy of each step, summed over steps."""
    return (y.softmax(-1) - F.one_hot(TARGET, CLASSES)).detach()


@pytest.mark.parametrize(
    ("neuron", "surrogate"),
    [({}, Triangular()), (ADAPTIVE, FastSigmoid(3.0)), (ADAPTIVE, ArcTan())], ids=str,
)  # fmt: skip
def test_in_one_hidden_layer_it_is_backpropagation_through_time(neuron, surrogate):
    net = Network(gradient="time", surrogate=surrogate, **neuron)
    options = {"batch_reduction": "sum", "params": ("weight", "bias"), "time_dim": 0}
    hidden = trainer_of(la.EProp, 1.0, SymmetricFeedback(net.readout), tc_readout=12.0, **options)
    hidden.register_cell("hidden", Cell(net.fc, net.lif))
    output = trainer_of(la.DeltaRule, 1.0, **options)
    output.register_cell("output", Cell(net.readout, net.leak))
    y = net(X)
    loss = F.cross_entropy(y.flatten(0, 1), TARGET.repeat(STEPS), reduction="sum")
    loss.backward()
    for rule in (hidden, output):
        rule(error=error_of(y))
    assert net.lif.membrane is not None
    assert (net.lif.membrane >= net.lif.threshold).any()
    for module in (net.fc, net.readout):
        for name in ("weight", "bias"):
            gradient = getattr(module, name).grad
            assert gradient.abs().max() > 0.1
            torch.testing.assert_close(change(module, name), -gradient, rtol=1e-8, atol=1e-8)


class Doubled(RandomFeedback):
    """Feedback that is more than a product with weights."""

    def forward(self, error):
        return 2 * super().forward(error)


@pytest.mark.parametrize("way", ["auto", "plain", "events", "events of pieces"])
@pytest.mark.parametrize("calls", [1, 5, STEPS])
@pytest.mark.parametrize("feedback_of", [RandomFeedback, Doubled])
@turns("neuron, tc_readout", [({}, None), ({}, 9.0), (ADAPTIVE, None), (ADAPTIVE, 9.0)])
def test_it_is_the_sum_over_synapses_however_a_sequence_is_cut_and_folded(
    neuron, tc_readout, feedback_of, calls, way, monkeypatch
):
    net, feedback = Network(recurrent=True, **neuron), feedback_of(CLASSES, NEURONS)
    net.lif.recurrent.weight.data.mul_(2.0)
    params = ("weight",) if way.startswith("events") else ("weight", "bias")
    if way.startswith("events"):  # of which signals are folded as they are summed
        for name, value in {"_FEWEST_ROWS": 0, "_SMALL": 0, "_PRODUCT": torch.inf}.items():
            monkeypatch.setattr(forms, name, value)
        monkeypatch.setattr(folds, "_BLOCK", 30)
        if way == "events of pieces":
            monkeypatch.setattr(run_module, "_PIECE_ELEMENTS", 300)
        if calls == 1 and feedback_of is RandomFeedback and has_kernel(CPU, torch.float64):
            monkeypatch.setattr(_eprop_windows, "fold_in_blocks", None)  # no memory for the signal
    rule = la.RuleTrainer(
        la.EProp(0.3, feedback, tc_readout=tc_readout, regularization=0.2), batch_reduction="sum",
        time_dim=0, carry=calls > 1, backend="plain" if way == "plain" else "auto",
    )  # fmt: skip
    rule.register_cell("hidden", Cell(net.fc, net.lif), params=params)
    rule.register_cell("recurrent", Cell(net.lif.recurrent, net.lif))
    errors = torch.randn(STEPS, BATCH, CLASSES, generator=torch.Generator().manual_seed(1)).double()
    seen, held = [], []
    for x, error in zip(X.chunk(calls), errors.chunk(calls), strict=True):
        spikes = net.lif(net.fc(x))
        seen.append((spikes, net.lif.membrane, net.lif.threshold))
        held.append((0.2 * (spikes.mean((0, 1)) - 0.01)).expand_as(spikes))
        rule(error=error)
    spikes, membrane, threshold = map(torch.cat, zip(*seen, strict=True))
    psi = net.lif.surrogate.derivative(membrane - threshold)
    signal = errors @ feedback.matrix().double() * (2.0 if feedback_of is Doubled else 1.0)
    kappa = 0.0 if tc_readout is None else math.exp(-1 / tc_readout)
    before = torch.cat([torch.zeros_like(spikes[:1]), spikes[:-1]])
    assert before.any()
    for module, name, pre in (
        (net.fc, "weight", X), (net.lif.recurrent, "weight", before),
        *[(net.fc, "bias", torch.ones(STEPS, BATCH, 1).double())] * (len(params) - 1),
    ):  # fmt: skip
        eps, adaptation = low_pass(pre, 15.0), (neuron.get("beta", 0.0), math.exp(-1 / 40.0))
        expected = eprop(signal, psi, eps, kappa, *adaptation)[0]
        expected += eprop(torch.cat(held), psi, eps, 0.0, *adaptation)[0]
        expected = -0.3 * expected.sum(0).squeeze(-1)
        torch.testing.assert_close(change(module, name), expected, **exact)


def test_the_form_of_a_sequence_and_of_an_error_makes_no_difference():
    found, error = [], torch.arange(BATCH * CLASSES).double().view(BATCH, CLASSES)
    for time_dim, shape in ((0, error.shape), (None, error.shape), (0, (STEPS, *error.shape))):
        net = Network(**ADAPTIVE)
        net.lif.time_dim = time_dim
        rule = la.RuleTrainer(la.EProp(1.0, SymmetricFeedback(net.readout)), time_dim=time_dim)
        rule.register_cell("hidden", Cell(net.fc, net.lif))
        for x in [X] if time_dim == 0 else X:
            net.lif(net.fc(x))
        rule(error=error.expand(shape))
        found.append(change(net.fc, "weight"))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], **exact)


@pytest.mark.parametrize("neuron", [{}, ADAPTIVE])
@pytest.mark.parametrize(("calls", "elements"), [(1, 1 << 23), (6, 1 << 23), (STEPS, 99), (1, 999)])
def test_rules_with_a_gradient_are_their_papers_sums_however_a_sequence_is_cut(
    calls, elements, neuron, monkeypatch
):
    monkeypatch.setattr(run_module, "_PIECE_ELEMENTS", elements)
    net = Network(gradient="step", **neuron)
    options = {"time_dim": 0, "params": ("weight", "bias"), "carry": calls > 1}
    otpe = trainer_of(la.OTTT, 0.7, tc_next=12.0, **options)
    stllr = trainer_of(
        la.STLLR, 0.5, -0.3, tc_post=2.0, tc_pre=5.0, surrogate=FastSigmoid(9.0), **options
    )
    found, seen = [], []
    for rule in (otpe, stllr):
        seen.clear()
        net.lif.reset(), net.leak.reset()
        rule.register_cell("hidden", Cell(net.fc, net.lif))
        for x in X.chunk(calls):
            spikes = net.lif(net.fc(x))
            spikes.retain_grad()
            y = net.leak(net.readout(spikes))
            F.cross_entropy(y.flatten(0, 1), TARGET.repeat(len(x)), reduction="sum").backward()
            seen.append((spikes.grad, net.lif.membrane - net.lif.threshold))
            rule()
        found.append({name: change(net.fc, name) for name in ("weight", "bias")})
        rule.update(), net.fc.load_state_dict(Network(**neuron).fc.state_dict())
    gradient, above = map(torch.cat, zip(*seen, strict=True))
    for name, pre in (("weight", X), ("bias", torch.ones(STEPS, BATCH, 1).double())):
        psi = Triangular().derivative(above)
        low = low_pass(pre, 15.0)
        summed = [
            -0.7 * eprop(gradient, psi, low, math.exp(-1 / 12.0), 0.0, 0.0)[0],
            -references.stllr(
                gradient, FastSigmoid(9.0).derivative(above), pre, (0.5, -0.3),
                (math.exp(-1 / 5.0), math.exp(-1 / 2.0)),
            ),
        ]  # fmt: skip
        for changes, expected in zip(found, summed, strict=True):
            expected = expected.sum(0).reshape(changes[name].shape)
            assert expected.abs().max() > 0.1
            torch.testing.assert_close(changes[name], expected, **exact)


class Counting(Surrogate):
    """A surrogate that counts how many pseudo-derivatives it is asked for."""

    seen = 0

    def derivative(self, x):
        type(self).seen += x.numel()
        return Triangular().derivative(x)


def test_cells_of_one_neuron_fold_a_window_once():
    Counting.seen = 0
    net = Network(recurrent=True, surrogate=Counting())
    rule = la.RuleTrainer(la.EProp(0.3, RandomFeedback(CLASSES, NEURONS)), time_dim=0, carry=False)
    rule.register_cell("hidden", Cell(net.fc, net.lif))
    rule.register_cell("recurrent", Cell(net.lif.recurrent, net.lif))
    rule.events = SILENT  # which would look at the pseudo-derivative, too
    net(X)
    rule(error=torch.ones(BATCH, CLASSES).double())
    assert Counting.seen == STEPS * BATCH * NEURONS
    rule.register_cell("other", Cell(net.fc, net.lif), tc_readout=5.0)
    rule.events = SILENT
    net(X)
    rule(error=torch.ones(BATCH, CLASSES).double())
    assert Counting.seen == 3 * STEPS * BATCH * NEURONS


def test_only_a_threshold_that_changes_is_recorded():
    for options, recorded in (({}, False), (ADAPTIVE, True)):
        net = Network(gradient="step", **options)
        for rule in (la.EProp(1.0), la.OTTT(1.0)):
            trainer = la.RuleTrainer(rule, time_dim=0)
            unit = trainer.register_cell("hidden", Cell(net.fc, net.lif))
            assert ("threshold" in unit.monitors) == recorded
            assert "membrane" in unit.monitors

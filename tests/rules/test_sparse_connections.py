"""Every rule on synapses equals the rule on a dense layer whose other weights stay zero."""

from collections.abc import Callable

import pytest
import torch
from rasters import Fed, raster
from references import PAIR, RULES
from torch import nn
from turns import turns

import lightning_accum as la
from lightning_accum.nn import LeakyIntegrator, Rewire, SparseLinear, SurrogateLIF
from lightning_accum.rules import RandomFeedback

exact = {"rtol": 1e-9, "atol": 1e-10}
STEPS, BATCH, INPUTS, NEURONS, CLASSES = 7, 3, 9, 5, 2
MASK = raster(NEURONS, INPUTS, density=0.4, seed=7).bool()

Make = Callable[..., la.Rule]


def spiking(time_dim):
    return SurrogateLIF(NEURONS, tc_mem=5.0, beta=0.3, gradient="step", time_dim=time_dim)


def leaky(time_dim):
    return LeakyIntegrator(NEURONS, time_dim=time_dim)


def eprop(**options):
    feedback = RandomFeedback(CLASSES, NEURONS)
    torch.manual_seed(5)
    feedback.double().weight.normal_()
    return la.EProp(0.3, feedback, tc_readout=6.0, regularization=0.2, **options)


THREE = {
    "Clopath": (lambda **o: la.Clopath(0.3, -0.1, -0.1, 0.2, u_ref=0.5, **o), spiking, 0),
    "DeltaRule": (lambda **o: la.DeltaRule(0.3, **o), leaky, NEURONS),
    "EProp": (eprop, spiking, CLASSES),
    "OTTT": (lambda **o: la.OTTT(0.3, **o), spiking, 0),
}


def inputs_of(rewarded, classes, steps):
    torch.manual_seed(steps)
    if classes:
        return {"error": torch.randn(steps, BATCH, classes).double()}
    return {"reward": torch.randn(steps, BATCH).double()} if rewarded else {}


def connections():
    torch.manual_seed(2)
    dense = nn.Linear(INPUTS, NEURONS).double()
    sparse = SparseLinear(INPUTS, NEURONS, indices=MASK.nonzero().T).double()
    with torch.no_grad():
        dense.weight.abs_().add_(0.2).mul_(MASK)
        sparse.weight.copy_(dense.weight.T[MASK.T])
        sparse.bias.copy_(dense.bias)
    return dense, sparse


def trained(connection, neuron, rule, given, pre, post):
    """The weights as a matrix, after windows of 4 and 3 steps, each of which is applied."""
    unit = rule.register_cell("cell", la.Cell(connection, neuron))
    updater = unit.cell.updater
    if isinstance(connection, nn.Linear):
        updater.register_constraint(lambda w: w.mul_(MASK), "weight")
    updater.register_constraint(la.Normalize(3.0, order=2), "weight")
    updater.register_constraint(la.Clamp(-2.0, 2.5), "weight")
    updater.weight.fullbound("power", 4.0, -4.0, power=1.0)
    time_dim = rule.time_dim
    for x, y, values in zip(pre.split(4), post.split(4), given, strict=True):
        for xs, ys in [(x, y)] if time_dim == 0 else zip(x, y, strict=True):
            if isinstance(neuron, Fed):
                neuron.food.append(ys)
            out = neuron(connection(xs))
            if isinstance(rule, la.OTTT):
                out.square().sum().backward()
        rule(**values)
        rule.update()
    assert connection.bias.isfinite().all()
    weight = connection.weight if isinstance(connection, nn.Linear) else connection.dense()
    return torch.cat((weight.detach(), connection.bias.detach()[:, None]), 1)


@turns("time_dim", [None, 0])
@turns("backend", ["auto", "plain"])
@turns("reduction", ["mean", "amax"])
@pytest.mark.parametrize("name", [*RULES, *THREE])
def test_equals_a_masked_dense_layer(name, time_dim, backend, reduction):
    pre = raster(STEPS, BATCH, INPUTS, density=0.15, seed=1)  # few enough to be visited
    post = raster(STEPS, BATCH, NEURONS, density=0.4, seed=2)
    case = RULES.get(name)
    if case is not None and not case.spikes:
        pre, post = (0.3 * torch.randn(each.shape).double() for each in (pre, post))
    make, neuron, classes = THREE.get(name, (None, None, 0))
    rewarded = case is not None and case.rewarded
    given = [inputs_of(rewarded, classes, steps) for steps in (4, 3)]
    found = []
    for connection in connections():
        options = {"batch_reduction": reduction, "backend": backend, "params": ("weight", "bias")}
        if name == "Clopath":
            options["params"] = ("weight",)
        rule = (make or case.make)(time_dim=time_dim, **options)
        cell = Fed() if neuron is None else neuron(time_dim).double()
        found.append(trained(connection, cell, rule, given, pre, post))
        rule.del_cell("cell")
    torch.testing.assert_close(found[1], found[0], **exact)
    start = connections()[0].weight
    assert not torch.allclose(found[1][:, :-1][MASK], start[MASK], rtol=1e-3)


@turns("make, words", [
    (lambda: la.Sanger(0.1), "should be the weight of a torch.nn.Linear"),
    (lambda: la.STDP(**PAIR, trace_mode="nearest", pairing="reduced"), "a matrix .out, in."),
])  # fmt: skip
def test_rules_that_are_no_sums_of_outer_products_are_refused(make, words):
    rule, neuron, (_, sparse) = make(), Fed(), connections()

    def learn():
        rule.register_cell("cell", la.Cell(sparse, neuron))
        neuron.food.append(raster(BATCH, NEURONS))
        neuron(sparse(raster(BATCH, INPUTS)))
        rule()

    with pytest.raises(ValueError, match=words):
        learn()


@turns("inputs, outputs", [(0, 3), (4, 0), (0, 0), (1, 1)])
@turns("density", [0.3, 1.0])
def test_layers_without_inputs_or_neurons(inputs, outputs, density):
    sparse, neuron = SparseLinear(inputs, outputs, density), Fed()
    rule = la.STDP(**PAIR, params=("weight", "bias"))
    rule.register_cell("cell", la.Cell(sparse, neuron))
    for _ in range(2):
        neuron.food.append(torch.ones(2, outputs))
        neuron(sparse(torch.ones(2, inputs)))
        rule()
        rule.update()
    Rewire(0.5)(sparse)
    sparse.load_state_dict(sparse.state_dict())
    assert sparse.weight.isfinite().all()
    assert sparse.dense().shape == (outputs, inputs)

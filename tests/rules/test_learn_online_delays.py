"""Synapses with delays of their own: the loop, calls step by step, and a naive loop."""

import copy
import math

import pytest
import torch
from rule_trainers import trainer_of
from test_learn_online import step_by_step
from test_learn_online_populations import ENDS, HIGH, LOW, SIZES, currents, network

import lightning_accum as la
from lightning_accum.nn import LIF, SparseLinear
from lightning_accum.rules import learn_online, why_step_by_step
from lightning_accum.sparse.kernel_library import library


def delayed():
    """A network without delays, and one with delays in ms of all synapses, in steps of 0.5 ms."""
    torch.manual_seed(3)
    plain = network(1, dt=0.5)
    delays = {}
    for ends in ENDS:
        synapses = len(plain.cell(*ends).connection.weight)
        delays[ends] = 0.5 * torch.randint(1, 6, (synapses,)).double()
    connections = {ends: copy.deepcopy(plain.cell(*ends).connection) for ends in ENDS}
    neurons = {name: copy.deepcopy(neuron) for name, neuron in plain.neurons.items()}
    return plain, delays, la.Populations(neurons, connections, delays)


def learner_of(made):
    rule = trainer_of(la.STDP, lr_post=0.05, lr_pre=-0.04, tc_pre=10.0, dt=0.5)
    for ends in (ends for ends in made.delays if ends[:2] == ("E", "E")):
        cell = made.cell(*ends)
        rule.register_cell(f"after {ends[2]}", cell)
        cell.updater.register_constraint(la.Clamp(LOW, HIGH))
    return rule


def naive(plain, delays, inputs):
    """Spikes, and the weights [out, in] from E to E, by dense matrices of weights and delays."""
    neurons = copy.deepcopy(plain.neurons)
    weight, steps = {}, {}
    for ends in ENDS:
        connection = copy.deepcopy(plain.cell(*ends).connection)
        weight[ends] = connection.dense()
        connection.weight.copy_(delays[ends] / 0.5)
        steps[ends] = connection.dense()
    there = weight["E", "E"] != 0
    x, y = torch.zeros_like(weight["E", "E"]), torch.zeros(SIZES["E"]).double()
    a, b = math.exp(-0.5 / 10.0), math.exp(-0.5 / 20.0)
    spikes = {name: [] for name in SIZES}
    for t, row in enumerate(inputs[:, 0]):
        now = dict(zip(SIZES, row.split(list(SIZES.values())), strict=True))
        arriving = {}
        for ends in ENDS:
            arriving[ends] = torch.zeros_like(weight[ends])
            for d in (d for d in range(1, 6) if d <= t):
                arriving[ends] += (steps[ends] == d) * spikes[ends[0]][t - d]
            now[ends[1]] = now[ends[1]] + (weight[ends] * arriving[ends]).sum(1)
        for name, each in neurons.items():
            spikes[name].append(each(now[name][None])[0])
        pre, post = arriving["E", "E"], spikes["E"][t]
        x, y = a * x + pre, b * y + post
        change = 0.05 * post[:, None] * x - 0.04 * y[:, None] * pre
        weight["E", "E"] = ((weight["E", "E"] + change).clamp(LOW, HIGH)) * there
    return torch.cat([torch.stack(spikes[name]) for name in SIZES], 1), weight["E", "E"]


def test_the_loop_equals_a_naive_one_and_calls_step_by_step():
    plain, delays, made = delayed()
    other, x = copy.deepcopy(made), currents(200)
    expected, weight = naive(plain, delays, x)
    rule = learner_of(made)
    if library(torch.float64):
        assert why_step_by_step(rule, made, x) is None
    assert torch.equal(learn_online(rule, made, x)[:, 0], expected)
    assert torch.equal(step_by_step(learner_of(other), other, x)[:, 0], expected)
    assert expected.mean() > 0.05
    for each in (made, other):
        parts = [each.cell(*ends).connection for ends in each.delays if ends[:2] == ("E", "E")]
        assert len(parts) == 5
        found = sum(part.dense() for part in parts)
        torch.testing.assert_close(found, weight, rtol=1e-11, atol=1e-13)
    inside = (weight > LOW) & (weight < HIGH)
    assert 0 < inside.sum() < (weight != 0).sum()


def test_delays_in_ms_are_steps_of_the_neurons():
    connections = {("E", "E"): SparseLinear(4, 4, 0.5, bias=False)}
    made = la.Populations({"E": LIF(4, dt=0.1)}, connections, {("E", "E"): 1.5})
    assert made.delays == {("E", "E"): 15}
    assert made.longest == 15
    small = torch.tensor([1, 2, 2, 3, 3, 3, 1, 2], dtype=torch.uint8)  # ms
    own = la.Populations({"E": LIF(4, dt=0.5)}, connections, {("E", "E"): small})
    assert own.delays == {("E", "E", 2): 2, ("E", "E", 4): 4, ("E", "E", 6): 6}
    sizes = [len(own.cell(*ends).connection.weight) for ends in own.delays]
    assert sizes == [2, 3, 3]
    assert own.cell("E", "E", 4).connection is own.connections["E_to_E_after_4"]
    with pytest.raises(AttributeError, match=r"\('E', 'E', 4\)"):
        own.cell("E", "E")

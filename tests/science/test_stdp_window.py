"""The windows that the example measures through the rules are those of the equations."""

from __future__ import annotations

import math

import pytest
import stdp_window as science
import torch
from torch import nn

from lightning_accum import Cell


@pytest.mark.parametrize("name", science.RULES)
def test_measured_equals_closed_form(name):
    for spikes in science.PROTOCOLS.values():
        for path in ("auto", "plain"):
            curve = science.window(name, spikes, backend=path)
            assert curve.error < 1e-12, (spikes, path)
            assert curve.delta.tolist() == list(range(80, -81, -1))
            assert curve.measured.max() > 0.003
            assert curve.measured.min() < -0.003


@pytest.mark.parametrize("name", science.RULES)
def test_the_step_makes_no_difference(name):
    whole = science.window(name, (2, 1))
    at = {delta: i for i, delta in enumerate(whole.delta.tolist())}
    for dt in (0.5, 2.0):
        other = science.window(name, (2, 1), dt)
        assert other.error < 1e-12
        both = [(at[delta], i) for i, delta in enumerate(other.delta.tolist()) if delta in at]
        here, there = map(list, zip(*both, strict=True))
        assert len(both) > 80
        torch.testing.assert_close(whole.measured[here], other.measured[there], rtol=0, atol=1e-12)


def test_values_by_hand():
    def at(name, spikes, delta):
        curve = science.window(name, spikes)
        return curve.measured[curve.delta == delta].item()

    e = math.exp
    for name in (
        "pairs, cumulative",
        "pairs, nearest",
        "triplets, cumulative",
        "triplets, nearest",
    ):
        assert at(name, (1, 1), 17) == pytest.approx(0.010 / math.e, abs=1e-12)
        assert at(name, (1, 1), -34) == pytest.approx(-0.006 / math.e, abs=1e-12)
        assert at(name, (1, 1), 0) == pytest.approx(0.004, abs=1e-12)
    # before two postsynaptic spikes, 10 and 40 ms later
    pairs = 0.010 * (e(-10 / 17) + e(-40 / 17))
    triplet = 0.012 * e(-40 / 17) * e(-30 / 40)
    assert at("pairs, nearest", (1, 2), 10) == pytest.approx(pairs, abs=1e-12)
    assert at("triplets, nearest", (1, 2), 10) == pytest.approx(pairs + triplet, abs=1e-12)
    # after two postsynaptic spikes, 40 and 10 ms ago
    assert at("pairs, nearest", (1, 2), -40) == pytest.approx(-0.006 * e(-10 / 34), abs=1e-12)
    both = -0.006 * (e(-40 / 34) + e(-10 / 34))
    assert at("pairs, cumulative", (1, 2), -40) == pytest.approx(both, abs=1e-12)
    # two presynaptic spikes, 20 ms before and 10 ms after a postsynaptic one
    pairs = 0.010 * e(-20 / 17) - 0.006 * e(-10 / 34)
    triplet = -0.005 * e(-10 / 34) * e(-30 / 100)
    assert at("triplets, nearest", (2, 1), -10) == pytest.approx(pairs + triplet, abs=1e-12)
    assert at("kernel, a hat", (1, 1), 0) == pytest.approx(0.010, abs=1e-12)
    assert at("kernel, a hat", (1, 1), 15) == at("kernel, a hat", (1, 1), -15) == 0


def test_triplets_and_choices_of_pairs_vanish_for_an_isolated_pair_alone():
    alone = science.window("pairs, nearest", (1, 1)).measured
    for name in ("pairs, cumulative", "triplets, nearest", "triplets, cumulative"):
        torch.testing.assert_close(science.window(name, (1, 1)).measured, alone, rtol=0, atol=1e-12)
    for spikes in ((1, 2), (2, 1)):
        found = [science.window(name, spikes).measured for name in list(science.RULES)[:4]]
        for i, one in enumerate(found):
            assert all((one - other).abs().max() > 1e-3 for other in found[:i])


def test_step_by_step_is_the_same():
    seen = science.protocol(2, 1, dt=1.0)
    for name, (make, closed_form) in science.RULES.items():
        connection = nn.Linear(seen.pre.shape[1], 1, bias=False, dtype=torch.float64)
        nn.init.zeros_(connection.weight)
        neuron = science.Told(torch.zeros(1, 1))
        rule = make(time_dim=None)
        rule.register_cell("synapses", Cell(connection, neuron))
        for pre, post in zip(seen.pre.double(), seen.post.double(), strict=True):
            neuron.spikes = post.reshape(1, 1)
            neuron(connection(pre[None]))
            rule()
        rule.update()
        apart = (connection.weight.detach()[0] - closed_form(seen)).abs().max()
        assert apart < 1e-12, name

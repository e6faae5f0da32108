"""Triplet STDP follows the experiment within the paper's error, and pair STDP does not."""

from __future__ import annotations

import math

import pytest
import triplet_frequency as science


def by_events(rule, period, lead):
    """The paper's equations, from spike to spike, at times that need no step."""
    h = rule.defaults
    events = [(k * period, "pre") for k in range(60)]
    events = sorted(events + [(k * period + lead, "post") for k in range(60)])
    r1 = r2 = o1 = o2 = change = last = 0.0
    for time, side in events:
        since, last = time - last, time
        r1, r2 = r1 * math.exp(-since / h.tc_pre_fast), r2 * math.exp(-since / h.tc_pre_slow)
        o1, o2 = o1 * math.exp(-since / h.tc_post_fast), o2 * math.exp(-since / h.tc_post_slow)
        if side == "pre":
            change += o1 * (h.lr_pre_pair + h.lr_pre_triplet * r2)
            r1, r2 = (1.0, 1.0) if h.trace_mode == "nearest" else (r1 + 1, r2 + 1)
        else:
            change += r1 * (h.lr_post_pair + h.lr_post_triplet * o2)
            o1, o2 = (1.0, 1.0) if h.trace_mode == "nearest" else (o1 + 1, o2 + 1)
    return change


@pytest.mark.parametrize("name", science.MODELS)
def test_follows_the_experiment_with_the_papers_error(name):
    found = science.curves(science.MODELS[name])
    # to what the two digits leave open in which the experiment's errors of 0.05 and more are given
    assert science.error(found) == pytest.approx(science.REPORTED[name], abs=0.02)
    assert science.deviations(found).abs().max() < 1.5
    # the order of spikes decides at low frequencies alone
    causal, acausal = found
    assert (causal.diff() > 0).all()
    assert causal[0].abs() < 1e-6  # 0.1 Hz: next to no triplets
    assert (acausal[:3] < -0.2).all()
    assert (acausal[3:] > 0.1).all()
    assert acausal[4] > 0.6


@pytest.mark.parametrize("name", science.MODELS)
def test_equals_the_equations_from_spike_to_spike(name):
    make = science.MODELS[name]
    for period in (200, *science.PERIODS[1:]):
        expected = [by_events(make(), period, lead) for lead in (10, -10)]
        assert science.changes(make, period).tolist() == pytest.approx(expected, abs=1e-12), period


@pytest.mark.parametrize("mode", ["cumulative", "nearest"])
def test_no_amplitudes_of_pair_rules_do(mode):
    left, *amplitudes, plus, minus = science.best_pair_rule(mode, [(16.8, 33.7)])
    assert left > 7  # twenty times the triplet rules'
    best = science.curves(science.pairs(mode, *amplitudes, plus, minus))
    assert science.error(best) == pytest.approx(left)
    assert best[0, 4] < best[0, 0]  # potentiation does not grow with the frequency
    # the best there is: a little more or less of either amplitude is worse
    sides = [science.of_one_side(mode, *side) for side in (("plus", plus), ("minus", minus))]
    for factors in ((0.99, 1), (1.01, 1), (1, 0.99), (1, 1.01)):
        parts = [f * a * side for f, a, side in zip(factors, amplitudes, sides, strict=True)]
        assert science.error(sum(parts)) > left


@pytest.mark.parametrize("name", ["all-to-all, full", "nearest, full"])
def test_the_step_makes_no_difference(name):
    for period in science.PERIODS[2:]:
        found = [science.changes(science.MODELS[name], period, dt) for dt in (None, 5.0, 1.0, 0.5)]
        assert max((one - found[0]).abs().max() for one in found) < 1e-12, period

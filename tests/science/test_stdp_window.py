"""The windows that the example measures through the rules are those of the equations."""

import pytest
import stdp_window as science
import torch


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


def test_triplets_and_choices_of_pairs_vanish_for_an_isolated_pair_alone():
    alone = science.window("pairs, nearest", (1, 1)).measured
    for name in ("pairs, cumulative", "triplets, nearest", "triplets, cumulative"):
        torch.testing.assert_close(science.window(name, (1, 1)).measured, alone, rtol=0, atol=1e-12)
    for spikes in ((1, 2), (2, 1)):
        found = [science.window(name, spikes).measured for name in list(science.RULES)[:4]]
        for i, one in enumerate(found):
            assert all((one - other).abs().max() > 1e-3 for other in found[:i])

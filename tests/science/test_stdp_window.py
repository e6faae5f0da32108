"""The windows that the example measures through the rules are those of the equations."""

import pytest
import stdp_window as science
import torch


@pytest.mark.parametrize("name", science.RULES)
def test_measured_equals_closed_form(name):
    for spikes in science.PROTOCOLS.values():
        for options in ({}, {"backend": "plain"}, {"dt": 0.5}, {"dt": 2.0}):
            curve = science.window(name, spikes, **options)
            assert curve.error < 1e-12, (spikes, options)
            assert curve.delta[0] == -curve.delta[-1] == 80
            assert curve.measured.max() > 0.003
            assert curve.measured.min() < -0.003


def test_triplets_and_choices_of_pairs_vanish_for_an_isolated_pair_alone():
    alone = science.window("pairs, nearest", (1, 1)).measured
    for name in ("pairs, cumulative", "triplets, nearest", "triplets, cumulative"):
        torch.testing.assert_close(science.window(name, (1, 1)).measured, alone, rtol=0, atol=1e-12)
    for spikes in ((1, 2), (2, 1)):
        found = [science.window(name, spikes).measured for name in list(science.RULES)[:4]]
        for i, one in enumerate(found):
            assert all((one - other).abs().max() > 1e-3 for other in found[:i])

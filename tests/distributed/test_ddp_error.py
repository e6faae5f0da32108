"""Several processes learn from an error what one learns, and resume to the bit."""

import pytest
import torch
from ddp_error_run import FEEDBACK, Deep, Model
from values import differences

SCRIPT, RANKS = "ddp_error_run.py", (1, 2)

LEARNED = ("fc.weight", "fc.bias", "lif.recurrent.weight", "readout.weight")


@pytest.mark.parametrize("feedback", FEEDBACK)
def test_two_processes_learn_what_one_does(found, feedback):
    alone = found[1][0][feedback]["alike"]
    one, two = (mine[feedback]["alike"] for mine in found[2])
    before = Model(reset=True).state_dict()
    for name in LEARNED:
        assert torch.equal(one[name], two[name])
        assert (alone[name] - before[name]).abs().max() > 1e-3
        torch.testing.assert_close(alone[name], one[name], rtol=1e-9, atol=1e-11)


def test_ottt_follows_the_gradient_of_the_mean_over_all_samples(found):
    alone, one, two = (mine["OTTT"] for mine in (found[1][0], *found[2]))
    before = Deep().state_dict()
    for name in ("fcs.0.weight", "fcs.0.bias", "fcs.1.weight", "head.weight"):
        assert torch.equal(one[name], two[name])
        assert (alone[name] - before[name]).abs().max() > 1e-3
        torch.testing.assert_close(alone[name], one[name], rtol=1e-9, atol=1e-11)


def test_each_feedback_taught_something_else(found):
    weights = {float(found[1][0][name]["alike"]["fc.weight"].sum()) for name in FEEDBACK}
    assert len(weights) == len(FEEDBACK)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("feedback", FEEDBACK)
def test_a_fit_that_stops_ends_with_every_bit(found, feedback, ranks):
    for mine in found[ranks]:
        whole, resumed = (mine[feedback][name] for name in ("whole", "resumed"))
        assert differences(whole, resumed) == []
        assert "eligibility" in str(whole)  # it was carried
        assert ("feedback.weight" in str(whole)) == (feedback != "symmetric")

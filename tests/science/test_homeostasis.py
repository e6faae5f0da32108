"""Neurons find their target rate from both sides, and the rule's sign is right."""

import homeostasis as science
import pytest

HALF = science.NEURONS // 2


def rates(params, seconds=20.0, **options):
    """The rates of all neurons in each phase."""
    return science.phases(science.run(seconds, params, **options).rates)


def test_without_it_rates_are_wrong_on_both_sides():
    found = rates(None)["before"]
    assert found[:HALF].max() < 2
    assert found[HALF:].min() > 50


@pytest.mark.parametrize("params", ["bias", "weight"])
def test_reaches_the_target_from_both_sides(params):
    found = rates(params)
    assert found["first"][:HALF].max() < 5
    assert found["first"][HALF:].min() > 50
    for phase in ("before", "end"):
        assert (found[phase] - science.TARGET).abs().max() < 5  # each neuron
        assert found[phase].mean() == pytest.approx(science.TARGET, abs=2)
    assert found["doubled"].min() > 1.5 * science.TARGET  # and from there it returned


def test_another_target():
    for target in (10.0, 60.0):
        assert rates("bias", target=target)["before"].mean() == pytest.approx(target, rel=0.1)


def test_the_other_sign_runs_away():
    found = rates("bias", 10.0, lr=-5e-4)["before"]
    assert found[:HALF].max() == 0
    assert found[HALF:].min() > 150

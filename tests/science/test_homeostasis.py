"""Neurons find their target rate from both sides, and the rule's sign is right."""

import homeostasis as science
import pytest

HALF = science.NEURONS // 2
MOVES = ["bias", "weight"]


@pytest.fixture(scope="module")
def courses():
    return {params: science.run(20.0, params) for params in [*MOVES, None]}


def test_without_it_rates_are_wrong_on_both_sides(courses):
    rates = science.phases(courses[None].rates)["before"]
    assert rates[:HALF].max() < 2
    assert rates[HALF:].min() > 50


@pytest.mark.parametrize("params", MOVES)
def test_reaches_the_target_from_both_sides(courses, params):
    found = science.phases(courses[params].rates)
    assert found["first"][:HALF].max() < 5
    assert found["first"][HALF:].min() > 50
    for phase in ("before", "end"):
        assert (found[phase] - science.TARGET).abs().max() < 5  # each neuron
        assert found[phase].mean() == pytest.approx(science.TARGET, abs=2)
    assert found["doubled"].min() > 1.5 * science.TARGET  # and from there it returned


def test_another_target():
    for target in (10.0, 60.0):
        rates = science.phases(science.run(20.0, "bias", target=target).rates)["before"]
        assert rates.mean() == pytest.approx(target, rel=0.1)


def test_the_other_sign_runs_away():
    rates = science.phases(science.run(10.0, "bias", lr=-5e-4).rates)["before"]
    assert rates[:HALF].max() == 0
    assert rates[HALF:].min() > 150

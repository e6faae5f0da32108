"""Neurons find their target rate from both sides, and the rule's sign is right."""

from __future__ import annotations

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


@pytest.mark.parametrize("params", MOVES)
def test_a_rate_too_high_lowers_the_drive_and_one_too_low_raises_it(courses, params):
    rates, moved = courses[params]
    half = len(rates) // 2
    change = moved.diff(dim=0)
    # row k of `change` is what window k + 1 did; the parameter stands still within it
    apart = rates[1:] - science.TARGET
    high, low = apart > 1, apart < -1
    if params == "bias":  # each spike takes as much, whatever the input
        assert (change[high] < 0).all()
        assert (change[low] > 0).all()
    assert (change[:4, :HALF] > 0).all()
    assert (change[:4, HALF:] < 0).all()
    assert (change[half - 1] < 0).all()  # the first window of the doubled input
    lr, seconds = 5e-4, science.WINDOW / 1000
    error = change[4:, :HALF] - lr * seconds * (science.TARGET - rates[5:, :HALF])
    assert error.abs().max() < 1e-6


def test_another_target():
    for target in (10.0, 60.0):
        rates = science.phases(science.run(20.0, "bias", target=target).rates)["before"]
        assert rates.mean() == pytest.approx(target, rel=0.1)


def test_the_other_sign_runs_away():
    rates = science.phases(science.run(10.0, "bias", lr=-5e-4).rates)["before"]
    assert rates[:HALF].max() == 0
    assert rates[HALF:].min() > 150

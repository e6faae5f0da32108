"""Accumulators used by mistake: what they would lose."""

import pytest
import torch

from lightning_accum.accumulators import CustomAccumulator, Except, Max, Mean, Source, Variance


class Returning(CustomAccumulator):
    """Returns what it should keep."""

    def __init__(self):
        super().__init__()
        self.reset()

    def forward(self, data):
        return self.data + data

    def calculate(self):
        return self.data

    def reset(self):
        self.data = 0.0


def test_forward_that_returns_the_sum():
    with pytest.raises(TypeError, match=r"`Returning.forward` should add to `self.data`"):
        Returning().update(1.0)


def test_except_of_a_class():
    with pytest.raises(TypeError, match=r"such as `Mean\(\)`"):
        Except(Mean, begin=1)


class Total(CustomAccumulator):
    """Adds up, and does one of the verbs wrongly."""

    def __init__(self, wrong=""):
        super().__init__()
        self.data = 0.0
        self.count, self.wrong = 0, wrong

    def forward(self, value):
        self.data = self.data + value
        if self.wrong == "forward":
            self.count += 1

    def calculate(self):
        return None if self.wrong == "calculate" else self.data

    def reset(self):
        if self.wrong != "reset":
            self.data = 0.0


@pytest.mark.parametrize(
    ("wrong", "verb", "should"),
    [("calculate", "compute", "return the result"), ("reset", "reset", "assign the initial value")],
)
def test_a_verb_that_does_nothing(wrong, verb, should):
    total = Total(wrong)
    total.update(1.0)
    with pytest.raises(TypeError, match=rf"`Total.{wrong}` should {should}"):
        getattr(total, verb)()


def test_state_that_is_not_saved_is_told_once():
    total = Total("forward")
    with pytest.warns(UserWarning, match=r"Found that `forward` changes `self.count`"):
        total.update(1.0)
    total.update(2.0)  # says it no more
    assert total.compute() == 3.0
    total.reset()
    total.update(1.0)


def test_an_accumulator_in_two_pipes():
    mean, found = Mean(), []
    source = Source()
    source**mean**found.append
    source**mean**found.append
    with pytest.warns(UserWarning, match="Found the same `Mean` in two pipes"):
        source(1.0)
    source = Source()
    first = source ** Mean()
    first**found.append
    first ** Max() ** found.append  # a fork
    source.run([1.0])


def test_the_variance_of_one_value():
    variance = Variance()
    variance(torch.ones(3))  # so far
    with pytest.warns(UserWarning, match=r"Found 1, of shape \(3,\), so that the result is nan"):
        assert variance.compute().isnan().all()
    variance.update(torch.zeros(3))
    assert variance.compute().tolist() == [0.5] * 3
    biased = Variance(correction=0)
    biased.update(1.0)
    assert biased.compute() == 0

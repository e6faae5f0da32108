"""Accumulators of one's own, other packages' metrics, and values of any kind."""

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
import torch
from streams import Product
from torchmetrics import SumMetric
from torchmetrics.classification import BinaryAccuracy

from lightning_accum import accumulators as acc


class Plain:
    """The same verbs, of no class of this package."""

    data = 0

    def forward(self, data):
        self.data += data

    def calculate(self):
        return self.data

    def reset(self):
        self.data = 0


def test_a_pipe_takes_accumulators_of_ones_own():
    assert (acc.Select(value=0) ** Product()).run([(2.0,), (5.0,)]) == 10.0
    assert acc.Pipe(Plain(), lambda total: total + 1).run([1, 2, 3]) == 7
    # One that comes later counts iterations.
    late = acc.Sum() ** Plain()
    assert [late.run([1, 2]), late.run([10])] == [3, 13]


def test_a_state_dict_holds_what_an_object_has_seen():
    pipe, fresh = acc.Pipe(Plain()), acc.Pipe(Plain())
    pipe(1)
    pipe(2)
    fresh.load_state_dict(pipe.state_dict())
    assert fresh.run([4]) == 7


def test_verbs_that_lack_are_named():
    with pytest.raises(TypeError, match=r"`Half` should define `forward\(data\)`.*`reset\(\)`"):

        class Half(acc.CustomAccumulator):
            def forward(self, data):
                self.data += data

    with pytest.raises(TypeError, match=r"`Nothing` should define `forward.*Found \[\]"):

        class Nothing(acc.CustomAccumulator):
            pass


def test_a_subclass_may_redefine_one_verb():
    class Negative(Product):
        def calculate(self):
            return -self.data

    assert [float(Negative()(value)) for value in (2.0, 5.0)] == [-2.0, -5.0]
    assert (acc.Select(value=0) ** Negative()).run([(2.0,), (5.0,)]) == -10.0


class Total(acc.CustomAccumulator):
    """Adds up, and does one of the verbs wrongly."""

    def __init__(self, wrong=""):
        super().__init__()
        self.data = 0.0
        self.count, self.wrong = 0, wrong

    def forward(self, value):
        self.data = self.data + value
        if self.wrong == "elsewhere":
            self.count += 1
        return self.data if self.wrong == "forward" else None

    def calculate(self):
        return None if self.wrong == "calculate" else self.data

    def reset(self):
        if self.wrong != "reset":
            self.data = 0.0


@pytest.mark.parametrize(
    ("wrong", "should"),
    [
        ("forward", "add to `self.data`"),
        ("calculate", "return the result"),
        ("reset", "assign the initial value"),
    ],
)
def test_a_verb_that_does_it_wrongly(wrong, should):
    total = Total(wrong)
    with pytest.raises(TypeError, match=rf"`Total.{wrong}` should {should}"):
        total(1.0), total.reset()


def test_state_that_is_not_saved_is_told_once():
    total = Total("elsewhere")
    with pytest.warns(UserWarning, match=r"Found that `forward` changes `self.count`"):
        total.update(1.0)
    total.update(2.0)  # says it no more
    assert total.compute() == 3.0
    total.reset()
    total.update(1.0)


def test_what_cannot_be_combined_says_so():
    first, second = Product(), Product()
    with pytest.raises(TypeError, match="`Product` should define how the states"):
        first.merge_state(second)


@pytest.mark.parametrize("make", [SumMetric, Product, Plain, acc.Sum])
def test_except_takes_any_accumulator_and_any_metric(make):
    total = acc.Except(make(), begin=2)
    so_far = [float(total(value)) for value in (2.0, 3.0, 100.0, 4.0)]
    expected = [2.0, 6.0, 6.0, 24.0] if make is Product else [2.0, 5.0, 5.0, 9.0]
    assert so_far == expected
    assert float(total.compute()) == expected[-1]
    fresh = acc.Except(make(), begin=2)
    if make is not SumMetric:  # torchmetrics saves what it is told to
        fresh.load_state_dict(total.state_dict())
        assert float(fresh.compute()) == expected[-1]
    total.update(1.0)
    total.update(100.0)
    assert float(total.compute()) == expected[-1] + (make is not Product)
    total.reset()
    assert float(total(7.0)) == 7.0


def test_except_of_a_metric_merges_and_takes_several_arguments():
    first, second = acc.Except(SumMetric(), begin=1), acc.Except(SumMetric(), begin=1)
    for value in (1.0, 9.0, 2.0):
        first.update(value)
        second.update(2 * value)
    first.merge_state(second)
    assert first.compute() == 9.0
    pipe = acc.Select(target=1, preds=0) ** acc.Except(BinaryAccuracy(), begin=1)
    right, wrong = (torch.ones(2), torch.ones(2)), (torch.ones(2), torch.zeros(2))
    assert pipe.run([right, wrong, right]) == 1.0


# ---------------------------------------------------------------------------- values of any kind
ADDABLE = {
    "fractions": [Fraction(1, 3), Fraction(1, 6), 1],
    "decimals": [Decimal("0.1"), Decimal("0.2"), 3],
    "durations": [timedelta(seconds=1), timedelta(seconds=5)],
}


@pytest.mark.parametrize("values", ADDABLE.values(), ids=ADDABLE)
def test_whatever_can_be_added_is_summed_and_averaged(values):
    total, mean, parts = acc.Sum(), acc.Mean(), [acc.Sum(), acc.Sum()]
    for i, value in enumerate(values):
        total.update(value)
        mean.update(value)
        parts[i % 2].update(value)
    expected = sum(values[1:], start=values[0])
    assert total.compute() == expected
    assert mean.compute() == expected / len(values)
    parts[0].merge_state(parts[1])
    assert parts[0].compute() == expected
    weighed = acc.Mean()
    weighed.update(values[0], weight=3)
    weighed.update(values[1])
    assert weighed.compute() == (3 * values[0] + values[1]) / 4
    fresh = acc.Sum()
    fresh.load_state_dict(total.state_dict())
    fresh.to("cpu")
    assert fresh.compute() == expected
    total.reset()
    assert total(1.5) == 1.5


def test_kinds_that_cannot_be_added_are_refused_and_change_nothing():
    total, exact = acc.Sum(), acc.Sum()
    total.update(1.0)
    exact.update(Fraction(1, 2))
    for accumulator, wrong in ((total, Fraction(1, 2)), (exact, torch.ones(2)), (exact, "text")):
        with pytest.raises(TypeError, match="`value` should be of a type that can be added"):
            accumulator.update(wrong)
    assert (total.compute(), exact.compute()) == (1.0, Fraction(1, 2))
    for wrong in ("text", None, {"a": 1}, ["a"], object()):
        with pytest.raises(TypeError, match="`value` should be a tensor or a number"):
            acc.Sum().update(wrong)


# ---------------------------------------------------------------------------- results
# ---------------------------------------------------------------------------- counts
@pytest.mark.parametrize("make", [acc.List, lambda: acc.Window(9)])
def test_values_that_came_in_from_elsewhere_are_counted(make):
    whole, other, fresh = make(), make(), make()
    for value in (1.0, 2.0, 3.0):
        whole.update(value)
    other.update(4.0)
    other.merge_state(whole)
    fresh.load_state_dict(whole.state_dict())
    assert (other.update_count, fresh.update_count) == (4, 3)
    # What was seen does not shrink with what is kept.
    short = acc.Window(1)
    for value in (1.0, 2.0, 3.0):
        short.update(value)
    short.load_state_dict(short.state_dict())
    assert short.update_count == 3


def test_data_may_begin_as_the_class_has_it():
    class Kept(acc.CustomAccumulator):
        data = [1.0]  # noqa: RUF012

        def forward(self, data):
            self.data.append(data)

        def calculate(self):
            return self.data

        def reset(self):
            self.data = [1.0]

    first, second = Kept(), Kept()
    assert first(2.0) == [1.0, 2.0]
    assert second(3.0) == [1.0, 3.0]
    assert Kept.data == [1.0]

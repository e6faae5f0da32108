"""Accumulators of one's own, other packages' metrics, values of any kind, and exceptions."""

import copy
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
import torch
from accumulator_cases import Product
from hypothesis import given
from hypothesis import strategies as st
from subtests import turns
from torch import nn
from torchmetrics import MetricCollection, SumMetric
from torchmetrics.classification import BinaryAccuracy

from lightning_accum import accumulators as acc
from lightning_accum.accumulators import Except, List, Mean, Sum


class Plain(acc.CustomAccumulator):
    """The same verbs, without a constructor."""

    data = 0

    def forward(self, data):
        self.data += data

    def calculate(self):
        return self.data

    def reset(self):
        self.data = 0


def test_a_collection_passes_only_its_keywords_to_a_copy_too():
    product = copy.deepcopy(Product())
    MetricCollection([product, SumMetric()], compute_groups=False).update(value=3.0, data=2.0)
    assert product.calculate() == 2.0


def test_a_pipe_takes_accumulators_of_ones_own_whose_state_it_saves():
    assert (acc.Select(value=0) ** Product()).run([(2.0,), (5.0,)]) == 10.0
    assert acc.Pipe(Plain(), lambda total: total + 1).run([1, 2, 3]) == 7
    # One that comes later counts iterations.
    late = acc.Sum() ** Plain()
    assert [late.run([1, 2]), late.run([10])] == [3, 13]
    pipe, fresh = acc.Pipe(Plain()), acc.Pipe(Plain())
    pipe(1)
    pipe(2)
    fresh.load_state_dict(pipe.state_dict())
    assert fresh.run([4]) == 7


@turns("verbs, words", [
    ({"forward": Plain.forward}, r"`forward\(data\)`.*`reset\(\)`"),
    ({}, r"`forward.*Found \[\]"),
])  # fmt: skip
def test_verbs_that_lack_are_named(verbs, words):
    with pytest.raises(TypeError, match=f"`Half` should define {words}"):
        type("Half", (acc.CustomAccumulator,), verbs)


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


@turns(
    "wrong, should",
    [("forward", "add to `self.data`"), ("calculate", "return the result"),
     ("reset", "assign the initial value")],
)  # fmt: skip
def test_a_verb_that_does_it_wrongly(wrong, should):
    total = Total(wrong)
    with pytest.raises(TypeError, match=rf"`Total.{wrong}` should {should}"):
        total(1.0), total.reset()


def test_state_that_is_not_saved_is_told_once_and_cannot_be_combined():
    total = Total("elsewhere")
    with pytest.warns(UserWarning, match=r"Found that `forward` changes `self.count`"):
        total.update(1.0)
    total.update(2.0)  # says it no more
    assert total.compute() == 3.0
    total.reset()
    total.update(1.0)
    with pytest.raises(TypeError, match="`Product` should define how the states"):
        Product().merge_state(Product())


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


# ---------------------------------------------------------------------------- exceptions
def kept(count, inner=List, **where):
    values = Except(inner(), **where)
    for i in range(count):
        values.update(i)
    return values.compute()


@turns("where, expected", [
    ({"begin": 2}, [0, 1, 3, 4, 6, 7]),
    ({"begin": 1, "end": 2}, [0, 3, 6]),
    ({"end": 1, "period": 3}, [2, 5, 8]),
    ({"begin": torch.tensor([[1], [2]], dtype=torch.int8)}, [0, 3, 6]),
    ({"inner": lambda: Except(List(), begin=0, period=2), "begin": 2}, [1, 4, 7]),
    ({"begin": 10**9, "end": 10**12}, [*range(9)]),  # which costs nothing
])  # fmt: skip
def test_which_items_are_left_out(where, expected):
    assert kept(9, **where) == expected


@given(
    ranges=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)).map(sorted), min_size=1),
    extra=st.integers(0, 3),
    count=st.integers(0, 25),
)
def test_it_is_the_formula(ranges, extra, count):
    begin, end = (torch.tensor(part) for part in zip(*ranges, strict=True))
    period = int(end.max()) + 1 + extra
    out = {p for b, e in ranges for p in range(b, e + 1)}
    if out >= set(range(period)):
        with pytest.raises(ValueError, match="should leave at least one position"):
            kept(count, begin=begin, end=end, period=period)
    else:
        expected = [i for i in range(count) if i % period not in out]
        assert kept(count, begin=begin, end=end, period=period) == expected
        if not extra:
            assert kept(count, begin=begin, end=end) == expected


@pytest.mark.parametrize("make", [Sum, SumMetric])
def test_it_merges_what_was_passed_on(make):
    first, second = Except(make(), begin=2), Except(make(), begin=2)
    for loss in [10.0, 20.0, 1.0, 30.0, 40.0, 2.0, 50.0]:
        first.update(loss)
        second.update(2 * loss)
    if make is Sum:  # torchmetrics would return its cached result
        first.compute()
    first.merge_state(second)
    assert first.compute() == 3 * 150.0
    first.update(0.0)
    first.update(1000.0)
    assert first.compute() == 3 * 150.0


@turns("where, match", [
    ({}, r"should not both be missing.*as in `begin=2`"),
    ({"begin": 0}, r"leave at least one position.*such as `period=2`"),
    ({"begin": 0, "end": 1}, r"leave at least one position.*such as `period=3`"),
    ({"end": 4}, r"leave at least one position.*such as `period=6`"),
    ({"begin": 0, "period": 0}, "leave at least one position"),
    ({"begin": 2, "end": 1}, r"`begin` should not be larger than `end`.*from 2 to 1"),
    ({"begin": torch.tensor([1, 2]), "end": torch.tensor([3])}, r"shape.*\(2,\) and \(1,\)"),
    ({"begin": torch.tensor([1, 2]), "end": 3}, r"same shape.*\(2,\) and \(\)"),
    ({"begin": torch.tensor([], dtype=torch.long)}, "at least one element"),
    ({"begin": 1.0}, r"`begin` should be a non-negative integer.*`begin = 1.0`"),
    ({"begin": True}, "`begin` should be a non-negative integer"),
    ({"begin": -1}, "`begin` should be a non-negative integer"),
    ({"begin": 1, "end": 1.5}, "`end` should be a non-negative integer"),
    ({"begin": 1, "period": 2.5}, "`period` should be a non-negative integer"),
    ({"begin": torch.tensor([1.0])}, r"or a tensor of them.*= 1.0`.*with `begin.long\(\)`"),
])  # fmt: skip
def test_ranges_that_mean_nothing_are_refused(where, match):
    with pytest.raises(ValueError, match=f"(?s){match}"):
        Except(Mean(), **where)


@pytest.mark.parametrize(
    ("wrong", "found"), [(nn.ReLU(), "`ReLU`"), (sum, "`"), (None, "`"), (Mean, "the class `Mean`")]
)
def test_only_an_accumulator_is_wrapped(wrong, found):
    match = rf"should be an accumulator, such as `Mean\(\)`.* Found {found}"
    with pytest.raises(TypeError, match=match):
        Except(wrong, begin=2)

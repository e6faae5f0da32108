import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from turns import turns

from lightning_accum.accumulators import Except, List, Mean, Sum


def kept(count, **where):
    values = Except(List(), **where)
    for i in range(count):
        values.update(i)
    return values.compute()


@turns(
    "where, expected",
    [
        ({"begin": 2}, [0, 1, 3, 4, 6, 7]),
        ({"begin": 1, "end": 2}, [0, 3, 6]),
        ({"end": 1, "period": 3}, [2, 5, 8]),
        ({"begin": torch.tensor([[1], [2]], dtype=torch.int8)}, [0, 3, 6]),
    ],
)
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


def test_a_call_returns_the_value_so_far_also_where_the_value_is_left_out():
    total = Except(Sum(), begin=1)
    assert [float(total(value)) for value in (1.0, 100.0, 2.0, 100.0)] == [1.0, 1.0, 3.0, 3.0]
    # Nothing has been passed on yet, and that is no reason for a warning at every step.
    assert Except(Mean(), begin=0, period=2)(5.0).isnan()


def test_of_nothing_passed_on_the_result_is_nan_with_one_warning():
    mean = Except(Mean(), begin=0, period=2)
    mean.update(1.0)
    with pytest.warns(UserWarning, match=r"`Mean.compute` was called before any value") as caught:
        results = [mean.compute(), mean.compute()]
    assert len(caught) == 1
    assert torch.stack(results).isnan().all()


def test_it_merges_what_was_passed_on():
    first, second = Except(Sum(), begin=2), Except(Sum(), begin=2)
    for loss in [10.0, 20.0, 1.0, 30.0, 40.0, 2.0, 50.0]:
        first.update(loss)
        second.update(2 * loss)
    first.compute()
    first.merge_state(second)
    assert first.compute() == 3 * 150.0
    first.update(0.0)
    first.update(1000.0)
    assert first.compute() == 3 * 150.0


def test_exceptions_nest():
    values = Except(Except(List(), begin=0, period=2), begin=2)
    for i in range(9):
        values.update(i)
    passed = [i for i in range(9) if i % 3 != 2]
    assert values.compute() == passed[1::2]


@turns(
    "where, match",
    [
        ({}, r"should not both be missing.*as in `begin=2`"),
        ({"begin": 0}, r"leave at least one position.*such as `period=2`"),
        ({"begin": 0, "end": 1}, r"leave at least one position.*such as `period=3`"),
        ({"end": 4}, r"leave at least one position.*such as `period=6`"),
        ({"begin": 0, "period": 0}, "leave at least one position"),
        ({"begin": 2, "end": 1}, r"`begin` should not be larger than `end`.*from 2 to 1"),
        (
            {"begin": torch.tensor([1, 2]), "end": torch.tensor([3])},
            r"same shape.*\(2,\) and \(1,\)",
        ),
        ({"begin": torch.tensor([1, 2]), "end": 3}, r"same shape.*\(2,\) and \(\)"),
        ({"begin": torch.tensor([], dtype=torch.long)}, "at least one element"),
        ({"begin": 1.0}, r"`begin` should be a non-negative integer.*`begin = 1.0`"),
        ({"begin": True}, "`begin` should be a non-negative integer"),
        ({"begin": -1}, "`begin` should be a non-negative integer"),
        ({"begin": 1, "end": 1.5}, "`end` should be a non-negative integer"),
        ({"begin": 1, "period": 2.5}, "`period` should be a non-negative integer"),
        ({"begin": torch.tensor([1.0])}, r"or a tensor of them.*= 1.0`.*with `begin.long\(\)`"),
    ],
)
def test_ranges_that_mean_nothing_are_refused(where, match):
    with pytest.raises(ValueError, match=f"(?s){match}"):
        Except(Mean(), **where)


@pytest.mark.parametrize("wrong", [nn.ReLU(), sum, None, Mean])
def test_only_an_accumulator_is_wrapped(wrong):
    with pytest.raises(TypeError, match=r"should be an accumulator, such as `Mean\(\)`"):
        Except(wrong, begin=2)


def test_a_long_period_costs_nothing():
    mean = Except(Mean(), begin=10**9, end=10**12)
    for _ in itertools.repeat(None, 3):
        mean.update(1.0)
    assert mean.compute() == 1.0

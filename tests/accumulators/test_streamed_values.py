import copy
import functools
import math
import random

import numpy as np
import pytest
import torch
from accumulator_cases import CASES, MERGED, SHAPES, Case, Product, stacked, stream
from hypothesis import given
from hypothesis import strategies as st
from round_trips import by_file, by_pickle
from subtests import turns
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from lightning_accum.accumulators import EMA, Except, List, Max, Mean, Min, Sum, Variance, Window
from lightning_accum.distributed.world import from_bytes, to_bytes

counts, shapes, seeds = st.integers(1, 9), st.sampled_from(SHAPES), st.integers(0, 99)
STREAMS = {**CASES, "Product": Case(Product, lambda x: x.prod(0))}


class Stream:
    """An accumulator, and the values that it has seen."""

    def __init__(self, name, draw):
        self.name, self.draw, self.accumulator = name, draw, STREAMS[name].make()
        self.hash, self.seed = hash(self.accumulator), draw.randrange(99)
        self.reset()

    def reset(self):
        self.accumulator.reset()
        self.values, self.shape = [], self.draw.choice(SHAPES)
        self.unit = self.draw.choice([1, 1 + 2j][: 1 if self.name in ("Max", "Min") else 2])

    def more(self, count):
        self.seed += 1
        return [value * self.unit for value in stream(count, self.shape, self.seed)]

    def add(self):
        for value in self.more(self.draw.choice([1, 1, 3])):
            given = value.clone().requires_grad_()
            add = self.draw.choice(["__call__", "update", "accumulate"])
            found = getattr(self.accumulator, add)(given)
            given.data.zero_()  # was copied
            self.values.append(value)
            if add == "__call__":
                self.assert_is_result(found)

    def merge(self):
        if self.name in MERGED:
            other, values = STREAMS[self.name].make(), self.more(self.draw.randrange(4))
            for value in values:
                other.update(value)
            other.compute()
            self.accumulator.merge_state(self.draw.choice([other, other.metric_state]))
            self.values += values

    def copy(self):
        original = self.accumulator
        self.accumulator = self.draw.choice([copy.deepcopy, by_pickle, self.loaded])(original)
        original.update(torch.ones(self.shape))  # goes on apart
        self.hash = hash(self.accumulator)
        assert len({self.accumulator, original, self.accumulator}) == 2

    def loaded(self, original):
        """What was there is replaced, and what is cached."""
        other = STREAMS[self.name].make()
        for value in self.more(self.draw.randrange(3)):
            other.update(value)
        other.compute()
        other.load_state_dict(by_file(original.state_dict()))
        return other

    def check(self):
        for compute in (self.accumulator.compute, self.accumulator.calculate):
            self.assert_is_result(compute())
        assert self.accumulator.update_count == len(self.values)
        assert hash(self.accumulator) == self.hash
        states = self.accumulator.metric_state
        assert not any(each.requires_grad for each in tree_leaves(states) if torch.is_tensor(each))

    def assert_is_result(self, found):
        if not self.values:
            empty = {"List": [], "Sum": 0, "Except": 0, "Product": 1}.get(self.name, math.nan)
            assert found == empty or (found != found and empty != empty)
            return
        found, expected = stacked(found), STREAMS[self.name].reference(torch.stack(self.values))
        assert_close(found, expected, rtol=1e-12, atol=1e-12, equal_nan=True)
        found.zero_()  # is the caller's


@pytest.mark.filterwarnings("ignore:`Variance.*should have more than:UserWarning")
@pytest.mark.filterwarnings("ignore:.* before any value was added:UserWarning")
@turns("seed", range(20))
@pytest.mark.parametrize("name", STREAMS)
def test_results_are_those_of_the_stacked_values_whatever_happens_between_them(name, seed):
    run = Stream(name, random.Random(seed))
    for call in run.draw.choices(["add", "merge", "copy", "reset"], [6, 3, 2, 1], k=15):
        print(call)  # which a failure shows
        getattr(run, call)()
        run.check()


@given(count=counts, shape=shapes, seed=seeds, data=st.data())
def test_a_weighted_mean_is_that_of_the_stacked_values(count, shape, seed, data):
    values = stream(count, shape, seed)
    mean, halves, weights = Mean(), [Mean(), Mean()], []
    for i, value in enumerate(values):
        same = (stream(1, shape, seed + i)[0] - 5).abs() + 0.1
        weight = data.draw(st.sampled_from([i + 1, 0.5 * i + 0.1, torch.tensor(i + 1), same]))
        mean.update(value, weight=weight)
        halves[i % 2].update(value, weight)
        weights.append(torch.as_tensor(weight, dtype=torch.float64).expand(shape))
    stacked, weight = torch.stack(values), torch.stack(weights)
    expected = (stacked * weight).sum(0) / weight.sum(0)
    assert_close(mean.compute(), expected, rtol=1e-12, atol=1e-12)
    halves[0].merge_state(halves[1])
    assert_close(halves[0].compute(), expected, rtol=1e-12, atol=1e-12)


def test_a_weight_for_each_element_and_weights_that_sum_to_zero_are_told_once():
    mask, both = torch.tensor([False, True]), torch.ones(2)
    mean = Mean()
    with pytest.warns(UserWarning, match="weights of a `Mean` should sum to more than 0"):
        assert mean(both, weight=0.0).isnan().all()
    assert mean(both, weight=mask.float()).isnan().tolist() == [True, False]
    assert mean(both, weight=1).tolist() == [1.0, 1.0]
    masked = Mean()  # of which one element has no value yet
    assert masked(torch.tensor([1.0, 2.0]), weight=mask).isnan().tolist() == [True, False]
    assert masked(torch.tensor([3.0, 4.0]), weight=both > 0).tolist() == [3.0, 3.0]
    # A scalar counts for three elements, each for its own.
    spread = Mean()
    spread.update(1.0, weight=torch.tensor([1.0, 1.0, 3.0]))
    spread.update(5.0, weight=torch.tensor([1.0, 3.0, 1.0]))
    assert spread.compute().tolist() == [3.0, 4.0, 2.0]
    with pytest.warns(UserWarning, match="should sum to more than 0"):
        assert math.isnan(Mean()(1.0, weight=0))


def test_merged_windows_hold_both_and_merged_averages_are_weighed_by_how_far_they_reach():
    windows, averages = (Window(2), Window(2)), (EMA(0.5), EMA(0.5))
    for pair, values in ((windows, (100.0, 1.0, 2.0)), (averages, (1.0,))):
        for value in values:
            pair[0].update(value)
    for other in (windows[1], *averages[1:] * 2):
        other.update(6.0)
    for first, second in (windows, averages):
        first.merge_state(second)
    assert windows[0].compute() == 3.0
    assert windows[0](8.0) == 7.0  # until the next value
    assert len(windows[0].values) == 2
    assert_close(float(averages[0].compute()), (0.5 * 1 + 0.75 * 6) / 1.25)


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
    few = Variance(correction=2)
    few.update(1.0)
    with pytest.warns(UserWarning, match="should have more than 2 values"):
        assert not few.compute().isfinite()
    few.update(2.0)
    few.update(6.0)
    assert few.compute() == 14.0


@pytest.mark.parametrize("make", [Sum, Mean, Max, Min, Variance, EMA, lambda: Window(3)])
def test_another_shape_is_refused_and_changes_nothing(make):
    accumulator = make()
    accumulator.update(torch.ones(3))
    before = accumulator.metric_state
    for wrong in (torch.ones(3, 1), torch.ones(2), 1.0, torch.ones(())):
        with pytest.raises(ValueError, match=r"`value` should have shape \(3,\).*ragged batches"):
            accumulator.update(wrong)
    assert accumulator.update_count == 1
    for name, value in accumulator.metric_state.items():
        assert_close(value, before[name], equal_nan=True)
    accumulator.reset()
    accumulator.update(torch.ones(2))
    other = make()
    other.update(torch.ones(3))
    if isinstance(accumulator, Window):
        return
    with pytest.raises(ValueError, match=r"one shape in all parts.*\(2,\), \(3,\)"):
        accumulator.merge_state(other)


def test_list_keeps_any_objects_in_order_and_copies_tensors_within_containers():
    values, other, marker = List(), List(), object()
    buffer = torch.ones(2, requires_grad=True)
    for value in (1, "two", (marker, None)):
        values.update(value)
    other.update({"a": (buffer, 1), "b": [buffer * 2]})
    values.merge_state(other)
    with torch.no_grad():
        buffer.zero_()
    *found, kept = values.compute()
    assert found == [1, "two", (marker, None)]
    assert kept["a"][0].tolist() == [1.0, 1.0]
    assert kept["b"][0].grad_fn is None


@turns(
    "make, call, wrong, error, match",
    [
        (Mean, Mean.merge_state, [Sum(), {"total": torch.tensor(1.0)}, 3], ValueError,
         "`incoming_state` should be of class `Mean`"),
        (Mean, lambda mean, weight: mean.update(1.0, weight=weight),
         [2**63, -(2**64), "1", None, 1j, torch.tensor(1j)], TypeError, "`weight` should be"),
        (Max, Max.update, [1j], TypeError, "`value` should be real.*its absolute value"),
        (Mean, lambda _, decay: EMA(decay), [0, 1, -0.5, 1.5, math.nan], ValueError,
         "`decay` should be between 0 and 1"),
        (Mean, lambda _, length: Window(length), [0, -1, 2.0, True, None], ValueError,
         "`length` should be a positive integer"),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(make, call, wrong, error, match):
    for each in wrong:
        accumulator = make()
        with pytest.raises(error, match=match):
            call(accumulator, each)
        assert accumulator.update_count == 0


# ---------------------------------------------------------------------------- dtypes
ELEMENTWISE = [name for name in CASES if name not in ("List", "Except")]


def cast(dtype):
    return lambda number: torch.tensor(number).to(dtype)


SMALL, EXACT = [-1.5, 0.375, 4.0], [0.1, 1 / 3, 16777217.0, -7.25]
KINDS = {  # how numbers are given, which, and the dtype in which they are streamed
    int: ([3, -1, 2**24 + 1, 1_700_000_001, 1_700_000_003, 2**40 + 1], torch.int64),
    bool: ([True, False], torch.int64),
    cast(torch.int8): ([3, -1], torch.int64),
    float: (EXACT, torch.float64),
    np.float32: (EXACT, torch.float32),
    lambda number: np.array(number, dtype=np.float32): (EXACT, torch.float32),
    cast(torch.float16): (SMALL, torch.float32),
    cast(torch.bfloat16): (SMALL, torch.float32),
    cast(torch.float32): (EXACT, torch.float32),
    cast(torch.float64): (EXACT, torch.float64),
    complex: ([0.1 + 2j, 16777217.0 + 0.1j], torch.complex128),
    cast(torch.complex64): ([0.1 + 2j, -1j], torch.complex64),
}
NEAR = {torch.float64: 1e-12, torch.float32: 1e-6, torch.int64: 0.0}


@pytest.mark.filterwarnings("ignore:`Variance.*should have more than:UserWarning")
@turns("seed", range(60))
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_no_value_is_rounded_and_the_widest_dtype_is_kept(name, seed):
    draw, accumulator = random.Random(seed), CASES[name].make()
    kinds = draw.choices(list(KINDS)[: -2 if seed % 2 or name in ("Max", "Min") else None], k=4)
    kinds, values = kinds[: draw.choice([1, 2, 4])], []
    for kind in kinds:
        given = kind(draw.choice(KINDS[kind][0]))
        accumulator.update(given)
        values.append(torch.tensor(complex(given), dtype=torch.complex128))
    print(kinds, values)  # which a failure shows
    dtypes = [KINDS[kind][1] for kind in kinds[-3 if name == "Window" else 0 :]]
    if name not in ("Sum", "Max", "Min"):
        dtypes = [torch.float64 if dtype == torch.int64 else dtype for dtype in dtypes]
    dtype = functools.reduce(torch.promote_types, dtypes)
    exact = torch.stack(values) if dtype.is_complex else torch.stack(values).real
    expected = CASES[name].reference(exact)
    dtype = dtype.to_real() if name.startswith("Variance") else dtype
    found, near = accumulator.compute(), NEAR[dtype.to_real()]
    assert found.dtype == dtype
    assert_close(found, expected.to(dtype), rtol=near, atol=near, equal_nan=True)


@pytest.mark.parametrize("given_as", [int, float, torch.tensor, lambda x: torch.tensor(float(x))])
def test_a_small_weight_is_not_lost_beside_a_large_one(given_as):
    mean = Mean()
    mean.update(torch.tensor(0.0), weight=given_as(2**24))
    for _ in range(4):
        mean.update(torch.tensor(0.0), weight=given_as(1))
    # In float32 the last four would not have been counted.
    assert mean.weight == 2**24 + 4


@turns("values", [*([1.0, v, 2.0] for v in (torch.inf, -torch.inf, torch.nan)), [3e38] * 3])
@turns("name", ["Sum", "Mean", "Max", "Min"])
def test_what_is_not_finite_comes_out_and_a_sum_may_overflow(name, values):
    values = torch.tensor(values)
    accumulator = CASES[name].make()
    for item in values:
        accumulator.update(item)
    expected = CASES[name].reference(values if name == "Sum" else values.double()).float()
    assert_close(accumulator.compute(), expected, equal_nan=True)


@turns(
    "make", [*(CASES[n].make for n in ELEMENTWISE if n != "Sum"), lambda: Except(Mean(), 0, 0, 2)]
)
def test_of_nothing_the_result_is_nan_with_one_warning(make):
    accumulator = make()
    for value in (1.0, 2.0):
        if isinstance(accumulator, Except):  # which has not passed on anything
            assert accumulator(value).isnan()
            accumulator.reset()
            accumulator.update(value)
        with pytest.warns(UserWarning, match="before any value was added") as caught:
            results = [accumulator.compute(), accumulator.compute()]
        assert len(caught) == 1
        assert torch.stack(results).isnan().all()
        accumulator.update(value)
        accumulator.reset()


@pytest.mark.parametrize("name", [name for name in CASES if name != "List"])
def test_update_reads_nothing_on_the_host(name):
    accumulator = CASES[name].make().to("meta")
    for _ in range(4):
        accumulator.update(torch.ones(2, device="meta"))
    assert accumulator.compute().shape == (2,)


@turns("tensor", [
    torch.tensor(1.5), torch.arange(6.0)[::2], torch.arange(6).reshape(2, 3).T,
    torch.tensor([True, False]), torch.ones(2, dtype=torch.bfloat16),
    torch.tensor([1 + 2j, 3j]).conj(), torch.empty(0, 3), torch.ones(2, requires_grad=True),
    torch.tensor([torch.nan, -0.0, torch.inf]),
])  # fmt: skip
def test_a_tensor_travels_as_it_is(tensor):
    for sent in (tensor, {"within": [tensor, "text"]}):
        found = from_bytes(to_bytes(sent))
        found = found if isinstance(sent, torch.Tensor) else found["within"][0]
        assert_close(found, tensor.detach(), rtol=0, atol=0, equal_nan=True)
        assert not found.requires_grad
        found.zero_()  # It may be written to.

"""Streams as long and as uneven as those of a real run: up to 10**9 values."""

from fractions import Fraction

import pytest
import torch
from torch.testing import assert_close

from lightning_accum._persistent_metric import representable
from lightning_accum.accumulators import EMA, Mean, Sum, Variance, Window
from lightning_accum.accumulators.elementwise_base import add
from lightning_accum.accumulators.statistics import with_value

VALUES = [0.1, 1 / 3, 123.456, 3.3e4, 1e-3, -7.7]
FLOATS = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
BILLION = 1000 * 2**20


def billion(make, value):
    """What has seen a value 1,048,576,000 times: a thousand times, and merged with itself."""
    accumulator = make()
    for _ in range(1000):
        accumulator.update(value)
    while accumulator.update_count < BILLION:
        accumulator.merge_state(accumulator.metric_state)
    return accumulator


def exact(tensor):
    return [Fraction(value) for value in tensor.tolist()]


def assert_rounded(found, expected, dtype, ulps=1):
    """That a result is the exact one to so many roundings."""
    assert found.dtype == dtype
    for value, reference in zip(exact(found), expected, strict=True):
        assert abs(value - reference) <= ulps * torch.finfo(dtype).eps * abs(reference)


@FLOATS
def test_a_billion_values_are_summed_as_exactly_as_one(dtype):
    value = torch.tensor(VALUES, dtype=dtype)
    small = value / 1000
    total, mean = billion(Sum, value), billion(Mean, value)
    for _ in range(2000):
        total.update(small)
        mean.update(small)
    pairs = zip(exact(value), exact(small), strict=True)
    expected = [BILLION * first + 2000 * second for first, second in pairs]
    assert_rounded(total.compute(), expected, dtype)
    assert_rounded(mean.compute(), [s / (BILLION + 2000) for s in expected], dtype)


@FLOATS
def test_the_variance_of_a_billion_values_goes_on(dtype):
    low, high = torch.full((3,), 2.0, dtype=dtype), torch.full((3,), 4.0, dtype=dtype)
    variance = Variance(correction=0)
    for value in (low, high) * 500:
        variance.update(value)
    while variance.update_count < BILLION:
        variance.merge_state(variance.metric_state)
    before = variance.compute()
    assert_rounded(before, [1] * 3, dtype)
    # A thousand values at a distance of 1000 deviations double it.
    for _ in range(1000):
        variance.update(low + 1001)
    count = BILLION + 1000
    mean = Fraction(3 * BILLION + 1003 * 1000, count)
    squares = BILLION // 2 * ((2 - mean) ** 2 + (4 - mean) ** 2) + 1000 * (1003 - mean) ** 2
    assert_rounded(variance.compute(), [squares / count] * 3, dtype, ulps=2)


def test_many_small_values_count_beside_two_outliers():
    generator = torch.Generator().manual_seed(1)
    values = torch.cat([torch.tensor([3e4, -3e4]), 5 + torch.randn(5000, generator=generator)])
    wide, doubled, sums = Variance(), Variance(), torch.zeros(4).unbind()
    for count, value in enumerate(values, 1):
        wide.update(value)
        doubled.update(value.double() * 2.0**60)
        sums = with_value(count, value, sums, narrow=True)
    doubles = values.double()
    assert_close(wide.compute(), doubles.var().float(), rtol=1e-7, atol=0)
    assert_close(doubled.compute() / 2.0**120, doubles.var(), rtol=1e-14, atol=0)
    # and of two numbers of single precision
    assert_close(sums[0], doubles.mean().float(), rtol=1e-6, atol=0)
    squares = (doubles - doubles.mean()).square().sum()
    assert_close(sums[2], squares.float(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("value", VALUES)
def test_two_numbers_of_single_precision_hold_a_billion_values(value):
    # On a device without double precision there is nothing wider.
    number = torch.tensor(value)
    whole = number.double() * 1e9
    total = whole.float()
    rest = (whole - total.double()).float()
    for _ in range(2000):
        total, rest = add(total, rest, number, narrow=True)
    expected = float(number) * (1e9 + 2000)
    # Some of the last bits of each value are below the second number's.
    assert float(total) == pytest.approx(expected, rel=1.3e-7)
    assert float(total) != float(whole.float())
    assert abs(rest) <= torch.finfo(torch.float32).eps * abs(total)


def test_a_device_without_double_precision_gets_single():
    mps = torch.device("mps")
    assert representable(torch.ones(2, dtype=torch.float64), mps).dtype == torch.float32
    assert representable(torch.ones(2, dtype=torch.complex128), mps).dtype == torch.complex64
    assert representable(torch.ones(2, dtype=torch.int64), mps).dtype == torch.int64
    there = torch.ones(2, dtype=torch.float64)
    assert representable(there, torch.device("cpu")) is there


# ---------------------------------------------------------------------------- complex values
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(), (9,)])
@pytest.mark.parametrize("value", [complex("inf"), complex("nan"), complex(0, float("-inf"))])
def test_parts_that_are_not_finite_stay_apart(dtype, shape, value):
    values = [torch.full(shape, value + 1j + 1, dtype=dtype), torch.full(shape, 2 + 4j).to(dtype)]
    parts = torch.stack([torch.view_as_real(v) for v in values])
    for make, expected in (
        (Sum, parts.sum(0)),
        (Mean, parts.mean(0)),
        (lambda: EMA(0.5), (0.5 * parts[0] + parts[1]) / 1.5),
        (lambda: Window(2), parts.mean(0)),
    ):
        accumulator = make()
        for v in (*values, *values)[: 4 if make in (Sum,) else 2]:
            accumulator.update(v)
        expected = 2 * expected if make is Sum else expected
        assert accumulator.compute().dtype == dtype
        assert_close(torch.view_as_real(accumulator.compute()), expected, equal_nan=True)
    weighed, other = Mean(), Mean()
    weighed.update(values[0], weight=3)
    other.update(values[1], weight=torch.tensor(1.0))
    weighed.merge_state(other)
    expected = (3 * parts[0] + parts[1]) / 4
    assert_close(torch.view_as_real(weighed.compute()), expected, equal_nan=True)

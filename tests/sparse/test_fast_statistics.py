"""The kernel's statistics of an update are those of plain torch."""

import math

import pytest
import torch
from turns import turns

from lightning_accum.functional.update_statistics import lost_change, update_statistics
from lightning_accum.sparse.update_statistics import fast_lost_change, fast_statistics

LIMITS = [(None, None), (0.0, None), (None, 1.0), (-0.2, 0.9), (-1.0, 0.0)]
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
limits = pytest.mark.parametrize("limits", LIMITS)
shapes = pytest.mark.parametrize(
    "shape", [(1,), (15,), (16,), (17,), (40, 70), (1024,), (2, 3, 171)]
)


def an_update(shape, dtype):
    generator = torch.Generator().manual_seed(0)
    before, pos, neg = (torch.rand(shape, generator=generator, dtype=dtype) for _ in range(3))
    still = torch.rand(shape, generator=generator) < 0.3
    after = (before + pos - 2 * neg).clamp(-0.2, 0.9).where(~still, before)
    return before, after, pos, neg


def assert_same(found, plain):
    if isinstance(found, tuple):  # of tensors, or the kernel's numbers
        found = tuple(map(torch.as_tensor, found))
    torch.testing.assert_close(
        found, plain, rtol=1e-5, atol=1e-5, equal_nan=True, check_dtype=False
    )


@shapes
@dtypes
@limits
@turns("given", [(True, True), (True, False), (False, True), (False, False)])
def test_statistics_are_those_of_plain_torch(shape, dtype, limits, given):
    before, after, *both = an_update(shape, dtype)
    parts = tuple(part if wanted else None for part, wanted in zip(both, given, strict=True))
    assert_same(
        fast_statistics(before, after, *parts, *limits),
        update_statistics(before, after, *parts, *limits),
    )
    assert_same(
        fast_lost_change(before, after, parts, limits), lost_change(before, after, parts, limits)
    )


@dtypes
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_counted_and_hides_nothing(dtype, value):
    for place in range(4):
        tensors = an_update((40,), dtype)
        tensors[place][37] = tensors[place][3] = value
        found = fast_statistics(*tensors, -0.2, 0.9)
        assert_same(found, update_statistics(*tensors, -0.2, 0.9))
        assert found["nonfinite"] == 2


@dtypes
def test_what_has_no_kernel_is_left_to_plain_torch(dtype):
    before, after, pos, neg = (each.t() for each in an_update((4, 5), dtype))
    assert_same(fast_statistics(before, after, pos), update_statistics(before, after, pos))
    assert_same(fast_lost_change(before, after, (pos, neg)), lost_change(before, after, (pos, neg)))
    half = [each.to(torch.bfloat16) for each in an_update((4, 5), dtype)]
    assert_same(fast_statistics(*half), update_statistics(*half))
    other = an_update((20,), dtype)[2]
    assert_same(fast_statistics(before, after, other), update_statistics(before, after, other))
    empty = torch.zeros(0, dtype=dtype)
    assert_same(fast_statistics(empty, empty), update_statistics(empty, empty))


def test_what_makes_no_sense_is_rejected():
    w = torch.ones(3)
    with pytest.raises(ValueError, match="of one shape"):
        fast_statistics(w, torch.ones(2))
    with pytest.raises(TypeError, match="lower"):
        fast_statistics(w, w, lower="0")
    with pytest.raises(TypeError, match="pos"):
        fast_statistics(w, w, pos=[1.0])

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lightning_accum import functional
from lightning_accum.functional import bounds
from lightning_accum.functional.bounds import FullBounding, HalfBounding

KINDS = ("power", "scaled_power", "multiplicative", "scaled_multiplicative", "sharp")
LO, HI, MU = -0.5, 1.5, 1.7


def half(kind: str, side: str, power: float = MU) -> HalfBounding:
    options = {"power": power} if "power" in kind else {}
    options |= {"range": HI - LO} if "scaled" in kind else {}
    return partial(getattr(bounds, f"bound_{side}_{kind}"), **options)


def full(kind: str) -> FullBounding:
    return partial(getattr(bounds, f"bound_{kind}"), **({"power": MU} if "power" in kind else {}))


def naive(kind: str, room: float) -> float:
    """The spec's table, one number at a time."""
    room = max(room, 0.0)
    if "scaled" in kind:
        room /= HI - LO
    if "power" in kind:
        return math.pow(room, MU)
    return float(room > 0) if kind == "sharp" else room


def rand(*shape: int, seed: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(shape=st.lists(st.integers(0, 4), max_size=3), seed=st.integers(0, 2**16))
def test_bounds_equal_the_table(kind, shape, seed):
    # A quarter of the weights lies beyond either limit.
    w = rand(*shape, seed=seed, low=LO - 1, high=HI + 1)
    pos, neg = rand(*shape, seed=seed + 1), rand(*shape, seed=seed + 2)
    up = torch.tensor([naive(kind, HI - x) for x in w.flatten().tolist()], dtype=w.dtype)
    down = torch.tensor([naive(kind, x - LO) for x in w.flatten().tolist()], dtype=w.dtype)
    up, down = up.view(shape) * pos, down.view(shape) * neg
    given_ = [each.clone() for each in (w, pos, neg)]
    cases = [
        (half(kind, "upper")(w, pos, HI), up),
        (half(kind, "lower")(w, neg, LO), down),
        (full(kind)(w, pos, neg, HI, LO), up - down),
    ]
    if "scaled" not in kind:  # a side without a limit is not bounded
        cases += [
            (full(kind)(w, pos, neg, None, LO), pos - down),
            (full(kind)(w, pos, neg, HI, None), up - neg),
            (full(kind)(w, pos, neg, None, None), pos - neg),
        ]
    for found, expected in cases:
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        found.fill_(7.0)  # a new tensor
    assert all(map(torch.equal, (w, pos, neg), given_))


def test_beyond_a_limit_nothing_is_taken_of_the_outward_part_and_nothing_is_nan():
    w, u = torch.tensor([-1e30, -3.0, 3.0, 1e30]), torch.ones(4)
    out = torch.tensor([False, False, True, True])
    for power in (0.3, 0.5, 1.0, 2.0, 2.5):
        up = bounds.bound_upper_power(w, u, 1.0, power=power)
        down = bounds.bound_lower_power(w, u, 0.0, power=power)
        assert (up[out] == 0).all(), power
        assert (down[~out] == 0).all(), power
        assert not (up.isnan() | down.isnan()).any(), power


@pytest.mark.parametrize("scaled", ["", "scaled_"])
def test_power_one_is_multiplicative_and_needs_no_pow(scaled):
    w, pos, neg = rand(9, seed=0), rand(9, seed=1), rand(9, seed=2)
    power = getattr(bounds, f"bound_{scaled}power")
    multiplicative = getattr(bounds, f"bound_{scaled}multiplicative")
    assert torch.equal(power(w, pos, neg, HI, LO), multiplicative(w, pos, neg, HI, LO))
    near = [half(f"{scaled}power", "upper", each)(w, pos, HI) for each in (1.0, 1.0 + 1e-12)]
    torch.testing.assert_close(*near)


@pytest.mark.parametrize("kind", KINDS)
def test_neither_the_weight_nor_the_update_is_rounded(kind):
    u = torch.full((64,), 1e-3)
    for dtype in (torch.bfloat16, torch.float16):
        w = rand(64, seed=0).to(dtype)
        upper = half(kind, "upper")(w, u, HI)
        assert upper.dtype == torch.float32
        torch.testing.assert_close(upper, half(kind, "upper")(w.float(), u, HI), rtol=0, atol=0)
        delta = full(kind)(w, u, 2 * u, HI, LO)
        torch.testing.assert_close(delta, full(kind)(w.float(), u, 2 * u, HI, LO), rtol=0, atol=0)
    w, u = torch.tensor([1.4999, -0.4999]), torch.ones(2, dtype=torch.bfloat16)
    torch.testing.assert_close(half(kind, "upper")(w, u, HI), half(kind, "upper")(w, u.float(), HI))


def test_all_fifteen_are_module_level_functions_under_their_own_name():
    names = [n for n in functional.__all__ if n.startswith("bound_")]
    assert sorted(names) == sorted(
        f"bound_{side}{kind}" for kind in KINDS for side in ("", "upper_", "lower_")
    )
    for name in names:
        assert getattr(bounds, name).__qualname__ == name
        assert ">>>" in getattr(bounds, name).__doc__


@pytest.mark.parametrize("kind", ["power", "scaled_power"])
def test_each_side_of_a_full_bound_may_have_its_own_power(kind):
    w, pos, neg = rand(9, seed=0), rand(9, seed=1), rand(9, seed=2)
    up, down = half(kind, "upper", 2.0)(w, pos, HI), half(kind, "lower", 0.5)(w, neg, LO)
    bound = getattr(bounds, f"bound_{kind}")
    for options in ({"upper_power": 2.0, "lower_power": 0.5}, {"power": 2.0, "lower_power": 0.5}):
        assert torch.equal(bound(w, pos, neg, HI, LO, **options), up - down)


U = torch.ones(2)


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_rejected(kind):
    def rejects(words: str, fn: object, *given: object, **options: float) -> None:
        with pytest.raises((TypeError, ValueError), match=words):
            fn(*given, **options)

    bound, halves = full(kind), [half(kind, side) for side in ("upper", "lower")]
    for value in (math.nan, math.inf, -math.inf):
        for each in halves:
            rejects("`limit` should be finite", each, U, U, value)
        for limits in ((value, 0.0), (1.0, value)):
            rejects(r"`(max|min)` should be finite", bound, U, U, U, *limits)
    for wrong in ([1.0, 1.0], 1.0, None):
        for given_ in ((wrong, U, U), (U, wrong, U), (U, U, wrong)):
            rejects("should be a tensor", bound, *given_, HI, LO)
        for given_ in ((wrong, U), (U, wrong)):
            for each in halves:
                rejects("should be a tensor", each, *given_, HI)
    if "scaled" in kind:
        for limits in ((None, LO), (HI, None), (1.0, 1.0), (0.0, 1.0)):
            rejects("both limits", bound, U, U, U, *limits)
        for value in (0.0, -1.0, math.nan, math.inf):
            for each in halves:
                rejects("`range` should be (positive|finite)", each, U, U, 1.0, range=value)
    for value in (-1.0, -1e-9, 0, 0.0, math.nan, math.inf) if "power" in kind else ():
        for name in ("power", "upper_power", "lower_power"):
            words = f"`{name}` should be (finite|.*take `bound_sharp`)"
            rejects(words, bound, U, U, U, 2.0, 0.0, **{name: value})
        for each in halves:
            rejects("`power` should be (finite|.*take `bound_sharp`)", each, U, U, 1.0, power=value)

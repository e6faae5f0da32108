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


def keywords(kind: str, full: bool) -> dict[str, float]:
    kw = {"power": MU} if "power" in kind else {}
    return kw if full or "scaled" not in kind else kw | {"range": HI - LO}


def half(kind: str, side: str) -> HalfBounding:
    return partial(getattr(bounds, f"bound_{side}_{kind}"), **keywords(kind, full=False))


def full(kind: str) -> FullBounding:
    return partial(getattr(bounds, f"bound_{kind}"), **keywords(kind, full=True))


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


shapes = st.lists(st.integers(0, 4), max_size=3)


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(shape=shapes, seed=st.integers(0, 2**16))
def test_bounds_equal_the_table(kind, shape, seed):
    # A quarter of the weights lies beyond either limit.
    w = rand(*shape, seed=seed, low=LO - 1, high=HI + 1)
    pos, neg = rand(*shape, seed=seed + 1), rand(*shape, seed=seed + 2)
    up = torch.tensor([naive(kind, HI - x) for x in w.flatten().tolist()], dtype=w.dtype)
    down = torch.tensor([naive(kind, x - LO) for x in w.flatten().tolist()], dtype=w.dtype)
    up, down = up.view(shape) * pos, down.view(shape) * neg

    def close(found, expected):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)

    close(half(kind, "upper")(w, pos, HI), up)
    close(half(kind, "lower")(w, neg, LO), down)
    close(full(kind)(w, pos, neg, HI, LO), up - down)


@pytest.mark.parametrize("kind", ["power", "multiplicative", "sharp"])
def test_full_leaves_the_side_without_limit_unbounded(kind):
    w = rand(3, 4, seed=0, low=LO, high=HI)
    pos, neg = rand(3, 4, seed=1), rand(3, 4, seed=2)
    upper, lower = half(kind, "upper")(w, pos, HI), half(kind, "lower")(w, neg, LO)
    torch.testing.assert_close(full(kind)(w, pos, neg, None, LO), pos - lower)
    torch.testing.assert_close(full(kind)(w, pos, neg, HI, None), upper - neg)
    torch.testing.assert_close(full(kind)(w, pos, neg, None, None), pos - neg)


@pytest.mark.parametrize("kind", ["scaled_power", "scaled_multiplicative"])
@pytest.mark.parametrize("limits", [(None, LO), (HI, None), (1.0, 1.0), (0.0, 1.0)])
def test_scaled_full_needs_both_limits_in_order(kind, limits):
    u = torch.ones(2)
    with pytest.raises(ValueError, match="both limits"):
        full(kind)(u, u, u, *limits)


@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("kind", ["scaled_power", "scaled_multiplicative"])
@pytest.mark.parametrize("range", [0.0, -1.0, math.nan, math.inf])
def test_scaled_half_needs_a_positive_range(kind, side, range):
    fn = getattr(bounds, f"bound_{side}_{kind}")
    with pytest.raises(ValueError, match=r"`range` should be (positive|finite)"):
        fn(torch.zeros(2), torch.ones(2), 1.0, range=range)


@pytest.mark.parametrize("power", [0.3, 0.5, 1.0, 2.0, 2.5])
def test_beyond_a_limit_nothing_is_taken_of_the_outward_part_and_nothing_is_nan(power):
    w, u = torch.tensor([-1e30, -3.0, 3.0, 1e30]), torch.ones(4)
    out = torch.tensor([False, False, True, True])
    up = bounds.bound_upper_power(w, u, 1.0, power=power)
    down = bounds.bound_lower_power(w, u, 0.0, power=power)
    assert (up[out] == 0).all()
    assert (down[~out] == 0).all()
    assert not up.isnan().any()
    assert not down.isnan().any()


@pytest.mark.parametrize("kind", KINDS)
def test_no_update_is_reversed_and_none_leads_out_of_a_limit(kind):
    w, u = torch.linspace(-4, 4, 41), torch.ones(41)
    assert (half(kind, "upper")(w, u, HI) >= 0).all()
    assert (half(kind, "lower")(w, u, LO) >= 0).all()
    assert half(kind, "upper")(torch.tensor([HI]), u[:1], HI) == 0
    assert half(kind, "lower")(torch.tensor([LO]), u[:1], LO) == 0


@pytest.mark.parametrize("scaled", ["", "scaled_"])
def test_power_one_is_multiplicative(scaled):
    w, pos, neg = rand(9, seed=0), rand(9, seed=1), rand(9, seed=2)
    power = getattr(bounds, f"bound_{scaled}power")
    multiplicative = getattr(bounds, f"bound_{scaled}multiplicative")
    assert torch.equal(power(w, pos, neg, HI, LO), multiplicative(w, pos, neg, HI, LO))


@pytest.mark.parametrize("kind", ["power", "scaled_power"])
def test_power_one_needs_no_pow_and_equals_it(kind):
    w, u = rand(9, seed=0), rand(9, seed=1)
    near = {**keywords(kind, full=False), "power": 1.0 + 1e-12}
    exact = near | {"power": 1.0}
    fn = getattr(bounds, f"bound_upper_{kind}")
    torch.testing.assert_close(fn(w, u, HI, **exact), fn(w, u, HI, **near))


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_neither_written_nor_returned(kind):
    w, pos, neg = (rand(3, seed=s).requires_grad_() for s in range(3))
    before = [t.detach().clone() for t in (w, pos, neg)]
    made = [
        half(kind, "upper")(w, pos, HI),
        half(kind, "lower")(w, neg, LO),
        full(kind)(w, pos, neg, HI, LO),
    ]
    if "scaled" not in kind:
        made.append(full(kind)(w, pos, neg, None, None))
    for result in made:
        result.detach().fill_(7.0)
    assert all(torch.equal(t, b) for t, b in zip((w, pos, neg), before, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_weights_take_updates_in_the_updates_precision(kind, dtype):
    w = rand(64, seed=0).to(dtype)
    u = torch.full((64,), 1e-3)
    upper = half(kind, "upper")(w, u, HI)
    assert upper.dtype == torch.float32
    # Nothing but the weight itself may be of low precision.
    torch.testing.assert_close(upper, half(kind, "upper")(w.float(), u, HI), rtol=0, atol=0)
    delta = full(kind)(w, u, 2 * u, HI, LO)
    torch.testing.assert_close(delta, full(kind)(w.float(), u, 2 * u, HI, LO), rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_updates_of_low_precision_do_not_round_the_room(kind):
    w, u = torch.tensor([1.4999, -0.4999]), torch.ones(2, dtype=torch.bfloat16)
    torch.testing.assert_close(half(kind, "upper")(w, u, HI), half(kind, "upper")(w, u.float(), HI))


def test_all_fifteen_are_module_level_functions_under_their_own_name():
    names = [n for n in functional.__all__ if n.startswith("bound_")]
    assert sorted(names) == sorted(
        f"bound_{side}{kind}" for kind in KINDS for side in ("", "upper_", "lower_")
    )
    for name in names:
        fn = getattr(bounds, name)
        assert fn.__name__ == fn.__qualname__ == name
        assert ">>>" in fn.__doc__


@pytest.mark.parametrize("kind", ["power", "scaled_power"])
def test_each_side_of_a_full_bound_may_have_its_own_power(kind):
    w, pos, neg = rand(9, seed=0), rand(9, seed=1), rand(9, seed=2)
    up = partial(half(kind, "upper"), power=2.0)(w, pos, HI)
    down = partial(half(kind, "lower"), power=0.5)(w, neg, LO)
    bound = getattr(bounds, f"bound_{kind}")
    for options in ({"upper_power": 2.0, "lower_power": 0.5}, {"power": 2.0, "lower_power": 0.5}):
        assert torch.equal(bound(w, pos, neg, HI, LO, **options), up - down)


@pytest.mark.parametrize("value", [-1.0, -1e-9, 0, 0.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["power", "upper_power", "lower_power"])
@pytest.mark.parametrize("kind", ["power", "scaled_power"])
def test_a_power_of_a_full_bound_is_finite_and_positive(kind, name, value):
    u = torch.ones(2)
    with pytest.raises(ValueError, match=f"`{name}` should be (finite|.*take `bound_sharp`)"):
        getattr(bounds, f"bound_{kind}")(u, u, u, 2.0, 0.0, **{name: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_is_finite(kind, value):
    u = torch.ones(2)
    for side in ("upper", "lower"):
        with pytest.raises(ValueError, match="`limit` should be finite"):
            half(kind, side)(u, u, value)
    for limits in ((value, 0.0), (1.0, value)):
        with pytest.raises(ValueError, match=r"`(max|min)` should be finite"):
            full(kind)(u, u, u, *limits)


@pytest.mark.parametrize("wrong", [[1.0, 1.0], 1.0, None])
@pytest.mark.parametrize("kind", KINDS)
def test_parameter_and_update_are_tensors(kind, wrong):
    u = torch.ones(2)
    for options in ((wrong, u), (u, wrong)):
        with pytest.raises(TypeError, match="should be a tensor"):
            half(kind, "upper")(*options, HI)
        with pytest.raises(TypeError, match="should be a tensor"):
            half(kind, "lower")(*options, LO)
    for options in ((wrong, u, u), (u, wrong, u), (u, u, wrong)):
        with pytest.raises(TypeError, match="should be a tensor"):
            full(kind)(*options, HI, LO)

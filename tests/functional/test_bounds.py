import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_accum import Accumulator, functional
from lightning_accum.functional.bounds import KINDS, rooms_of

LO, HI, MU = -0.5, 1.5, 1.7


def half(kind, limit, power=MU):
    options = {"power": power} if "power" in kind else {}
    options |= {"range": HI - LO} if "scaled" in kind else {}
    (room,) = rooms_of(kind, (limit,), options)
    return room


def full(kind, w, pos, neg, **options):
    acc = Accumulator()
    acc.fullbound(kind, HI, LO, **(options or ({"power": MU} if "power" in kind else {})))
    acc.accumulate(pos, neg)
    return acc.update(w)


def naive(kind, room):
    """The spec's table, one number at a time."""
    room = max(room, 0.0)
    if "scaled" in kind:
        room /= HI - LO
    if "power" in kind:
        return math.pow(room, MU)
    return float(room > 0) if kind == "sharp" else room


def rand(*shape, seed, low=0.0, high=1.0):
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
    power, scale = {"power": MU} if "power" in kind else {}, {"range": HI - LO}
    scale = scale if "scaled" in kind else {}
    functions = [getattr(functional, f"bound_{side}{kind}") for side in ("upper_", "lower_", "")]
    for found, expected in [
        (functions[0](w, pos, HI, **power, **scale), up),
        (functions[1](w, neg, LO, **power, **scale), down),
        (functions[2](w, pos, neg, HI, LO, **power), up - down),
        (half(kind, HI).bounded(w, pos, upper=True), up),
        (half(kind, LO).bounded(w, neg, upper=False), down),
        (full(kind, w, pos, neg), up - down),
    ]:
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        found.fill_(7.0)  # a new tensor
    assert all(map(torch.equal, (w, pos, neg), given_))


@pytest.mark.parametrize("kind", KINDS)
def test_neither_the_weight_nor_the_update_is_rounded(kind):
    u = torch.full((64,), 1e-3)
    for dtype in (torch.bfloat16, torch.float16):
        w = rand(64, seed=0).to(dtype)
        delta = full(kind, w, u, 2 * u)
        assert delta.dtype == torch.float32
        torch.testing.assert_close(delta, full(kind, w.float(), u, 2 * u), rtol=0, atol=0)
    w, u = torch.tensor([1.4999, -0.4999]), torch.ones(2, dtype=torch.bfloat16)
    torch.testing.assert_close(full(kind, w, u, u), full(kind, w, u.float(), u.float()))


@pytest.mark.parametrize("kind", ["power", "scaled_power"])
def test_each_side_of_a_full_bound_may_have_its_own_power(kind):
    w, pos, neg = rand(9, seed=0), rand(9, seed=1), rand(9, seed=2)
    up = half(kind, HI, 2.0).bounded(w, pos, upper=True)
    down = half(kind, LO, 0.5).bounded(w, neg, upper=False)
    for options in ({"upper_power": 2.0, "lower_power": 0.5}, {"power": 2.0, "lower_power": 0.5}):
        assert torch.equal(full(kind, w, pos, neg, **options), up - down)


@pytest.mark.parametrize("value", [-1.0, -1e-9, 0, 0.0, math.nan, math.inf, "1", None])
def test_options_that_are_not_positive_are_rejected(value):
    for limits, name in (((1.0,), "power"), ((1.0,), "range"), ((1.0, 0.0), "lower_power")):
        options = {"range": 1.0} if len(limits) == 1 else {}
        with pytest.raises((TypeError, ValueError), match=f"`{name}` should be"):
            rooms_of("scaled_power", limits, {**options, name: value})


@pytest.mark.parametrize("side", ["", "upper_", "lower_"])
def test_what_is_not_a_tensor_is_rejected_by_its_name(side):
    bound, w = getattr(functional, f"bound_{side}power"), rand(3, seed=0)
    names, limits = (("update",), (HI,)) if side else (("pos", "neg"), (HI, LO))
    for i, name in enumerate(("param", *names)):
        given = [w, *(w for _ in names)]
        given[i] = given[i].numpy()
        with pytest.raises(TypeError, match=f"`{name}` should be a tensor. Found `ndarray`"):
            bound(*given, *limits)


def test_a_limit_is_a_number():
    w = torch.ones(2)
    with pytest.raises(TypeError, match=r"`limit` should be a number\. Found `limit = True`"):
        functional.bound_upper_power(w, w, True)
    with pytest.raises(TypeError, match=r"`min` should be a number\. Found `min = False`"):
        functional.bound_sharp(w, w, w, 1.0, False)


@pytest.mark.parametrize("side", ["full", "upper", "lower"])
def test_a_function_is_the_bound_of_its_name_and_of_its_side_only(side):
    by_word, by_function = Accumulator(), Accumulator()
    limits = (HI, LO) if side == "full" else (HI,)
    part = "" if side == "full" else f"{side}_"
    getattr(by_word, f"{side}bound")("power", *limits, power=MU)
    getattr(by_function, f"{side}bound")(
        getattr(functional, f"bound_{part}power"), *limits, power=MU
    )
    assert by_function.get_extra_state() == by_word.get_extra_state()  # a state names it
    other = functional.bound_lower_power if side == "upper" else functional.bound_upper_power
    with pytest.raises(ValueError, match=f"{side} side. Found one for the"):
        getattr(Accumulator(), f"{side}bound")(other, *limits, power=MU)

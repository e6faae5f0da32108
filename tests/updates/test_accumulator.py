import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import turns

from lightning_accum import Accumulator

quick = settings(derandomize=True, max_examples=40)
STREAMING = {"sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin}


def middle(stacked, dim):
    return stacked.median(dim).values


def last(stacked, dim):
    return stacked.select(dim, -1)


def rand(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("fn", [*STREAMING, middle, last])
@quick
@given(
    kinds=st.lists(st.sampled_from(["full", "row", "scalar", "outer"]), min_size=1, max_size=6),
    known=st.booleans(),
    seed=st.integers(0, 999),
)
def test_streaming_is_reducing_the_stack_in_order(fn, kinds, known, seed):
    acc = Accumulator(torch.Size((2, 3)) if known else None)
    acc.reduction(fn)
    seen = []
    for i, kind in enumerate(kinds):
        if kind == "outer":
            post, pre = rand(4, 2, seed=seed + i), rand(4, 3, seed=seed + i + 50)
            acc.accumulate_outer(post, pre, 0.5)
            seen.append(0.5 * post.T @ pre)
        else:
            value = rand(*{"full": (2, 3), "row": (1, 3), "scalar": ()}[kind], seed=seed + i)
            acc.pos = value
            seen.append(value.expand(2, 3))
    expected = STREAMING.get(fn, fn)(torch.stack(seen), 0)
    found = acc.update(torch.zeros(2, 3, dtype=torch.float64))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    assert acc.neg is None


@pytest.mark.parametrize("fn", STREAMING)
def test_memory_is_one_tensor_however_many_come(fn):
    acc = Accumulator()
    acc.reduction(fn)
    for _ in range(3):
        acc.pos = torch.ones(100, 100)
    size = len(pickle.dumps(acc))
    for _ in range(20):
        acc.pos = torch.ones(100, 100)
    assert len(pickle.dumps(acc)) == pytest.approx(size, abs=100)


def test_products_over_many_rows_are_summed_in_chunks():
    acc, post, pre = Accumulator(), rand(5000, 2, seed=1), rand(5000, 3, seed=2) > 0
    acc.accumulate_outer(post, pre)
    torch.testing.assert_close(acc.pos, post.T @ pre.double(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 2), (2,), (2, 3, 1), (5, 2, 3)])
def test_a_wrong_shape_is_refused_when_it_comes(shape):
    acc = Accumulator(torch.Size((2, 3)), name="gain")
    with pytest.raises(ValueError, match=r"`gain.neg`.*\(2, 3\).*") as error:
        acc.accumulate(torch.ones(2, 3), torch.ones(shape))
    assert str(shape) in str(error.value)
    assert acc.empty
    with pytest.raises(ValueError, match=r"\(2, 3\).*Found shape \(1, 3\)"):
        acc.accumulate_outer(torch.ones(4, 1), torch.ones(4, 3))
    with pytest.raises(ValueError, match=r"matrices.*Found shapes \(4, 1\) and \(3, 3\)"):
        acc.accumulate_outer(torch.ones(4, 1), torch.ones(3, 3))


def test_a_wrong_shape_where_none_is_known():
    for fn in ("sum", middle):
        acc = Accumulator()
        acc.reduction(fn)
        acc.pos = torch.ones(2)
        with pytest.raises(ValueError, match=r"\(2,\).*Found shape \(3,\)"):
            acc.pos = torch.ones(3)
        with pytest.raises(ValueError, match=r"\(2,\).*Found shape \(4, 3\)"):
            acc.accumulate_outer(torch.ones(1, 4), torch.ones(1, 3))
        acc.pos = torch.ones(4, 1)
        assert acc.pos.shape == (4, 2)
        with pytest.raises(ValueError, match=r"\(4, 3\).*Found shape \(4, 2\)"):
            acc.update(torch.ones(4, 3))
        with pytest.raises(ValueError, match=r"\(1, 2\).*Found shape \(1, 3\)"):
            Accumulator().accumulate_outer(
                [torch.ones(1, 1)] * 2, [torch.ones(1, 2), torch.ones(1, 3)]
            )


def holding(*shape, fn=None, product=False):
    """The state of an accumulator that has something pending."""
    acc = Accumulator(torch.Size(shape))
    acc.reduction(fn)
    if product:
        acc.accumulate_outer(*(torch.ones(1, n) for n in shape))
    else:
        acc.pos = torch.ones(shape)
    return acc.state_dict()


ROW = torch.ones(1, 20)


@turns(
    "call, error, words",
    [
        (lambda acc: setattr(acc, "pos", 1.0), TypeError, "Found `float`: wrap it"),
        (lambda acc: setattr(acc, "pos", [1.0]), TypeError, "`parameter.pos` should be a tensor"),
        (lambda acc: setattr(acc, "neg", torch.eye(20).to_sparse()), TypeError, "should be dense"),
        *((lambda acc, name=name: setattr(acc, name, "power"), AttributeError,
           rf"call `{name}\('power', \.\.\.\)`")
          for name in ("reduction", "upperbound", "lowerbound", "fullbound")),
        (lambda acc: acc.update([1.0]), TypeError, "should be a tensor"),
        (lambda acc: acc.accumulate_outer([1.0], ROW), TypeError, "should be a tensor"),
        (lambda acc: acc.accumulate_outer(ROW, 1.0), TypeError, "should be a tensor"),
        (lambda acc: acc.fullbound(0.5, 1.0, 0.0), TypeError, "callable"),
        (lambda acc: acc.fullbound("powr", 1.0, 0.0), ValueError, "did you mean `power`"),
        (lambda acc: acc.fullbound("power", 0.0, 1.0), ValueError, "`max` comes first"),
        (lambda acc: acc.load_state_dict(holding(20, 20, fn="amax")), RuntimeError,
         r"`sum`. Found `amax`: call .* before loading"),
        (lambda acc: acc.load_state_dict(holding(2)), RuntimeError,
         r"shape \(20, 20\)\. Found \(2,\)"),
        (lambda acc: acc.load_state_dict(holding(20, 40, product=True)), RuntimeError,
         r"\(20, 20\)\. Found \(20, 40\)"),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(call, error, words):
    acc = Accumulator(torch.Size((20, 20)))
    with pytest.raises(error, match=words):
        call(acc)
    assert acc.empty
    assert not acc.bounded


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int64])
def test_parts_are_float32_at_least(dtype):
    acc = Accumulator()
    acc.pos = torch.ones(2, dtype=dtype)
    assert acc.pos.dtype == torch.float32
    acc.pos = torch.full((2,), 1e-12, dtype=torch.float64)
    assert acc.pos.dtype == torch.float64
    assert (acc.pos > 1).all()
    product = Accumulator()
    factors = torch.ones(1, 2, dtype=dtype), torch.ones(1, 2, dtype=torch.float64)
    product.accumulate_outer(factors, (torch.ones(1, 1, dtype=dtype), factors[1][:, :1] * 1e-12))
    assert (product.pos > 1).all()


def test_clearing_leaves_settings_and_no_trace():
    acc = Accumulator()
    acc.upperbound("multiplicative", 1.0)
    acc.pos = torch.full((2,), torch.nan)
    acc.clear()
    assert acc.pos is None
    assert acc.update(torch.zeros(2)) is None
    acc.accumulate_outer(torch.ones(1, 2), torch.ones(1, 1))
    assert acc(torch.full((2, 1), 0.5)).tolist() == [[1.0], [1.0]]


def test_limits_and_calls_that_cannot_work():
    acc = Accumulator()
    assert acc.limits == (None, None)
    acc.fullbound("power", 1.0, -1.0, power=2.0)
    assert acc.limits == (-1.0, 1.0)
    acc.upperbound("multiplicative", 5.0)
    assert acc.limits == (None, 5.0)
    with pytest.raises(TypeError, match=r"`multiplicative` .* none\. Found `gain`: leave"):
        acc.upperbound("multiplicative", 1.0, gain=1)
    with pytest.raises(TypeError, match=r"`range` among them\. Found none: give it"):
        acc.upperbound("scaled_multiplicative", 1.0)
    assert acc.limits == (None, 5.0)


def test_moving_keeps_the_wide_dtype():
    acc = Accumulator()
    acc.pos = torch.full((2,), 1 + 2**-20)
    acc.to(torch.bfloat16)
    acc.half()
    assert acc.pos.tolist() == [1 + 2**-20] * 2


def test_products_come_in_sequences_of_one_length():
    acc, one = Accumulator(), torch.ones(1, 2)
    for sides in (([one, one], [one]), ([one], [one, one]), ([one], [one], [1.0, 1.0])):
        with pytest.raises(ValueError, match=r"`post`, `pre` and `scale` should be as many"):
            acc.accumulate_outer(*sides)
    assert acc.empty
    acc.accumulate_outer([one, one], [one, one], [1.0, 2.0])
    assert acc.pos.tolist() == [[3.0, 3.0], [3.0, 3.0]]


@pytest.mark.parametrize("scale", ["2", None, [1.0, "2"], [1.0, torch.ones(1)]])
def test_factors_of_products_are_numbers(scale):
    acc, one = Accumulator(), torch.ones(1, 2)
    with pytest.raises(TypeError, match=r"`scale\[[01]\]` should be a number"):
        acc.accumulate_outer([one, one], [one, one], scale)
    assert acc.empty
    acc.accumulate_outer([one, one], [one, one], [1, np.float32(2.0)])
    assert acc.pos.tolist() == [[3.0, 3.0], [3.0, 3.0]]


@pytest.mark.parametrize("how", ["sum", "mean", "amax", lambda values, dim: values.sum(dim)])
def test_what_was_dropped_leaves_no_shape_behind(how):
    acc = Accumulator()
    acc.reduction(how)
    acc.pos = torch.ones(5)
    acc.clear()
    acc.accumulate(torch.ones(2, 3), torch.ones(2, 3))
    assert acc.pos.tolist() == torch.ones(2, 3).tolist()
    acc.clear()
    acc.accumulate_outer(torch.ones(1, 4), torch.ones(1, 3))
    assert acc.pos.shape == (4, 3)


@pytest.mark.parametrize("how", ["sum", "mean", "amax", lambda values, dim: values.sum(dim)])
@pytest.mark.parametrize("product", [False, True])
def test_what_is_pending_moves_with_it(how, product):
    acc = Accumulator()
    acc.reduction(how)
    acc.neg = torch.ones(4, 3)
    if product:
        acc.accumulate_outer(torch.ones(1, 4), torch.ones(1, 3))
    else:
        acc.pos = torch.ones(4, 3)
    acc.to("meta")
    assert acc.pos.device.type == acc.neg.device.type == "meta"
    assert acc.pos.shape == acc.neg.shape == (4, 3)


@pytest.mark.parametrize("side", ["full", "upper", "lower"])
def test_a_bound_is_tried_when_it_is_set(side):
    acc = Accumulator()
    limits = (1.0, 0.0) if side == "full" else (1.0,)
    getattr(acc, f"{side}bound")("power", *limits, power=2.0)
    for wrong in ({"power": -1.0}, {"power": float("nan")}, {"power": "2"}):
        with pytest.raises((ValueError, TypeError), match="Argument `power` should be"):
            getattr(acc, f"{side}bound")("power", *limits, **wrong)
    for bad in (float("nan"), float("inf"), "1"):
        with pytest.raises((ValueError, TypeError), match=r"Argument `(max|min)` should be"):
            getattr(acc, f"{side}bound")("power", bad, *limits[1:])
    acc.pos = acc.neg = torch.ones(1)
    assert acc.bounded
    assert torch.isfinite(acc.update(torch.full((1,), 0.5))).all()


@pytest.mark.parametrize(
    "wrong",
    [
        (torch.ones(2, 2), torch.ones(3, 2), 1.0),
        (torch.ones(2), torch.ones(2), 1.0),
        (torch.ones(2, 2), torch.ones(2, 2)),
        (torch.ones(2, 2).double(), torch.ones(2, 2), 1.0),
        (torch.ones(2, 2).half(), torch.ones(2, 2).half(), 1.0),
        (torch.ones(2, 2), torch.ones(2, 2), "1"),
    ],
)
def test_products_in_a_state_are_products(wrong):
    acc, other = Accumulator(), Accumulator()
    acc.accumulate_outer(torch.ones(1, 4), torch.ones(1, 4))
    state = acc.get_extra_state()
    assert len(state["pos"]["deferred"]) == 1
    state["pos"]["deferred"] = [wrong]
    with pytest.raises(RuntimeError, match="should hold a list, each two matrices"):
        other.set_extra_state(state)
    assert other.empty

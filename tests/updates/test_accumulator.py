import math
import pickle
import re
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from contract_cases import middle
from kernel_helpers import numbers
from round_trips import by_file, by_pickle
from subtests import turns
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_accum import Accumulator, NonFiniteUpdateError, Updater
from lightning_accum._extra_state import unpack
from lightning_accum.functional.reductions import reduction
from lightning_accum.updates.part import Part, StackedProducts


@pytest.mark.parametrize("fn", ["sum", "mean", "amax", "amin"])
def test_memory_is_that_of_what_is_pending(fn):
    acc = Accumulator(torch.Size((200, 300)))
    acc.reduction(fn)
    for _ in range(3):
        acc.pos = torch.ones(200, 300)
    size = len(pickle.dumps(acc))
    for _ in range(20):
        acc.pos = torch.ones(200, 300)
    assert len(pickle.dumps(acc)) == pytest.approx(size, abs=100)
    for rows in (300, 2):  # the first needs memory for all
        acc.clear()
        acc.pending.add_products([(torch.ones(rows, 200), torch.ones(rows, 300), 1.0)])
    assert acc.pos is not None
    assert (acc.pending.waiting is not None) == (fn in ("sum", "mean"))
    assert (len(pickle.dumps(acc)) < 4 * 200 * 300 / 4) == (fn in ("sum", "mean"))


def test_products_over_many_rows_are_summed_in_chunks():
    acc, post, pre = Accumulator(), numbers(5000, 2, seed=1), numbers(5000, 3, seed=2) > 0
    acc.pending.add_products([(post, pre, 1.0)])
    torch.testing.assert_close(acc.pos, post.T @ pre.double(), rtol=1e-12, atol=1e-12)


def test_a_wrong_shape_where_none_is_known():
    for fn in ("sum", middle):
        acc = Accumulator()
        acc.reduction(fn)
        acc.pos = torch.ones(2)
        with pytest.raises(ValueError, match=r"\(2,\).*Found shape \(3,\)"):
            acc.pos = torch.ones(3)
        with pytest.raises(ValueError, match=r"\(2,\).*Found shape \(4, 3\)"):
            acc.pending.add_products([(torch.ones(1, 4), torch.ones(1, 3), 1.0)])
        assert acc.update(torch.zeros(3, 2)).tolist() == [[1.0, 1.0]] * 3
        acc.pos = torch.ones(4, 1)
        assert acc.pos.shape == (4, 2)
        with pytest.raises(ValueError, match=r"\(4, 3\).*Found shape \(4, 2\)"):
            acc.update(torch.ones(4, 3))
        with pytest.raises(ValueError, match=r"\(1, 2\).*Found shape \(1, 3\)"):
            Accumulator().pending.add_products(
                [(torch.ones(1, 1), torch.ones(1, n), 1.0) for n in (2, 3)]
            )


def holding(*shape, fn=None, product=False):
    """The state of an accumulator that has something pending."""
    acc = Accumulator(torch.Size(shape))
    acc.reduction(fn)
    if product:
        acc.pending.add_products([(*(torch.ones(1, n) for n in shape), 1.0)])
    else:
        acc.pos = torch.ones(shape)
    return acc.state_dict()


ROW, ROWS, SQUARE = torch.ones(1, 20), torch.ones(4, 20), torch.ones(20, 20)
PRODUCTS = "should hold a list, each two matrices"


def products(acc, wrong):
    """Loads a state that holds something else than a product."""
    state = unpack(holding(20, 20, product=True)["_extra_state"], "")
    assert len(state["pos"]["deferred"]) == 1
    state["pos"]["deferred"] = [wrong]
    acc.set_extra_state(state)


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
        (lambda acc: acc.fullbound(0.5, 1.0, 0.0), TypeError, "callable"),
        (lambda acc: acc.fullbound("powr", 1.0, 0.0), ValueError, "did you mean `power`"),
        (lambda acc: acc.fullbound("power", 0.0, 1.0), ValueError, "`max` comes first"),
        *((lambda acc, side=side, given=given: getattr(acc, f"{side}bound")("sharp", *given),
           ValueError, rf"Argument `{name}` .* Found `{name} = None`")
          for side, given, name in (("upper", (), "max"), ("lower", (None,), "min"),
                                    ("full", (), "max"), ("full", (1.0,), "min"),
                                    ("full", (None, 0.0), "max"))),
        (lambda acc: acc.lowerbound("power", 0.0, power=-1.0), ValueError, "`power` should be"),
        (lambda acc: acc.upperbound("power", math.nan), ValueError, "`max` should be"),
        (lambda acc: acc.load_state_dict(holding(20, 20, fn="amax")), RuntimeError,
         r"`sum`. Found `amax`: call .* before loading"),
        (lambda acc: acc.load_state_dict(holding(2)), RuntimeError,
         r"shape \(20, 20\)\. Found \(2,\)"),
        (lambda acc: acc.load_state_dict(holding(20, 40, product=True)), RuntimeError,
         r"\(20, 20\)\. Found \(20, 40\)"),
        *((lambda acc, shape=shape: acc.accumulate(SQUARE, torch.ones(shape)), ValueError,
           rf"`parameter.neg`.*\(20, 20\).*{re.escape(str(shape))}")
          for shape in ((20, 2), (2,), (20, 20, 1), (5, 20, 20))),
        (lambda acc: acc.pending.add_products([(torch.ones(4, 1), ROWS, 1.0)]), ValueError,
         r"\(20, 20\).*Found shape \(1, 20\)"),
        (lambda acc: acc.pending.add_products([(ROWS[:, :1], torch.ones(3, 3), 1.0)]), ValueError,
         r"matrices.*Found shapes \(4, 1\) and \(3, 3\)"),
        (lambda acc: acc.upperbound("multiplicative", 1.0, gain=1), TypeError,
         r"`multiplicative` .* none\. Found `gain`: leave"),
        (lambda acc: acc.upperbound("scaled_multiplicative", 1.0), TypeError,
         r"`range` among them\. Found none: give it"),
        *((lambda acc, wrong=wrong: products(acc, wrong), RuntimeError, PRODUCTS)
          for wrong in ((ROWS, ROW, 1.0), (ROW[0], ROW[0], 1.0), (ROW, ROW),
                        (ROW.double(), ROW, 1.0), (ROW.half(), ROW.half(), 1.0), (ROW, ROW, "1"))),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(call, error, words):
    acc = Accumulator(torch.Size((20, 20)))
    with pytest.raises(error, match=words):
        call(acc)
    assert acc.empty
    assert not acc.pending.bounds
    acc.pending.add_products([(ROW, ROW, 1), (ROW, ROW, np.float32(2.0))])
    assert torch.equal(acc.pos, 3 * SQUARE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int64])
def test_parts_are_float32_at_least_wherever_they_move(dtype):
    acc = Accumulator()
    acc.pos, acc.neg = torch.ones(2, dtype=dtype), torch.full((2,), 1 + 2**-20)
    acc.to(torch.bfloat16).half()
    assert acc.pos.dtype == torch.float32
    assert acc.neg.tolist() == [1 + 2**-20] * 2
    acc.pos = torch.full((2,), 1e-12, dtype=torch.float64)
    assert acc.pos.dtype == torch.float64
    assert (acc.pos > 1).all()
    product = Accumulator()
    factors = torch.ones(1, 2, dtype=dtype), torch.ones(1, 2, dtype=torch.float64)
    pres = torch.ones(1, 1, dtype=dtype), factors[1][:, :1] * 1e-12
    product.pending.add_products(
        [(post, pre, 1.0) for post, pre in zip(factors, pres, strict=True)]
    )
    assert (product.pos > 1).all()


@pytest.mark.parametrize("how", ["sum", "mean", "amax", lambda values, dim: values.sum(dim)])
def test_what_was_dropped_leaves_no_shape_behind_and_what_is_pending_moves(how):
    acc = Accumulator()
    acc.reduction(how)
    acc.pos = torch.ones(5)
    acc.clear()
    acc.accumulate(torch.ones(2, 3), torch.ones(2, 3))
    assert acc.pos.tolist() == torch.ones(2, 3).tolist()
    for product in (True, False):
        acc.clear()
        acc.neg = torch.ones(4, 3)
        if product:
            acc.pending.add_products([(torch.ones(1, 4), torch.ones(1, 3), 1.0)])
        else:
            acc.pos = torch.ones(4, 3)
        acc.to("meta")
        assert acc.pos.device.type == acc.neg.device.type == "meta"
        assert acc.pos.shape == acc.neg.shape == (4, 3)


def test_a_reduction_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"one of \['amax', 'amin', 'mean', 'sum'\].*'median'"):
        reduction("median")
    with pytest.raises(TypeError, match="Found `int`"):
        reduction(3)
    for fn, error, words in (
        (lambda x, dim: x.mean(), ValueError, r"Found shape \(\) from \(1, 3, 4\)"),
        (lambda x, dim: x.max(dim), TypeError, "should give a tensor"),
        (lambda x, dim: x.average(dim), TypeError, "The reduction `<lambda>` fails"),
    ):
        with pytest.raises(error, match=words):
            reduction(fn).of(torch.ones(1, 3, 4))


# ---------------------------------------------------------------------------- products that wait
SHAPE = (20, 30)  # of a weight that is larger than the sides of products of a few rows


def linear():
    fc = nn.Linear(30, 20, bias=False)
    nn.init.constant_(fc.weight, 0.5)
    return fc


def sides(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(rows, n, generator=generator) for n in SHAPE]


def waits(updater):
    return updater.weight.pending.waiting is not None


def test_only_where_it_spares_something():
    updater = Updater(linear())
    updater.weight.pending.add_products(
        [(*sides(12, 0), 1.0)]
    )  # 600 elements of sides, as many of the weight
    assert waits(updater)
    assert waits(by_pickle(updater))
    updater.clear()
    assert not waits(updater)
    for rows, dtype in ((13, torch.float32), (2, torch.float64)):
        found = [side.to(dtype) for side in sides(rows, 0)]
        updater.weight.pending.add_products([(*found, 1.0)])
        assert not waits(updater)
        updater.clear()
    for how in ("amax", torch.median):
        updater.weight.reduction(how)
        updater.weight.pending.add_products([(*sides(2, 0), 1.0)])
        assert not waits(updater)
        updater.clear()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e38])
@pytest.mark.parametrize("policy", ["raise", "skip", "ignore"])
def test_what_is_not_finite(value, policy):
    fc, (post, pre) = linear(), sides(2, 0)
    updater = Updater(fc, nonfinite=policy)
    large = torch.tensor([1e30, 0.0])  # rows that never meet are no overflow
    apart = large[:, None].expand(2, 20), large.flip(0)[:, None].expand(2, 30)
    updater.weight.pending.add_products([(*apart, 1.0)])
    updater()
    assert not any(updater.skipped.values())
    assert torch.equal(fc.weight, torch.full(SHAPE, 0.5))
    pre[0, 3] = value
    updater.weight.pending.add_products([(post, pre, 1e6)])
    with pytest.raises(NonFiniteUpdateError) if policy == "raise" else nullcontext():
        updater(scale=1e-10)  # it was too large before that
    if policy == "ignore":
        assert not (fc.weight.abs() < 1e30).all()  # some processors' sums are scaled first
        return
    assert torch.equal(fc.weight, torch.full(SHAPE, 0.5))
    updater.clear()
    updater.weight.pending.add_products([(*sides(2, 1), 1.0)])
    updater()
    assert updater.skipped.get("weight", 0) == (policy == "skip")
    assert not torch.equal(fc.weight, torch.full(SHAPE, 0.5))


def test_a_parameter_that_was_replaced_is_told():
    fc = linear()
    updater = Updater(fc)
    updater.weight.pending.add_products([(*sides(2, 0), 1.0)])
    fc.weight = nn.Parameter(torch.zeros(4, 4))
    with pytest.raises(ValueError, match=r"fit the parameter's shape \(4, 4\)"):
        updater()
    fc.weight = nn.Parameter(torch.zeros(SHAPE, dtype=torch.float64))
    updater()
    expected = sides(2, 0)[0].T @ sides(2, 0)[1]
    torch.testing.assert_close(fc.weight.detach(), expected.double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_waits_is_resumed_bit_for_bit(dtype):
    """A step that is evaluated in memory of its own waits, however many rows it has."""
    made, weights = [side.to(dtype) for side in sides(40, 0)], []
    left, right = made[0] - 0.5 * (torch.arange(40) > 20).unsqueeze(1), made[1]
    for resumed in (False, True):
        fc = linear().to(dtype)
        updater = Updater(fc)
        updater.weight.pending.waiting = StackedProducts(left.T, right, 21)
        if resumed:
            state, updater = by_file(updater.state_dict()), Updater(fc)
            updater.load_state_dict(state)
        assert waits(updater)
        updater()
        weights.append(fc.weight.detach())
    assert torch.equal(*weights)


def test_a_part_that_an_interrupt_left_half_empty_is_empty():
    part = Part(reduction(torch.median))
    part.add(torch.ones(2))
    part.count = 0  # as in the midst of `clear`
    assert part.value() is None
    assert not part.state()["kept"]


class Looks(TorchDispatchMode):
    """Counts how often the extremes of a tensor are computed."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is torch.ops.aten.aminmax.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("policy", "looks"), [("ignore", 0), ("raise", 2), ("skip", 2)])
def test_only_a_policy_that_acts_looks_at_the_elements(policy, looks):
    fc = linear()
    updater = Updater(fc, nonfinite=policy)
    updater.weight.pending.add_products([(*sides(2, 0), 1.0)])
    assert waits(updater)
    with Looks() as seen:
        updater()
    assert seen.count == looks
    assert not torch.equal(fc.weight, linear().weight)

"""Products that are all that is pending wait, and are added to the parameter itself."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from values import by_file, by_pickle

from lightning_accum import Accumulator, NonFiniteUpdateError, Updater
from lightning_accum.updates.part import Part

SHAPE = (20, 30)  # of a weight that is larger than the sides of products of a few rows


def linear():
    fc = nn.Linear(30, 20, bias=False)
    nn.init.constant_(fc.weight, 0.5)
    return fc


def sides(rows, seed, boolean=False):
    generator = torch.Generator().manual_seed(seed)
    post, pre = (torch.rand(rows, n, generator=generator) for n in SHAPE)
    return post, pre > 0.5 if boolean else pre


def waits(updater):
    return bool(updater.weight.deferred)


@settings(derandomize=True, max_examples=60)
@given(
    up=st.integers(0, 3),
    down=st.integers(0, 3),
    scale=st.sampled_from([0.25, 1.0, -2.0]),
    boolean=st.booleans(),
    reduction=st.sampled_from(["sum", "mean"]),
    calls=st.integers(1, 2),
)
def test_is_the_change_by_its_parts(up, down, scale, boolean, reduction, calls):
    fc = linear()
    updater = Updater(fc, reduction=reduction)
    expected = torch.full(SHAPE, 0.5, dtype=torch.float64)
    for call in range(calls):
        for sign, count in ((1, up), (-1, down)):
            given = [sides(2, 10 * call + k, boolean) for k in range(count)]
            rates = [0.1 * (k + 1) for k in range(count)]
            left, right = [post for post, _ in given], [pre for _, pre in given]
            updater.weight.accumulate_outer(left, right, rates, negative=sign < 0)
            for (post, pre), rate in zip(given, rates, strict=True):
                share = scale * sign * rate / (calls if reduction == "mean" else 1)
                expected += share * (post.double().T @ pre.double())
    assert waits(updater) == (calls == 1 and up + down > 0)
    updater(scale=scale)
    torch.testing.assert_close(fc.weight.detach().double(), expected, rtol=1e-6, atol=1e-6)
    assert updater.weight.empty


def test_nothing_is_seen_of_the_wait():
    models = linear(), linear()
    updater, other = (Updater(model) for model in models)
    post, pre = sides(4, 0)
    kept = post.clone(), pre.clone()
    for each in (updater, other):
        each.weight.accumulate_outer(post, pre, 0.5)
        each.weight.accumulate_outer(pre=pre, post=post, negative=True)
    assert updater.weight.pos is not None  # read before it is applied, in one of the two
    torch.testing.assert_close(updater.weight.pos, 0.5 * (post.T @ pre))
    torch.testing.assert_close(updater.weight.update(models[0].weight), -0.5 * (post.T @ pre))
    post.zero_(), pre.zero_()  # were copied
    for each in (updater, other):
        assert waits(each)
        each()
    assert torch.equal(models[0].weight, models[1].weight)
    torch.testing.assert_close(models[1].weight.detach(), 0.5 - 0.5 * (kept[0].T @ kept[1]))


def test_a_second_contribution_and_a_tensor_are_added():
    acc, expected = Accumulator(torch.Size(SHAPE)), torch.zeros(SHAPE)
    for seed in (0, 1):
        post, pre = sides(3, seed)
        acc.accumulate_outer(post, pre)
        expected += post.T @ pre
        assert bool(acc.deferred) == (seed == 0)
    acc.pos = torch.ones(SHAPE)
    torch.testing.assert_close(acc.pos, expected + 1)
    acc.clear()
    acc.accumulate_outer(*sides(3, 2))
    acc.pos = torch.ones(1, 30)
    torch.testing.assert_close(acc.pos, sides(3, 2)[0].T @ sides(3, 2)[1] + 1)
    acc.clear()
    acc.accumulate_outer(*sides(3, 2))
    acc.neg = torch.ones(SHAPE)
    assert acc.deferred == []
    torch.testing.assert_close(acc.update(torch.zeros(SHAPE)), acc.pos - 1)


def test_only_where_it_spares_something():
    updater = Updater(linear())
    updater.weight.accumulate_outer(*sides(12, 0))  # 600 elements of sides, as many of the weight
    assert waits(updater)
    updater.clear()
    assert not waits(updater)
    for rows, dtype in ((13, torch.float32), (2, torch.float64)):
        updater.weight.accumulate_outer(*(side.to(dtype) for side in sides(rows, 0)))
        assert not waits(updater)
        updater.clear()
    for how in ("amax", torch.median):
        updater.weight.reduction(how)
        updater.weight.accumulate_outer(*sides(2, 0))
        assert not waits(updater)
        updater.clear()


def test_bounds_see_the_parts():
    fc, post, pre = linear(), *sides(2, 0)
    updater = Updater(fc)
    updater.weight.accumulate_outer(post, pre)
    updater.weight.upperbound("multiplicative", 1.0)  # while they wait
    assert not waits(updater)
    updater()
    torch.testing.assert_close(fc.weight.detach(), 0.5 + 0.5 * (post.T @ pre))
    updater.weight.accumulate_outer(post, pre)
    assert not waits(updater)
    updater.weight.upperbound(None)


def test_beside_another_parameter_all_change_or_none():
    fc = nn.Linear(30, 20)
    before = fc.weight.detach().clone()
    updater = Updater(fc)
    updater.weight.accumulate_outer(*sides(2, 0))
    updater.bias = torch.full((20,), math.nan)
    with pytest.raises(NonFiniteUpdateError, match="bias"):
        updater()
    assert torch.equal(fc.weight, before)
    del updater.bias
    updater()
    torch.testing.assert_close(fc.weight.detach() - before, sides(2, 0)[0].T @ sides(2, 0)[1])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e38])
def test_what_is_not_finite(value):
    fc = linear()
    post, pre = sides(2, 0)
    pre[0, 3] = value
    updater = Updater(fc)
    updater.weight.accumulate_outer(post, pre, 1e6)
    with pytest.raises(NonFiniteUpdateError):
        updater()
    assert torch.equal(fc.weight, torch.full(SHAPE, 0.5))
    updater.nonfinite = "skip"
    kept = updater.weight.deferred
    updater.clear()
    updater.weight.accumulate_outer(torch.zeros(2, 20), torch.zeros(2, 30))
    updater()
    assert updater.skipped == {"weight": 0}
    for left, right, scale in kept:
        updater.weight.accumulate_outer(left, right, scale)
    updater()
    assert torch.equal(fc.weight, torch.full(SHAPE, 0.5))
    assert updater.skipped == {"weight": 1}
    updater.weight.accumulate_outer(*sides(2, 1))
    updater()
    assert updater.skipped == {"weight": 1}
    assert not torch.equal(fc.weight, torch.full(SHAPE, 0.5))
    updater.nonfinite = "ignore"
    updater.weight.accumulate_outer(post, pre, 1e6)
    updater()
    assert not torch.isfinite(fc.weight).all()


def test_what_is_too_large_before_it_is_scaled():
    fc = linear()
    updater = Updater(fc)
    updater.weight.accumulate_outer(torch.full((1, 20), 1e20), torch.full((1, 30), 1e20))
    with pytest.raises(NonFiniteUpdateError):
        updater(scale=1e-10)
    assert torch.equal(fc.weight, torch.full(SHAPE, 0.5))


def test_large_values_that_never_meet_are_no_overflow():
    fc = linear()
    post, pre = torch.zeros(2, 20), torch.zeros(2, 30)
    post[0], pre[1] = 1e30, 1e30
    updater = Updater(fc)
    updater.weight.accumulate_outer(post, pre)
    updater()
    assert torch.equal(fc.weight, torch.full(SHAPE, 0.5))


def test_a_parameter_that_was_replaced_is_told():
    fc = linear()
    updater = Updater(fc)
    updater.weight.accumulate_outer(*sides(2, 0))
    fc.weight = nn.Parameter(torch.zeros(4, 4))
    with pytest.raises(ValueError, match=r"fit the parameter's shape \(4, 4\)"):
        updater()
    fc.weight = nn.Parameter(torch.zeros(SHAPE, dtype=torch.float64))
    updater()
    expected = sides(2, 0)[0].T @ sides(2, 0)[1]
    torch.testing.assert_close(fc.weight.detach(), expected.double())


def saved(updater):
    made = Updater(linear())
    made.load_state_dict(updater.state_dict())
    return made


@pytest.mark.parametrize("survive", [saved, copy.deepcopy, by_pickle])
def test_waits_on_in_a_copy(survive):
    original, model = linear(), linear()
    updater = Updater(original)
    updater.weight.accumulate_outer(*sides(3, 0))
    updater.weight.accumulate_outer(*sides(3, 1), 0.3, negative=True)
    other = survive(updater)
    other.bind(model)
    updater()
    assert waits(other)  # independent of the original
    other()
    assert torch.equal(model.weight, original.weight)  # to the last bit
    again = survive(updater)
    assert again.weight.empty


def test_a_copy_is_as_small_as_what_waits():
    acc = Accumulator(torch.Size((200, 300)))
    acc.accumulate_outer(torch.ones(300, 200), torch.ones(300, 300))  # needs memory for all
    acc.clear()
    acc.accumulate_outer(torch.ones(2, 200), torch.ones(2, 300))
    assert acc.deferred
    assert acc.pos is not None
    assert len(pickle.dumps(acc)) < 4 * 200 * 300 / 4


def test_a_state_is_read_without_trust_whatever_number_the_rate_is():
    updater = Updater(linear())
    updater.weight.accumulate_outer(*sides(2, 0), np.float64(0.5))
    other = Updater(linear())
    other.load_state_dict(by_file(updater.state_dict()))
    assert torch.equal(other.weight.pos, updater.weight.pos)


def test_a_part_that_an_interrupt_left_half_empty_is_empty():
    part = Part()
    part.add_products([(*sides(2, 0), 1.0)], defer=True)
    part.count = 0  # as in the midst of `clear`
    assert not part.deferred
    assert not part.state()["deferred"]


def test_from_inference_mode_into_the_parameter():
    fc = linear()
    updater = Updater(fc)
    with torch.inference_mode():
        post, pre = sides(2, 0)
        updater.weight.accumulate_outer(post, pre)
    assert waits(updater)
    updater()
    torch.testing.assert_close(fc.weight.detach(), 0.5 + sides(2, 0)[0].T @ sides(2, 0)[1])


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
    updater.weight.accumulate_outer(*sides(2, 0), 1.0)
    assert waits(updater)
    with Looks() as seen:
        updater()
    assert seen.count == looks
    assert not torch.equal(fc.weight, linear().weight)

"""Products that are all that is pending wait, and are added to the parameter itself."""

import math
import pickle

import numpy as np
import pytest
import torch
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


def sides(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(rows, n, generator=generator) for n in SHAPE]


def waits(updater):
    return bool(updater.weight.deferred)


def test_only_where_it_spares_something():
    updater = Updater(linear())
    updater.weight.accumulate_outer(*sides(12, 0))  # 600 elements of sides, as many of the weight
    assert waits(updater)
    assert waits(by_pickle(updater))
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

"""Bounds, constraints and policies that once let something wrong through."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import nn

from lightning_accum import Accumulator, NonFiniteUpdateError, attach_updater
from lightning_accum.functional import bound_multiplicative


def test_a_bound_that_forgets_to_return():
    fc = nn.Linear(1, 1, bias=False)
    updater = attach_updater(fc)
    updater.weight.upperbound(lambda param, update, limit: None, 1.0)
    updater.weight = torch.ones(1, 1)
    with pytest.raises(TypeError, match=r"should give a tensor of the parameter's shape \(1, 1\)"):
        updater()


def test_what_a_bound_gives_shares_no_memory():
    acc = Accumulator()
    acc.fullbound(lambda param, pos, neg, max, min: pos, 1.0, 0.0)
    acc.pos = torch.ones(2)
    acc.update(torch.zeros(2)).zero_()
    assert acc.pos.tolist() == [1.0, 1.0]


def test_limits_the_wrong_way_round():
    with pytest.raises(ValueError, match="`max` comes first"):
        Accumulator().fullbound(bound_multiplicative, 0.0, 1.0)


@pytest.mark.parametrize(("dtype", "size", "scale"), [
    (torch.float16, 1e6, 1.0), (torch.float32, 1e30, 1e30),
])  # fmt: skip
def test_what_overflows_only_when_it_is_applied(dtype, size, scale):
    fc = nn.Linear(1, 1, bias=False, dtype=dtype)
    updater = attach_updater(fc)
    updater.weight = torch.full((1, 1), size)
    with pytest.raises(NonFiniteUpdateError):
        updater(scale=scale)
    assert torch.isfinite(fc.weight).all()


def test_a_constraint_that_is_not_in_place():
    fc = nn.Linear(1, 1, bias=False)
    updater = attach_updater(fc)
    updater.register_constraint(lambda w: w.clamp(max=0.5))
    updater.weight = torch.ones(1, 1)
    with pytest.raises(TypeError, match="should change the parameter in place"):
        updater()


def test_a_scale_for_what_is_not_there():
    fc = nn.Linear(1, 1, bias=False)
    updater = attach_updater(fc)
    with pytest.raises(AttributeError, match="wieght"):
        updater(scale={"wieght": 0.1})


def test_a_state_of_another_shape():
    other = Accumulator(torch.Size((2,)))
    other.pos = torch.ones(2)
    with pytest.raises(RuntimeError, match=r"shape \(3,\)\. Found \(2,\)"):
        Accumulator(torch.Size((3,))).load_state_dict(other.state_dict())


def test_memory_that_is_kept_is_not_copied():
    fc = nn.Linear(100, 100, bias=False)
    updater = attach_updater(fc)
    updater.weight = torch.ones(100, 100), torch.ones(100, 100)
    updater()
    assert len(pickle.dumps(fc)) < 50_000

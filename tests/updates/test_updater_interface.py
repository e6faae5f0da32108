"""The interfaces of the source's Accumulator and Updater, call by call."""

import pytest
import torch
from torch import nn

from lightning_accum import Accumulator, Updatable, Updater

W = torch.tensor([0.25, 0.75])
ONE = torch.ones(2)


def test_reduction():
    acc = Accumulator()
    for fn, expected in [
        (torch.mean, 2.0),
        (None, 6.0),
        (torch.prod, 6.0),
        (torch.amax, 3.0),
        (torch.amin, 1.0),
        (lambda stacked, dim: stacked.select(dim, 1), 3.0),
    ]:
        acc.reduction(fn)
        acc.pos, acc.pos, acc.pos = ONE, 3 * ONE, 2 * ONE
        assert acc.pos.tolist() == [expected, expected]
        acc.clear(keep=False)  # it takes any keyword
    acc.reduction()
    acc.pos, acc.pos = ONE, ONE
    assert acc.pos.tolist() == [2.0, 2.0]


def test_bounds_of_the_users_own_get_limits_by_position_and_keywords():
    seen = []

    def half(param, update, limit, **kw):
        seen.append((param.tolist(), limit, kw))
        return update * 0

    acc = Accumulator()
    acc.pos, acc.neg = ONE, 2 * ONE
    acc.upperbound(half, 5.0, max=7.0)  # a keyword of the bound may have any name
    acc.lowerbound(half, -5.0, min=8.0)
    assert acc.update(W).tolist() == [0.0, 0.0]
    assert seen == [(W.tolist(), 5.0, {"max": 7.0}), (W.tolist(), -5.0, {"min": 8.0})]


# ---------------------------------------------------------------------- Updater
class Gate(Updatable, nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(2))
        self.bias = nn.Parameter(torch.zeros(2))


P, N = torch.tensor([3.0, 1.0]), torch.tensor([1.0, 1.0])


@pytest.fixture
def gate():
    return Gate()


def test_the_parameters_are_properties_that_return_accumulators(gate):
    updater = Updater(gate, "weight", "bias")
    assert type(updater) is Updater  # and of no class that is made for it
    assert isinstance(updater, nn.Module)
    assert isinstance(updater.weight, Accumulator)
    assert isinstance(updater.bias, Accumulator)
    assert updater.weight is updater.weight
    assert updater.weight is not updater.bias
    assert Updater._getacc_(updater, "weight") is updater.weight
    with pytest.raises(AttributeError):
        _ = Updater(gate, "bias").weight


@pytest.mark.parametrize("static", [False, True])
def test_assigning_and_deleting(gate, static):
    updater = Updater(gate, "weight", "bias")
    for value, pos, neg in [
        ((P, N), P, N),
        ((P, None), P, None),
        ((None, N), None, N),
        ((None, None), None, None),
        (P, P, None),
        (None, None, None),
    ]:
        updater.bias = P
        if static:
            Updater._setacc_(updater, value, "weight")
        else:
            updater.weight = value
        for found, expected in ((updater.weight.pos, pos), (updater.weight.neg, neg)):
            assert (found is None) == (expected is None)
            assert found is None or torch.equal(found, expected)
        if static:
            Updater._delacc_(updater, "weight")
        else:
            del updater.weight
        assert updater.weight.pos is updater.weight.neg is None
    assert torch.equal(updater.bias.pos, 6 * P)
    with pytest.raises(ValueError, match=r"`updater.weight`.*pair.*Found 3 values"):
        updater.weight = (P, N, P)

"""The interface of the source's Updater, call by call."""

import pytest
import torch
from torch import nn

from lightning_accum import Accumulator, Updatable, Updater


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


@pytest.mark.parametrize(("fn", "expected"), [(None, 4.0), (torch.mean, 2.0), (torch.amax, 3.0)])
def test_the_reduction_is_that_of_every_accumulator(gate, fn, expected):
    updater = Updater(gate, "weight", "bias", reduction=fn)
    for name in ("weight", "bias"):
        for value in (1.0, 3.0):
            setattr(updater, name, torch.full((2,), value))
        assert getattr(updater, name).pos.tolist() == [expected] * 2
    assert Updater(gate, "weight").weight.extra_repr().count("reduction=sum") == 1


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


def test_calling_with_names_applies_those(gate):
    updater = Updater(gate, "weight", "bias")
    updater.weight, updater.bias = P, P
    updater("bias")
    assert gate.weight.tolist() == [0.0, 0.0]
    assert gate.bias.tolist() == [3.0, 1.0]
    assert not updater.weight.empty
    updater("bias", "weight")
    assert gate.weight.tolist() == gate.bias.tolist() == [3.0, 1.0]

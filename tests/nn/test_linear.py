from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from lightning_accum.nn import Linear
from lightning_accum.updates import Updatable


@pytest.mark.parametrize("bias", [True, False])
def test_is_a_torch_linear(bias: bool) -> None:
    connection, reference = Linear(4, 3, bias=bias), nn.Linear(4, 3, bias=bias)
    assert set(connection.state_dict()) == set(reference.state_dict())
    connection.load_state_dict(reference.state_dict())
    x = torch.rand(7, 2, 4)
    assert torch.equal(connection(x), reference(x))
    assert isinstance(connection, nn.Linear)
    assert isinstance(connection, Updatable)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
def test_takes_spikes(dtype: torch.dtype) -> None:
    connection, spikes = Linear(4, 3).double(), torch.rand(7, 2, 4) < 0.5
    assert torch.equal(connection(spikes.to(dtype)), connection(spikes.double()))


def test_copies_are_independent() -> None:
    connection = Linear(4, 3)
    other = copy.deepcopy(connection)
    with torch.no_grad():
        other.weight.add_(1.0)
    torch.testing.assert_close(other.weight, connection.weight + 1.0)

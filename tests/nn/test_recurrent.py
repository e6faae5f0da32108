"""Spikes that come back after a delay, compared with a loop over single steps."""

from __future__ import annotations

import pytest
import torch
from rasters import raster
from torch import Tensor
from turns import turns

import lightning_accum as la
from lightning_accum.nn import LIF, Recurrent, SparseLinear

STEPS, BATCH, SIZE = 11, 2, 6


def layer(delay: int, time_dim: int | None) -> Recurrent:
    torch.manual_seed(0)
    connection = SparseLinear(SIZE, SIZE, 0.5, bias=False, dtype=torch.float64)
    connection.weight.data.uniform_(0.1, 0.6)
    return Recurrent(connection, LIF(SIZE, 5.0, time_dim=time_dim), delay, time_dim)


def naive(x: Tensor, delay: int) -> tuple[Tensor, Tensor]:
    """The spikes of each step, and those that arrive in it."""
    dense, neuron = layer(delay, None).connection.dense().detach(), LIF(SIZE, 5.0)
    spikes, arriving = [], []
    for t, current in enumerate(x):
        arriving.append(spikes[t - delay] if t >= delay else torch.zeros_like(current))
        spikes.append(neuron(current + arriving[-1] @ dense.T))
    return torch.stack(spikes), torch.stack(arriving)


X = 0.6 * raster(STEPS, BATCH, SIZE, density=0.6)


@turns("delay", [1, 3, 20])
@turns("cut", [0, 1, 4, STEPS])
def test_equals_a_loop_however_a_sequence_is_cut(delay: int, cut: int) -> None:
    expected, _ = naive(X, delay)
    assert expected.any()
    whole, single = layer(delay, 0), layer(delay, None)
    assert torch.equal(torch.cat((whole(X[:cut]), whole(X[cut:]))), expected)
    assert torch.equal(torch.stack([single(x) for x in X]), expected)
    whole.reset()
    assert torch.equal(whole(X), expected)


@turns("time_dim", [None, 0])
@turns("delay", [1, 3])
def test_rules_learn_of_what_arrives(time_dim: int | None, delay: int) -> None:
    recurrent, rule = layer(delay, time_dim), la.STDP(0.3, -0.2, time_dim=time_dim)
    rule.register_cell("cell", la.Cell(recurrent.connection, recurrent.neuron))
    for x in [X] if time_dim == 0 else X:
        recurrent(x)
    rule()
    spikes, arriving = naive(X, delay)
    trace = la.functional.trace
    decay = la.functional.decay_factor(20.0)
    up = torch.einsum("tbo,tbi->oi", spikes, trace(arriving, decay)) * 0.3 / BATCH
    down = torch.einsum("tbo,tbi->oi", trace(spikes, decay), arriving) * 0.2 / BATCH
    weight = la.get_updater(recurrent.connection).weight
    places = recurrent.connection.indices.long().unbind()
    for found, expected in ((weight.pos, up), (weight.neg, down)):
        torch.testing.assert_close(found, expected[places], rtol=1e-10, atol=1e-10)


def test_gradients_pass_through_the_delay() -> None:
    connection = SparseLinear(SIZE, SIZE, 0.5, bias=False, dtype=torch.float64)
    recurrent = Recurrent(connection, torch.nn.Identity(), 2, 0)
    x = X.clone().requires_grad_()
    recurrent(x)[-1].sum().backward()
    w, expected = connection.dense().detach(), torch.zeros_like(X)
    grad = torch.ones(BATCH, SIZE).double()
    for t in range(STEPS - 1, -1, -2):
        expected[t], grad = grad, grad @ w
    torch.testing.assert_close(x.grad, expected)


def test_wrong_arguments_are_rejected() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        layer(0, 0)
    with pytest.raises(ValueError, match="that of the neuron"):
        Recurrent(torch.nn.Identity(), LIF(2, time_dim=0))
    with pytest.raises(ValueError, match=r"shape \[T, B, N\]"):
        layer(1, 0)(torch.ones(2, SIZE))
    recurrent, other = layer(2, 0), layer(3, 0)
    recurrent(X)
    with pytest.raises(RuntimeError, match="3 steps"):
        other.load_state_dict(recurrent.state_dict())

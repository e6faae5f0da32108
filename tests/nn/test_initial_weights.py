"""Weights that begin as samples: each output has one of its own, of the norm that is asked for."""

import pytest
import torch
from torch import nn

from lightning_accum.nn import Conv2d, Linear, init_from_data_


def one_by_one(weight, samples, norm, order, seed):
    """The same in plain Python, sample by sample, in double precision."""
    rows = [each.double().flatten() for each in samples if each.any()]
    places = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    found = [rows[i] for i in places[: len(weight)].tolist()]
    if norm is not None:
        found = [row / row.abs().pow(order).sum().pow(1 / order) * norm for row in found]
    return torch.stack(found).view(weight.shape)


@pytest.mark.parametrize(("norm", "order"), [(None, 2.0), (0.2, 2.0), (8.0, 1.0)])
@pytest.mark.parametrize("module", [Linear(12, 7), nn.Conv2d(3, 7, 2), Conv2d(3, 7, 2)], ids=repr)
def test_equals_the_plain_form(module, norm, order):
    samples = torch.randn(9, 3, 4) * (torch.arange(9) != 4).view(-1, 1, 1)  # one is zeros
    weight, bias = module.weight, module.bias.clone()
    generator = torch.Generator().manual_seed(3)
    assert init_from_data_(weight, samples, norm, order, generator) is weight
    expected = one_by_one(weight, samples, norm, order, 3)
    torch.testing.assert_close(weight.detach().double(), expected, rtol=1e-6, atol=1e-6)
    assert weight.requires_grad
    assert weight.is_leaf
    assert torch.equal(module.bias, bias)


def test_follows_the_global_generator_and_leaves_it_alone_with_one_of_its_own():
    samples = torch.rand(30, 4)
    torch.manual_seed(0)
    one = init_from_data_(torch.empty(6, 4), samples)
    init_from_data_(torch.empty(6, 4), samples, generator=torch.Generator().manual_seed(1))
    two = init_from_data_(torch.empty(6, 4), samples)
    torch.manual_seed(0)
    assert torch.equal(init_from_data_(torch.empty(6, 4), samples), one)
    assert torch.equal(init_from_data_(torch.empty(6, 4), samples), two)
    assert not torch.equal(one, two)


@pytest.mark.parametrize("stored", [torch.uint8, torch.bool, torch.float16, torch.float64])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_samples_and_weights_of_any_dtype(stored, dtype, device):
    samples = (torch.rand(9, 6, device=device) < 0.9).to(stored)
    weight = torch.empty(4, 6, dtype=dtype, device=device)
    init_from_data_(weight, samples, norm=2.0)
    lengths = weight.double().norm(dim=1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 2.0), rtol=1e-2, atol=0)


REFUSED = [
    (torch.empty(4), torch.rand(9, 6), r"`weight` should have shape \[out, \.\.\.\]. Found"),
    (torch.empty(4, 6), torch.rand(9, 5), "6 numbers in a sample.*Found.*: for a conv.*patches"),
    (torch.empty(4, 6), torch.rand(6), r"`samples` should have shape \[N, \.\.\.\]"),
    (torch.empty(4, 6), torch.full((9, 6), torch.nan), "should be finite. Found NaN or inf: leave"),
    (torch.empty(4, 6), torch.rand(3, 6), "each of 4 outputs. Found 3: pass more"),
    (torch.empty(4, 6), torch.eye(9, 6)[3:], "each of 4 outputs. Found 3: pass more"),
]


@pytest.mark.parametrize(("weight", "samples", "words"), REFUSED)
def test_refuses_what_does_not_fit_and_leaves_the_weight(weight, samples, words):
    before = weight.zero_().clone()
    with pytest.raises(ValueError, match=words):
        init_from_data_(weight, samples, norm=1.0)
    assert torch.equal(weight, before)


def test_refuses_what_is_no_tensor():
    with pytest.raises(TypeError, match=r"`samples` should be a tensor. Found"):
        init_from_data_(torch.empty(2, 2), [[1.0, 2.0]])
    with pytest.raises(ValueError, match=r"`norm` should be a positive number. Found `norm = 0"):
        init_from_data_(torch.empty(2, 2), torch.rand(3, 2), norm=0.0)

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lightning_accum.functional.constraints import clamp_, normalize_

shapes = st.lists(st.integers(1, 4), min_size=2, max_size=4)
orders = st.sampled_from([1, 2, 3, 1.5, math.inf])


@settings(deadline=None)
@given(shape=shapes, order=orders, norm=st.floats(0.1, 100), seed=st.integers(0, 2**16))
def test_every_output_gets_the_norm_and_keeps_its_direction(shape, order, norm, seed):
    w = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    before = w.clone()
    assert normalize_(w, norm, order) is w
    for row, old in zip(w.flatten(1).tolist(), before.flatten(1).tolist(), strict=True):
        size = [abs(x) for x in old]
        p_norm = max(size) if order == math.inf else sum(x**order for x in size) ** (1 / order)
        assert row == pytest.approx([x / p_norm * norm for x in old], rel=1e-10)


def test_norm_over_chosen_dimensions():
    w = torch.arange(1.0, 13.0).view(2, 3, 2)
    normalize_(w, 2.0, 1, dim=0)
    torch.testing.assert_close(w.sum(0), torch.full((3, 2), 2.0))
    normalize_(w, 3.0, 1, dim=(0, -1))
    torch.testing.assert_close(w.sum((0, 2)), torch.full((3,), 3.0))


def test_negative_weights_count_by_their_size_and_keep_their_sign():
    w = normalize_(torch.tensor([[1.0, -3.0]]), 1.0)
    assert w.tolist() == [[0.25, -0.75]]


@pytest.mark.parametrize("norm", [1.0, 1e3, 1e30])
@pytest.mark.parametrize("order", [1, 2, math.inf])
def test_rows_of_zeros_stay_zero(norm, order):
    w = normalize_(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), norm, order)
    assert w[0].tolist() == [0.0, 0.0]
    assert w[1].isfinite().all()


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("tiny", [1e-25, 1e-38, 1e-44])
def test_rows_whose_norm_vanishes_do_not_explode(tiny, order):
    w = torch.full((1, 4), tiny)
    # The squares of 1e-25 are zero in float32, and 1e3 / 4e-38 is infinite.
    normalize_(w, 1e3, order)
    assert w.max() <= 1e3


def test_low_precision_weights_are_rounded_once():
    w = torch.rand(8, 100, generator=torch.Generator().manual_seed(0)).bfloat16()
    expected = normalize_(w.float(), 78.4).bfloat16()
    assert torch.equal(normalize_(w, 78.4), expected)
    assert w.dtype == torch.bfloat16


def test_parameters_are_written_in_place_without_a_graph():
    p = nn.Parameter(torch.tensor([[2.0, -6.0]]))
    alias = p.data
    normalize_(p)
    clamp_(p, min=-0.5)
    assert alias.tolist() == [[0.25, -0.5]]
    assert p.is_leaf
    assert p.requires_grad


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"min": 0.0}, [0.0, 0.5, 2.0]),
        ({"max": 1.0}, [-1.0, 0.5, 1.0]),
        ({"min": 0.0, "max": 1.0}, [0.0, 0.5, 1.0]),
        ({"min": 0.5, "max": 0.5}, [0.5, 0.5, 0.5]),
    ],
)
def test_clamp(limits, expected):
    w = torch.tensor([-1.0, 0.5, 2.0])
    assert clamp_(w, **limits) is w
    assert w.tolist() == expected


def test_clamp_refuses_limits_that_mean_nothing():
    w = torch.zeros(2)
    with pytest.raises(ValueError, match="both be None"):
        clamp_(w)
    with pytest.raises(ValueError, match="`min` should not be above"):
        clamp_(w, 1.0, 0.0)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
def test_normalize_refuses_what_is_not_positive(value):
    w = torch.ones(2, 2)
    with pytest.raises(ValueError, match="Argument `norm`"):
        normalize_(w, value)
    with pytest.raises(ValueError, match="Argument `order`"):
        normalize_(w, 1.0, value)
    assert w.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_normalize_refuses_an_infinite_norm():
    with pytest.raises(ValueError, match="Argument `norm`"):
        normalize_(torch.ones(2, 2), math.inf)


def test_normalize_refuses_parameters_it_cannot_scale():
    with pytest.raises(TypeError, match="floating-point"):
        normalize_(torch.ones(2, 2, dtype=torch.long))
    with pytest.raises(ValueError, match="Argument `dim`"):
        normalize_(torch.ones(3))
    with pytest.raises(ValueError, match="Argument `dim`"):
        normalize_(torch.ones(3, 3), dim=())
    assert normalize_(torch.ones(4), dim=0).tolist() == [0.25] * 4


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["min", "max"])
def test_clamp_refuses_limits_that_are_not_finite(name, value):
    w = torch.tensor([-1.0, 2.0])
    with pytest.raises(ValueError, match=f"Argument `{name}` should be finite"):
        clamp_(w, **{name: value})
    assert w.tolist() == [-1.0, 2.0]


@pytest.mark.parametrize("wrong", [[1.0], 1.0, None])
def test_what_is_constrained_is_a_tensor(wrong):
    with pytest.raises(TypeError, match="Argument `param` should be a tensor"):
        clamp_(wrong, 0.0)
    with pytest.raises(TypeError, match="Argument `param` should be a tensor"):
        normalize_(wrong)


def test_normalize_refuses_dimensions_that_are_not_there():
    for dim in (-2, 1, (0, -1)):
        w = normalize_(torch.ones(2, 4), dim=dim)
        over = [0, 1] if isinstance(dim, tuple) else [dim]
        assert torch.allclose(w.sum(over), torch.ones(()))
    for dim in (2, -3, (0, 2), (-3, 1), 0.5, (0.0,), "1"):
        w = torch.ones(2, 4)
        with pytest.raises((ValueError, TypeError), match=r"dim|iterable"):
            normalize_(w, dim=dim)
        assert w.eq(1).all()

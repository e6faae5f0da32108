from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lightning_accum.functional.constraints import clamp_, normalize_


@settings(deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    order=st.sampled_from([1, 2, 3, 1.5, math.inf]),
    norm=st.floats(0.1, 100),
    seed=st.integers(0, 2**16),
)
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
    for dim in (-2, 1, (0, -1)):
        w = normalize_(torch.ones(2, 4), dim=dim)
        assert torch.allclose(w.sum(dim), torch.ones(())), dim
    assert normalize_(torch.ones(4), dim=0).tolist() == [0.25] * 4


@pytest.mark.parametrize("order", [1, 2, math.inf])
def test_rows_without_a_norm_stay_finite(order):
    for norm in (1.0, 1e3, 1e30):
        w = normalize_(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), norm, order)
        assert w[0].tolist() == [0.0, 0.0], norm
        assert w[1].isfinite().all(), norm
    for tiny in (1e-25, 1e-38, 1e-44):
        # The squares of 1e-25 are zero in float32, and 1e3 / 4e-38 is infinite.
        w = normalize_(torch.full((1, 4), tiny), 1e3, order)
        assert w.max() <= 1e3, tiny
    assert w.max() < 1e-40  # too small to be scaled


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


def test_clamp():
    for limits, expected in (
        ({"min": 0.0}, [0.0, 0.5, 2.0]),
        ({"max": 1.0}, [-1.0, 0.5, 1.0]),
        ({"min": 0.5, "max": 0.5}, [0.5, 0.5, 0.5]),
    ):
        w = torch.tensor([-1.0, 0.5, 2.0])
        assert clamp_(w, **limits) is w
        assert w.tolist() == expected, limits


NUMBERS = (0.0, -1.0, math.nan)
REFUSED = [
    *((normalize_, {"norm": each}, "`norm`") for each in (*NUMBERS, math.inf)),
    *((normalize_, {"order": each}, "`order`") for each in NUMBERS),
    *((normalize_, {"dim": d}, "`dim`") for d in ((), 2, -3, (0, 2), (-3, 1), (0.0,), "1")),
    (normalize_, {"dim": 0.5}, "iterable"),
    (normalize_, {"param": torch.ones(2, 2, dtype=torch.long)}, "floating-point"),
    (normalize_, {"param": torch.ones(3)}, "`dim` should name at least one"),
    *((normalize_, {"param": each}, "`param` should be a tensor") for each in ([1.0], 1.0, None)),
    *((clamp_, {"min": 0.0, "param": w}, "`param` should be a tensor") for w in ([1.0], 1.0, None)),
    (clamp_, {}, "both be None"),
    (clamp_, {"min": 1.0, "max": 0.0}, "`min` should be at most"),
    *((clamp_, {"min": v}, "`min` should be finite") for v in (math.nan, math.inf, -math.inf)),
    *((clamp_, {"max": v}, "`max` should be finite") for v in (math.nan, math.inf, -math.inf)),
]


def test_what_makes_no_sense_is_rejected_and_changes_nothing():
    for fn, options, words in REFUSED:
        w = torch.ones(2, 4)
        with pytest.raises((TypeError, ValueError), match=words):
            fn(**{"param": w, **options})
        assert w.eq(1).all(), options

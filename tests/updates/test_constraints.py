import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lightning_accum import Clamp, Normalize


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
    Normalize(norm, order)(w)
    for row, old in zip(w.flatten(1).tolist(), before.flatten(1).tolist(), strict=True):
        size = [abs(x) for x in old]
        p_norm = max(size) if order == math.inf else sum(x**order for x in size) ** (1 / order)
        assert row == pytest.approx([x / p_norm * norm for x in old], rel=1e-10)


@pytest.mark.parametrize("order", [1, 2, math.inf])
def test_rows_without_a_norm_stay_finite(order):
    for norm in (1.0, 1e3, 1e30):
        w = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
        Normalize(norm, order)(w)
        assert w[0].tolist() == [0.0, 0.0], norm
        assert w[1].isfinite().all(), norm
    for tiny in (1e-25, 1e-38, 1e-44):
        # The squares of 1e-25 are zero in float32, and 1e3 / 4e-38 is infinite.
        w = torch.full((1, 4), tiny)
        Normalize(1e3, order)(w)
        assert w.max() <= 1e3, tiny
    assert w.max() < 1e-40  # too small to be scaled


def test_low_precision_weights_are_rounded_once():
    w = torch.rand(8, 100, generator=torch.Generator().manual_seed(0)).bfloat16()
    wide = w.float()
    Normalize(78.4)(w), Normalize(78.4)(wide)
    assert torch.equal(w, wide.bfloat16())
    assert w.dtype == torch.bfloat16


def test_parameters_are_written_in_place_without_a_graph():
    p = nn.Parameter(torch.tensor([[2.0, -6.0]]))
    alias = p.data
    Normalize()(p), Clamp(min=-0.5)(p)
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
        Clamp(**limits)(w)
        assert w.tolist() == expected, limits


NUMBERS = (0.0, -1.0, math.nan)
INFINITE = (math.nan, math.inf, -math.inf)
REFUSED = [
    *((Normalize, {"norm": each}, "`norm`") for each in (*NUMBERS, math.inf)),
    *((Normalize, {"order": each}, "`order`") for each in NUMBERS),
    (Clamp, {}, "both be None"),
    (Clamp, {"min": 1.0, "max": 0.0}, "`min` should be at most"),
    *(
        (Clamp, {name: v}, f"`{name}` should be finite")
        for v in INFINITE
        for name in ("min", "max")
    ),
]


def test_what_makes_no_sense_is_rejected():
    for kind, options, words in REFUSED:
        with pytest.raises((TypeError, ValueError), match=words):
            kind(**options)
    for param, words in (
        (torch.ones(2, 2, dtype=torch.long), "floating-point"),
        (torch.ones(3), "should have incoming dimensions"),
        *((each, "`param` should be a tensor") for each in ([1.0], 1.0, None)),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            Normalize()(param)
    with pytest.raises(TypeError, match="`param` should be a tensor"):
        Clamp(0.0)([1.0])

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from lightning_accum.functional import (
    interp_exponential,
    interp_linear,
    interp_nearest,
    interp_next,
    interp_previous,
)

decayed = partial(interp_exponential, tc=3.0)
NAIVE = {
    interp_previous: lambda a, b, t, dt: a,
    interp_next: lambda a, b, t, dt: b,
    interp_nearest: lambda a, b, t, dt: a if t <= dt / 2 else b,
    interp_linear: lambda a, b, t, dt: a * (1 - t / dt) + b * t / dt,
    decayed: lambda a, b, t, dt: a * math.exp(-t / 3.0),
}
value = st.floats(-5, 5)


@pytest.mark.parametrize("interpolation", NAIVE)
@settings(deadline=None, derandomize=True, max_examples=20)
@given(
    points=st.lists(st.tuples(value, value, st.floats(0, 1)), min_size=1, max_size=5),
    dt=st.sampled_from([0.1, 1.0, 2.5]),
)
def test_as_the_naive_reference(interpolation, points, dt):
    points = [(a, b, t * dt) for a, b, t in points]
    earlier, later, elapsed = torch.tensor(points, dtype=torch.float64).unbind(1)
    expected = [NAIVE[interpolation](a, b, t, dt) for a, b, t in points]
    found = interpolation(earlier, later, elapsed, dt)
    assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("interpolation", NAIVE)
def test_at_the_earlier_one_it_is_the_earlier_one_in_no_narrower_dtype(interpolation):
    for dtype in (torch.bool, torch.int64, torch.float32, torch.float64):
        earlier = torch.tensor([0, 1]).to(dtype)
        found = interpolation(earlier, earlier, torch.zeros(()), 1.0)
        assert found.tolist() == [0, 1], dtype
        assert torch.promote_types(found.dtype, dtype) == found.dtype


def test_half_of_a_boolean():
    found = interp_linear(torch.tensor([False]), torch.tensor([True]), torch.tensor(0.5), 1.0)
    assert found.tolist() == [0.5]


def test_what_does_not_fit_is_rejected() -> None:
    for tc in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match=r"Argument `tc`.*Found `tc = "):
            interp_exponential(torch.ones(1), torch.ones(1), torch.zeros(()), 1.0, tc)
    values = {"earlier": torch.ones(2), "later": torch.zeros(2), "elapsed": torch.tensor(0.5)}
    for name in ("later", "elapsed"):
        with pytest.raises(TypeError, match=f"`{name}` should be real"):
            interp_linear(**{**values, name: values[name].cfloat()}, dt=1.0)
    both = {name: v.cfloat() if name != "elapsed" else v for name, v in values.items()}
    assert torch.equal(interp_linear(**both, dt=1.0), torch.full((2,), 0.5).cfloat())

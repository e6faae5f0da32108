import math

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from lightning_accum.optim import AdamWarmup, AdamWarmupCosineDecay, Noam
from lightning_accum.optim._moments import rectification

STEPS = st.integers(1, 10**6)


def both(function, step, *args):
    """The factor by a number and by a tensor, which have to agree."""
    number = function(step, *args)
    tensor = function(torch.tensor(float(step), dtype=torch.float64), *args)
    assert isinstance(number, float)
    assert tensor.item() == pytest.approx(number, rel=1e-9, abs=1e-12)
    return number


def factor(kind, step, **options):
    """The rate of an optimizer, for a rate of one."""
    optimizer = kind([torch.zeros(1)])
    return both(lambda t: optimizer.rate({"lr": 1.0, **options}, t), step)


@hypothesis.example(10**9, 0)
@hypothesis.example(1, 0.5)
@hypothesis.example(1, 3)
@hypothesis.given(STEPS, st.integers(0, 10**4))
def test_warmup(step, warmup):
    expected = 1.0 if step >= warmup else step / warmup
    assert factor(AdamWarmup, step, warmup=warmup) == pytest.approx(expected)


@hypothesis.given(STEPS, st.integers(1, 10**4), st.integers(1, 4096))
def test_noam(step, warmup, width):
    expected = min(1 / math.sqrt(step), step / warmup**1.5) / math.sqrt(width)
    found = factor(Noam, step, warmup=warmup, d_model=width)
    assert found == pytest.approx(expected)
    assert found <= factor(Noam, warmup, warmup=warmup, d_model=width) * (1 + 1e-9)


@hypothesis.given(STEPS, st.integers(0, 100), st.integers(1, 10**4))
def test_cosine(step, warmup, rest):
    total = warmup + rest
    found = factor(AdamWarmupCosineDecay, step, warmup=warmup, total_steps=total)
    if step < warmup:
        assert found == pytest.approx(step / warmup)
    elif step < total:
        assert found == pytest.approx(math.cos((step - warmup) / rest * math.pi / 2) ** 2)
    else:
        assert found == 0.0


@hypothesis.given(st.integers(1, 10**5), st.sampled_from([0.0, 0.5, 0.7, 0.9, 0.99, 0.999]))
def test_rectification(step, beta2):
    found = both(rectification, step, beta2)
    rho_inf = 2 / (1 - beta2) - 1
    rho = rho_inf - 2 * step * beta2**step / (1 - beta2**step)
    if rho < 5:
        assert found == 0.0
    else:
        square = (rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)
        assert found == pytest.approx(math.sqrt(square))
        assert 0 < found <= 1
        assert found <= rectification(step + 1, beta2) + 1e-12

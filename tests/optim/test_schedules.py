from __future__ import annotations

import math

import hypothesis
import hypothesis.strategies as st
import pytest
import torch

from lightning_accum.functional.optimization import (
    belief_moment,
    bias_correction,
    first_moment,
    moment_step,
    noam_factor,
    rectification,
    second_moment,
    warmup_cosine_factor,
    warmup_factor,
)
from lightning_accum.optim import AdamWarmup, AdamWarmupCosineDecay, Noam

STEPS = st.integers(1, 10**6)


def both(function, step, *args):
    """The factor by a number and by a tensor, which have to agree."""
    number = function(step, *args)
    tensor = function(torch.tensor(float(step), dtype=torch.float64), *args)
    assert isinstance(number, float)
    assert tensor.item() == pytest.approx(number, rel=1e-9, abs=1e-12)
    return number


@hypothesis.given(STEPS, st.integers(0, 10**4))
def test_warmup(step, warmup):
    expected = 1.0 if step >= warmup else step / warmup
    assert both(warmup_factor, step, warmup) == pytest.approx(expected)


def test_without_warmup_there_is_no_rise():
    for step in (1, 7, 10**9):
        assert both(warmup_factor, step, 0) == 1.0
        assert both(warmup_factor, step, 0.5) == 1.0
    assert both(warmup_factor, 1, 3) == 1 / 3


@hypothesis.given(STEPS, st.integers(1, 10**4), st.integers(1, 4096))
def test_noam(step, warmup, width):
    expected = min(1 / math.sqrt(step), step / warmup**1.5) / math.sqrt(width)
    assert both(noam_factor, step, warmup, width) == pytest.approx(expected)
    assert both(noam_factor, step, warmup, width) <= noam_factor(warmup, warmup, width) * (1 + 1e-9)


@hypothesis.given(STEPS, st.integers(0, 100), st.integers(1, 10**4))
def test_cosine(step, warmup, rest):
    total = warmup + rest
    found = both(warmup_cosine_factor, step, warmup, total)
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


def test_rates_follow_the_formulas():
    weight = torch.nn.Parameter(torch.ones(1))
    curves = [
        (AdamWarmup([weight], lr=0.3, warmup=5), lambda t: 0.3 * min(1, t / 5)),
        (AdamWarmup([weight], lr=0.3), lambda t: 0.3),
        (Noam([weight], lr=2.0, warmup=5, d_model=4), lambda t: min(t**-0.5, t * 5**-1.5)),
        (
            AdamWarmupCosineDecay([weight], lr=0.3, warmup=2, total_steps=10),
            lambda t: 0.15 * t if t < 2 else 0.15 * (1 + math.cos(math.pi * min(1, (t - 2) / 8))),
        ),
    ]
    for optimizer, formula in curves:
        group = optimizer.param_groups[0]
        assert [optimizer.rate(group, t) for t in range(1, 15)] == pytest.approx(
            [formula(t) for t in range(1, 15)]
        )


def test_steps_are_as_long_as_the_rate():
    # Adam's step for a gradient that never changes is the rate itself.
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = Noam([weight], lr=2.0, warmup=5, d_model=4, eps=0.0)
    for t in range(1, 15):
        before = weight.item()
        weight.grad = torch.full((1,), 3.0, dtype=torch.float64)
        optimizer.step()
        assert before - weight.item() == pytest.approx(min(t**-0.5, t * 5**-1.5))


# Code that torch 2.4 compiled, once it has been loaded, makes zeros of subnormals in the process.
@hypothesis.given(
    st.lists(st.floats(-10, 10, allow_subnormal=False), min_size=1, max_size=20),
    st.floats(0, 0.99, allow_subnormal=False),
)
def test_moments_are_weighted_means(values, beta):
    mean = square = spread = torch.zeros((), dtype=torch.float64)
    weights = [(1 - beta) * beta**k for k in reversed(range(len(values)))]
    means = []
    for value in values:
        grad = torch.tensor(value, dtype=torch.float64)
        mean = first_moment(mean, grad, beta)
        square = second_moment(square, grad, beta)
        spread = belief_moment(spread, grad, mean, beta, 0.5)
        means.append(mean.item())
    total = bias_correction(beta, len(values))
    assert sum(weights) == pytest.approx(total)
    pairs = list(zip(weights, values, strict=True))
    assert mean.item() == pytest.approx(sum(w * g for w, g in pairs), abs=1e-9)
    assert square.item() == pytest.approx(sum(w * g * g for w, g in pairs), abs=1e-9)
    distances = zip(weights, values, means, strict=True)
    inner = 0.5 * sum(beta**k for k in range(len(values)))
    expected = sum(w * (g - m) ** 2 for w, g, m in distances) + inner
    assert spread.item() == pytest.approx(expected, abs=1e-9)
    change = moment_step(mean, square, 2.0, 0.5, 1.0)
    assert change.item() == pytest.approx(2 * mean.item() / (0.5 * square.item() ** 0.5 + 1))


def steps(optimizer, count):
    (weight,) = optimizer.param_groups[0]["params"]
    for _ in range(count):
        weight.grad = torch.ones_like(weight)
        optimizer.step()


@pytest.mark.parametrize("options", [{}, {"fused": False}, {"foreach": False}])
def test_steps_long_after_the_end_of_a_schedule_are_told_once(options):
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = AdamWarmupCosineDecay([weight], total_steps=100, **options)
    steps(optimizer, 120)  # a few more than planned may be meant
    with pytest.warns(UserWarning, match=r"`total_steps` of .*Found 100 and step 121: the"):
        steps(optimizer, 1)
    before = weight.detach().clone()
    steps(optimizer, 10)
    assert torch.equal(weight, before)


def test_a_rate_of_adam_given_to_noam_is_told():
    weight = torch.nn.Parameter(torch.ones(2))
    with pytest.warns(UserWarning, match=r"about 1\. Found 0\.001.*7\.0e-07 at most.*`lr=1\.4`"):
        Noam([weight], lr=1e-3)
    for lr, more in [(1.0, {}), (0.0, {}), (0.1, {}), (1e-3, {"warmup": 10, "d_model": 16})]:
        Noam([weight], lr=lr, **more)

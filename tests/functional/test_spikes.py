"""How spikes are drawn, what their pseudo-derivatives are, and what autograd makes of both."""

import math
import pickle

import pytest
import torch

from lightning_accum.functional.surrogate_gradients import (
    ArcTan,
    FastSigmoid,
    Triangular,
    poisson_encode,
)

EVERY = [Triangular(), Triangular(0.5, 2.0), FastSigmoid(), FastSigmoid(3.0), ArcTan(), ArcTan(0.7)]
X = torch.linspace(-3, 3, 121, dtype=torch.float64)


def formula(surrogate, x):
    match surrogate:
        case Triangular(gamma, width):
            return gamma / width * max(0.0, 1 - abs(x) / width)
        case FastSigmoid(slope):
            return 1 / (1 + slope * abs(x)) ** 2
        case ArcTan(alpha):
            return alpha / 2 / (1 + (math.pi / 2 * alpha * x) ** 2)
    raise AssertionError


@pytest.mark.parametrize("surrogate", EVERY, ids=str)
def test_a_spike_is_a_step_and_its_gradient_the_formula(surrogate):
    before, x = X.clone(), X.clone().requires_grad_()
    expected = torch.tensor([formula(surrogate, each) for each in X.tolist()], dtype=X.dtype)
    torch.testing.assert_close(surrogate.derivative(X), expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(X, before)
    spikes = surrogate.spike(x)
    assert torch.equal(spikes, (X >= 0).to(X.dtype))
    weights = torch.arange(len(X), dtype=X.dtype)
    spikes.backward(weights)
    torch.testing.assert_close(x.grad, weights * expected)
    again = pickle.loads(pickle.dumps(surrogate))
    assert (again, hash(again)) == (surrogate, hash(surrogate))


def test_shape_and_dtype():
    spikes = poisson_encode(torch.rand(3, 4, 5, requires_grad=True), steps=7, p=0.5)
    assert spikes.shape == (7, 3, 4, 5)
    assert spikes.dtype == torch.bool
    assert not spikes.requires_grad
    assert poisson_encode(torch.empty(0, 4), 3).shape == (3, 0, 4)


def test_rate_is_proportional_to_intensity():
    x, n = torch.linspace(0, 1, 11), 40_000
    for p in (0.02, 0.5, 1.0):
        rate = poisson_encode(x, n, p, torch.Generator().manual_seed(0)).double().mean(0)
        expected = x.double() * p
        sigma = (expected * (1 - expected) / n).sqrt()  # 0 where it is certain
        assert ((rate - expected).abs() <= 5 * sigma + 1e-12).all(), p
    # half precision could not tell these probabilities apart
    x = torch.full((1000,), 0.001, dtype=torch.bfloat16)
    rate = poisson_encode(x, 2000, 0.1, torch.Generator().manual_seed(0)).double().mean()
    assert 0.8e-4 < rate < 1.2e-4


def test_steps_and_entries_are_independent():
    spikes = poisson_encode(torch.full((200,), 0.5), 500, 1.0, torch.Generator().manual_seed(1))
    s = spikes.double() - 0.5
    assert abs((s[1:] * s[:-1]).mean()) < 0.25 * 5 / (499 * 200) ** 0.5
    assert abs((s[:, 1:] * s[:, :-1]).mean()) < 0.25 * 5 / (500 * 199) ** 0.5


def test_what_makes_no_sense_is_rejected():
    for kind in (Triangular, FastSigmoid, ArcTan):
        for value in (0.0, -1.0, float("nan"), float("inf"), "1"):
            with pytest.raises((TypeError, ValueError), match=r"Argument `\w+` should be"):
                kind(value)
    for bad in (-0.1, 1.1, float("nan")):
        x = torch.tensor([0.5, bad])
        with pytest.raises(ValueError, match=r"Argument `x` should hold intensities in \[0, 1\]"):
            poisson_encode(x, 3)
        with pytest.raises(ValueError, match="Argument `p` should be a probability"):
            poisson_encode(torch.rand(2), 3, bad)
    assert poisson_encode(torch.rand(2), 1).shape == (1, 2)
    for steps in (0, -1):
        with pytest.raises(ValueError, match=f"`steps` should be .* Found `steps = {steps}`"):
            poisson_encode(torch.rand(2), steps)

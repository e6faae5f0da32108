"""Pseudo-derivatives: what their formulas say, and what autograd makes of the spike."""

from __future__ import annotations

import math
import pickle

import pytest
import torch

from lightning_accum.functional.spikes import ArcTan, FastSigmoid, Surrogate, Triangular

EVERY = [Triangular(), Triangular(0.5, 2.0), FastSigmoid(), FastSigmoid(3.0), ArcTan(), ArcTan(0.7)]
X = torch.linspace(-3, 3, 121, dtype=torch.float64)


def formula(surrogate: Surrogate, x: float) -> float:
    match surrogate:
        case Triangular(gamma, width):
            return gamma / width * max(0.0, 1 - abs(x) / width)
        case FastSigmoid(slope):
            return 1 / (1 + slope * abs(x)) ** 2
        case ArcTan(alpha):
            return alpha / 2 / (1 + (math.pi / 2 * alpha * x) ** 2)
    raise AssertionError


@pytest.mark.parametrize("surrogate", EVERY, ids=str)
def test_the_derivative_is_the_formula(surrogate: Surrogate) -> None:
    before = X.clone()
    expected = torch.tensor([formula(surrogate, x) for x in X.tolist()], dtype=X.dtype)
    torch.testing.assert_close(surrogate.derivative(X), expected, rtol=1e-12, atol=1e-12)
    assert torch.equal(X, before)


@pytest.mark.parametrize("surrogate", EVERY, ids=str)
def test_a_spike_is_a_step_and_its_gradient_the_derivative(surrogate: Surrogate) -> None:
    x = X.clone().requires_grad_()
    spikes = surrogate.spike(x)
    assert torch.equal(spikes, (X >= 0).to(X.dtype))
    weights = torch.arange(len(X), dtype=X.dtype)
    spikes.backward(weights)
    torch.testing.assert_close(x.grad, weights * surrogate.derivative(X))


@pytest.mark.parametrize("kind", [Triangular, FastSigmoid, ArcTan])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), "1"])
def test_what_makes_no_sense_is_rejected(kind: type[Surrogate], value: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"Argument `\w+` should be"):
        kind(value)  # type: ignore[call-arg]


@pytest.mark.parametrize("surrogate", EVERY, ids=str)
def test_it_can_be_saved_and_compared(surrogate: Surrogate) -> None:
    assert pickle.loads(pickle.dumps(surrogate)) == surrogate
    assert hash(surrogate) == hash(pickle.loads(pickle.dumps(surrogate)))

from __future__ import annotations

import pytest
import torch

from lightning_accum.functional.spikes import poisson_encode


def test_shape_and_dtype() -> None:
    spikes = poisson_encode(torch.rand(3, 4, 5), steps=7, p=0.5)
    assert spikes.shape == (7, 3, 4, 5)
    assert spikes.dtype == torch.bool


@pytest.mark.parametrize("p", [0.02, 0.5, 1.0])
def test_rate_is_proportional_to_intensity(p: float) -> None:
    x = torch.linspace(0, 1, 11)
    n = 40_000
    rate = poisson_encode(x, n, p, torch.Generator().manual_seed(0)).double().mean(0)
    expected = x.double() * p
    sigma = (expected * (1 - expected) / n).sqrt()
    assert ((rate - expected).abs() <= 5 * sigma + 1e-12).all()


def test_steps_and_entries_are_independent() -> None:
    spikes = poisson_encode(torch.full((200,), 0.5), 500, 1.0, torch.Generator().manual_seed(1))
    s = spikes.double() - 0.5
    assert abs((s[1:] * s[:-1]).mean()) < 0.25 * 5 / (499 * 200) ** 0.5
    assert abs((s[:, 1:] * s[:, :-1]).mean()) < 0.25 * 5 / (500 * 199) ** 0.5


def test_extremes_are_certain() -> None:
    spikes = poisson_encode(torch.tensor([0.0, 1.0]), 5000)
    assert not spikes[:, 0].any()
    assert spikes[:, 1].all()


def test_generator_decides() -> None:
    x = torch.rand(50)
    one, two = (poisson_encode(x, 20, 0.5, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, poisson_encode(x, 20, 0.5, torch.Generator().manual_seed(4)))


def test_small_probabilities_survive_half_precision() -> None:
    x = torch.full((1000,), 0.001, dtype=torch.bfloat16)
    rate = poisson_encode(x, 2000, 0.1, torch.Generator().manual_seed(0)).double().mean()
    assert 0.8e-4 < rate < 1.2e-4


def test_needs_no_gradient() -> None:
    assert not poisson_encode(torch.rand(3, requires_grad=True), 2).requires_grad


def test_empty_batch() -> None:
    assert poisson_encode(torch.empty(0, 4), 3).shape == (3, 0, 4)


@pytest.mark.parametrize("bad", [-0.1, 1.1, float("nan")])
def test_intensity_out_of_range(bad: float) -> None:
    with pytest.raises(ValueError, match=r"Argument `x` should hold intensities in \[0, 1\]"):
        poisson_encode(torch.tensor([0.5, bad]), 3)
    assert poisson_encode(torch.tensor([0.5, bad]), 3, validate=False).shape == (3, 2)


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_probability_out_of_range(p: float) -> None:
    with pytest.raises(ValueError, match="Argument `p` should be a probability"):
        poisson_encode(torch.rand(2), 3, p)


def test_no_steps() -> None:
    with pytest.raises(ValueError, match=r"Found `steps = 0`"):
        poisson_encode(torch.rand(2), 0)


@pytest.mark.parametrize("steps", [0, -1])
def test_at_least_one_step(steps: int) -> None:
    assert poisson_encode(torch.rand(2), 1).shape == (1, 2)
    with pytest.raises(ValueError, match=f"Argument `steps` should be .* Found `steps = {steps}`"):
        poisson_encode(torch.rand(2), steps)

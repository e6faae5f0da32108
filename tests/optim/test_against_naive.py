"""Equality with references that take one number at a time, in plain Python."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from optimizer_cases import CASES, give_gradients, parameters
from turns import turns

from lightning_accum.optim import AdamWarmup, WeightDecay
from lightning_accum.optim._moments import rectification

STEPS = 25


def begin(decay, g, weight, rate):
    """The slope with its penalty, and the weight after its decay."""
    if not decay.weight_decouple:
        return g + decay.weight_decay * weight, weight
    return g, weight * (1 - decay.weight_decay * (1 if decay.absolute else rate))


def adam_like(
    slopes, weight, rate, betas, eps, decay, *, belief=False, amsgrad=False, eps_beside=False
):
    """Adam and its kin on one number, from the papers' algorithms; yields the weight."""
    m = v = top = 0.0
    beta1, beta2 = betas
    for t, slope in enumerate(slopes, 1):
        g, weight = begin(decay, slope, weight, rate(t))
        m = beta1 * m + (1 - beta1) * g
        if belief:
            v = beta2 * v + (1 - beta2) * (g - m) ** 2 + eps
        else:
            v = beta2 * v + (1 - beta2) * g**2
        top = max(top, v) if amsgrad else v
        if eps_beside:
            size = rate(t) * math.sqrt(1 - beta2**t) / (1 - beta1**t)
            weight -= size * m / (math.sqrt(top) + eps)
        else:
            m_hat, v_hat = m / (1 - beta1**t), top / (1 - beta2**t)
            weight -= rate(t) * m_hat / (math.sqrt(v_hat) + eps)
        yield weight


def rectified(slopes, weight, rate, betas, eps, decay, *, belief=False, momentum=True):
    """RAdam's algorithm on one number, the second moment AdaBelief's if so asked."""
    m = v = 0.0
    beta1, beta2 = betas
    rho_inf = 2 / (1 - beta2) - 1
    for t, slope in enumerate(slopes, 1):
        g, weight = begin(decay, slope, weight, rate(t))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * ((g - m) ** 2 if belief else g**2) + (eps if belief else 0)
        m_hat = m / (1 - beta1**t)
        rho = rho_inf - 2 * t * beta2**t / (1 - beta2**t)
        if rho >= 5:
            r = (rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)
            weight -= rate(t) * math.sqrt(r * (1 - beta2**t)) * m_hat / (math.sqrt(v) + eps)
        elif momentum:
            weight -= rate(t) * m_hat
        yield weight


def constant(rate):
    return lambda t: rate


def cosine(t):
    progress = min(max((t - 3) / 17, 0.0), 1.0)
    return 0.01 * min(1.0, t / 3) * 0.5 * (1 + math.cos(math.pi * progress))


REFERENCES = {
    "adam": (adam_like, constant(0.01), (0.9, 0.999), 1e-8, {}),
    "adam-optimized": (adam_like, constant(0.01), (0.9, 0.999), 1e-8, {"eps_beside": True}),
    "amsgrad": (adam_like, constant(0.01), (0.9, 0.999), 1e-8, {"amsgrad": True}),
    "warmup": (adam_like, lambda t: 0.01 * min(1, t / 7), (0.9, 0.999), 1e-8, {}),
    "warmup-amsgrad": (
        adam_like, lambda t: 0.01 * min(1, t / 7), (0.9, 0.999), 1e-8, {"amsgrad": True}
    ),
    "noam": (
        adam_like, lambda t: 0.5 * 16**-0.5 * min(t**-0.5, t * 7**-1.5), (0.9, 0.98), 1e-9, {}
    ),
    "cosine": (adam_like, cosine, (0.9, 0.999), 1e-8, {}),
    "radam": (rectified, constant(0.01), (0.9, 0.999), 1e-8, {}),
    "radam-still": (rectified, constant(0.01), (0.9, 0.999), 1e-8, {"momentum": False}),
    "adabelief": (adam_like, constant(0.01), (0.9, 0.999), 1e-16, {"belief": True}),
    "adabelief-amsgrad": (
        adam_like, constant(0.01), (0.9, 0.999), 1e-8, {"belief": True, "amsgrad": True}
    ),
    "adabelief-rectified": (rectified, constant(0.01), (0.9, 0.999), 1e-16, {"belief": True}),
}  # fmt: skip


DECAYS = [
    (False, WeightDecay()),
    (True, WeightDecay(0.1)),
    (True, WeightDecay(0.1, weight_decouple=False)),
    (False, WeightDecay(0.001, absolute=True)),
]


@turns("way", [{}, {"foreach": True}, {"foreach": False}, {"capturable": True}])
@turns("maximize, decay", DECAYS)
@pytest.mark.parametrize("name", REFERENCES)
def test_every_number_goes_as_the_papers_say(name, maximize, decay, way):
    reference, rate, betas, eps, options = REFERENCES[name]
    params = parameters()
    optimizer = CASES[name](params, maximize=maximize, weight_decay=decay, **way)
    follow = [(i, j) for i, p in enumerate(params) for j in {0, p.numel() // 2, p.numel() - 1}]
    begun = {(i, j): params[i].detach().reshape(-1)[j].item() for i, j in follow}
    slopes = {key: [] for key in follow}
    found = {key: [] for key in follow}
    for step in range(STEPS):
        give_gradients(params, step)
        for i, j in follow:
            slopes[i, j].append((1 - 2 * maximize) * params[i].grad.reshape(-1)[j].item())
        optimizer.step()
        for i, j in follow:
            found[i, j].append(params[i].detach().reshape(-1)[j].item())
    for key in follow:
        expected = list(reference(slopes[key], begun[key], rate, betas, eps, decay, **options))
        assert found[key] == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert abs(expected[-1] - begun[key]) > 1e-5


def both(function, step, *args):
    """The factor by a number and by a tensor, which have to agree."""
    number = function(step, *args)
    tensor = function(torch.tensor(float(step), dtype=torch.float64), *args)
    assert isinstance(number, float)
    assert tensor.item() == pytest.approx(number, rel=1e-9, abs=1e-12)
    return number


@turns("warmup, step, rate", [(0, 1, 1.0), (0, 10**9, 1.0), (0.5, 1, 1.0), (3, 1, 1 / 3)])
def test_warmups_of_any_length(warmup, step, rate):
    optimizer = AdamWarmup([torch.zeros(1)])
    found = both(lambda t: optimizer.rate({"lr": 1.0, "warmup": warmup}, t), step)
    assert found == pytest.approx(rate)


@given(st.integers(1, 10**5), st.sampled_from([0.0, 0.5, 0.7, 0.9, 0.99, 0.999]))
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

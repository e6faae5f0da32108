"""Layers with a state: steps, pieces and sequences are alike, in any shape, and begin at rest."""

import math
from functools import partial

import pytest
import torch
from clamped_layers import raster
from torch import nn

from lightning_accum import nn as layers
from lightning_accum.nn import LIF, Competition, LeakyIntegrator, SurrogateLIF
from lightning_accum.nn import ShortTermPlasticity as Plasticity

ADAPTIVE = {"beta": 0.3, "tc_adaptation": 30.0}
SURROGATE = {
    f"SurrogateLIF {recurrent} {options}": partial(
        SurrogateLIF, tc_mem=9.0, recurrent=recurrent, **options
    )
    for recurrent in (False, True)
    for options in ({}, ADAPTIVE)
}
AT_REST = {
    "LIF": partial(LIF, refractory=2.0),
    "LeakyIntegrator": LeakyIntegrator,
    "DelayedLinear": lambda size, **o: layers.DelayedLinear(size, 2, 5.0, **o),
    "Competition": partial(Competition, nn.Identity(), theta_plus=0.0, tc_drive=100.0),
    "depressing": Plasticity.depressing,
    "facilitating": Plasticity.facilitating,
    "facilitating only": partial(Plasticity, release=0.2, tc_recovery=None, tc_facilitation=50.0),
    "used up": partial(Plasticity, release=1.0, tc_recovery=math.inf, tc_facilitation=math.inf),
    **SURROGATE,
}
# What tires does not forget it with a reset.
LAYERS = {**AT_REST, "tiring": partial(Competition, nn.Identity(), theta_plus=0.05)}
SHAPED = {
    "LIF": partial(LIF, inhibition=layers.WinnerTakeAll(1)),
    **{name: LAYERS[name] for name in ("LeakyIntegrator", "depressing", "tiring")},
    **{f"{name} {gradient}": partial(make, gradient=gradient)
       for name, make in SURROGATE.items() for gradient in ("none", "step", "time")},
}  # fmt: skip


X = raster(20, 3, 3) * 0.6


def made(make, time_dim=0, size=3):
    torch.manual_seed(0)
    return make(size, time_dim=time_dim).double()


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", LAYERS)
def test_steps_and_pieces_are_those_of_the_sequence(name):
    whole, cut, stepped = (made(LAYERS[name], time_dim) for time_dim in (0, 0, None))
    expected = whole(X)
    assert expected.any()
    sizes = (7, 1, 12) if isinstance(cut, SurrogateLIF) else (7, 0, 1, 12)  # it takes a step
    close(torch.cat([cut(piece) for piece in X.split(sizes)]), expected)
    close(torch.stack([stepped(step) for step in X]), expected)
    for other in (cut, stepped):
        close(other.state_dict(), whole.state_dict())


@pytest.mark.parametrize("name", AT_REST)
def test_after_a_reset_and_with_another_batch_it_is_at_rest(name):
    layer, fresh = made(AT_REST[name]), made(AT_REST[name])
    expected = layer(X)
    assert not torch.allclose(layer(X), expected)
    layer.reset()
    close(layer(X), expected)
    close(layer(X[:, :2]), fresh(X[:, :2]))
    close(layer(X), expected)


@pytest.mark.parametrize("time_dim", [None, 0])
@pytest.mark.parametrize("name", SHAPED)
def test_a_layer_has_any_shape(name, time_dim):
    flat, shaped = (made(SHAPED[name], time_dim, size) for size in (6, (2, 3)))
    x = (raster(20, 3, 6) * 0.6).requires_grad_()
    for now in [x] if time_dim == 0 else x:
        found, expected = shaped(now.unflatten(-1, (2, 3))), flat(now)
        assert torch.equal(found, expected.unflatten(-1, (2, 3)))
        for state in ("voltage", "membrane", "threshold", "theta"):
            if hasattr(flat, state):
                assert torch.equal(getattr(shaped, state).flatten(-2), getattr(flat, state))
        assert found.requires_grad == (getattr(flat, "gradient", "time") != "none")
        if found.requires_grad:
            both = (torch.autograd.grad(y.sum(), x, retain_graph=True) for y in (found, expected))
            assert torch.equal(*(gradient for (gradient,) in both))

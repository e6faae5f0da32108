"""Layers with a state: steps, pieces and sequences are alike, and what begins anew is at rest."""

from functools import partial

import pytest
import torch
from torch import nn

from lightning_accum.nn import LIF, Competition, DelayedLinear, LeakyIntegrator, SurrogateLIF
from lightning_accum.nn import ShortTermPlasticity as Plasticity

ADAPTIVE = {"beta": 0.3, "tc_adaptation": 30.0}
AT_REST = {
    "LIF": partial(LIF, 3, refractory=2.0),
    "LeakyIntegrator": partial(LeakyIntegrator, 3),
    "DelayedLinear": partial(DelayedLinear, 3, 2, 5.0),
    "Competition": partial(Competition, nn.Identity(), 3, theta_plus=0.0, tc_drive=100.0),
    "depressing": partial(Plasticity.depressing, 3),
    "facilitating": partial(Plasticity.facilitating, 3),
    "facilitating only": partial(Plasticity, 3, 0.2, None, 50.0),
    "used up": partial(Plasticity, 3, 1.0, float("inf"), float("inf")),
    **{f"SurrogateLIF {recurrent} {options}":
       partial(SurrogateLIF, 3, 9.0, recurrent=recurrent, **options)
       for recurrent in (False, True) for options in ({}, ADAPTIVE)},
}  # fmt: skip
# What tires does not forget it with a reset.
LAYERS = {**AT_REST, "tiring": partial(Competition, nn.Identity(), 3, theta_plus=0.05)}
X = (torch.rand(20, 3, 3, generator=torch.Generator().manual_seed(0)) < 0.5).double() * 0.6


def made(make, time_dim=0):
    torch.manual_seed(0)
    return make(time_dim=time_dim).double()


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

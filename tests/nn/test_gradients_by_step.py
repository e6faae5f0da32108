"""The graph of a state lasts from call to call: until it is cut, or a backward pass frees it."""

import copy

import pytest
import torch
from round_trips import by_pickle

from lightning_accum.nn import DelayedLinear, LeakyIntegrator, ShortTermPlasticity, SurrogateLIF

MAKE = {
    "LIF": lambda **o: SurrogateLIF(4, gradient="time", **o),
    "recurrent ALIF": lambda **o: SurrogateLIF(
        4, gradient="time", beta=0.3, tc_adaptation=30.0, recurrent=True, **o
    ),
    "readout": lambda **o: LeakyIntegrator((2, 2), 7.0, **o),
    "plasticity": lambda **o: ShortTermPlasticity(4, 0.3, 20.0, 30.0, **o),
    "delays": lambda **o: DelayedLinear(4, 3, 3.0, **o),
    "no delays": lambda **o: DelayedLinear(4, 3, 0.0, **o),
}
each = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
exact = {"rtol": 1e-12, "atol": 1e-12}


def made(make, **options):
    torch.manual_seed(0)
    return make(**options).double()


def sequence(module, steps=9, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(steps, 2, 4, generator=generator, dtype=torch.float64)
    return x.view(steps, 2, *getattr(module, "size", (4,))).requires_grad_()


def gradients(module, x, out):
    """The gradient of a loss over all outputs, by the input and the parameters."""
    weights = torch.sin(torch.arange(out.numel(), dtype=out.dtype)).view_as(out)
    learned = [param for param in module.parameters() if param.requires_grad]
    return torch.autograd.grad((out * weights).sum(), [x, *learned])


def by_step(module, x):
    return torch.stack([module(now) for now in x])


@each
def test_steps_and_pieces_have_the_gradient_of_the_whole_sequence(make):
    whole, single = made(make, time_dim=0), made(make)
    x = sequence(whole)
    expected = gradients(whole, x, whole(x))
    whole.reset()
    pieces = torch.cat([whole(piece) for piece in x.split([4, 1, 4])])
    for module, out in ((whole, pieces), (single, by_step(single, x))):
        for found, value in zip(gradients(module, x, out), expected, strict=True):
            torch.testing.assert_close(found, value, **exact)


@each
@pytest.mark.parametrize("cut", ["reset", "detach", "backward", "nothing"])
def test_a_backward_pass_ends_the_graph_as_detach_does(make, cut):
    module = made(make)
    x, y = sequence(module), sequence(module, seed=1)
    first = by_step(module, x)
    if cut in ("reset", "detach"):
        getattr(module, cut)()
    else:  # a graph that is retained goes on
        first.sum().backward(retain_graph=cut == "nothing")
    x.grad = None
    by_step(module, y).sum().backward()
    assert y.grad is not None
    lasts = cut == "nothing" and getattr(module, "max_delay", 1.0) > 0
    assert (x.grad is not None) == lasts


@each
def test_a_backward_pass_of_what_was_before_a_reset_cuts_nothing(make):
    module = made(make)
    x, y = sequence(module), sequence(module, seed=1)
    first = by_step(module, x)
    module.reset()
    begun = by_step(module, y[:4])
    first.sum().backward()
    found = gradients(module, y, torch.cat([begun, by_step(module, y[4:])]))
    other = made(make)
    for value, expected in zip(found, gradients(other, y, by_step(other, y)), strict=True):
        torch.testing.assert_close(value, expected, **exact)


@each
def test_a_copy_between_steps_has_no_graph_and_goes_on(make):
    module = made(make)
    x = sequence(module)
    by_step(module, x[:4])
    copies = copy.copy(module), copy.deepcopy(module), by_pickle(module)
    expected = by_step(module, x[4:])
    for other in copies:
        found = by_step(other, x[4:])
        torch.testing.assert_close(found, expected, **exact)
        x.grad = None
        found.sum().backward()
        assert not x.grad[:4].any()


@each
def test_without_a_gradient_there_is_no_graph(make):
    module = made(make)
    x = sequence(module)
    with torch.no_grad():
        by_step(module, x)
    assert not any(state.requires_grad for state in module._state.values())
    if isinstance(module, SurrogateLIF):
        by_step(module, x)
        module.gradient = "step"
        by_step(module, x)
        assert not any(state.requires_grad for state in module._state.values())

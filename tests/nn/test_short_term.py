"""Short-term plasticity: its equations, its steady state, and rules that learn behind it."""

import math
from functools import partial

import pytest
import torch
from kernel_helpers import spikes
from rule_trainers import trainer_of
from torch import nn

import lightning_accum as la
from lightning_accum.functional import GaussianKernel, Triangular
from lightning_accum.nn import LIF, ShortTermPlasticity, SurrogateLIF

PRESETS = [
    lambda **o: ShortTermPlasticity.depressing(3, **o),
    lambda **o: ShortTermPlasticity.facilitating(3, **o),
    lambda **o: ShortTermPlasticity(3, 0.2, None, 50.0, **o),
    lambda **o: ShortTermPlasticity(3, 1.0, math.inf, math.inf, **o),
]
each_preset = pytest.mark.parametrize("make", PRESETS)


def raster(steps=60, seed=0):
    return spikes(steps, 2, 3, seed=seed).double()


def left(tc, ms):
    return 0.0 if tc is None else math.exp(-ms / tc)


@each_preset
def test_it_is_the_equations_from_spike_to_spike(make):
    made, x_pre = make(time_dim=0, dt=0.5), raster()
    expected = torch.zeros_like(x_pre)
    for b in range(2):
        for i in range(3):
            u, x, last = made.release, 1.0, None
            for t in x_pre[:, b, i].nonzero().flatten().tolist():
                if last is not None:
                    apart = 0.5 * (t - last)
                    x = 1 + (x - x * u - 1) * left(made.tc_recovery, apart)
                    u = made.release + u * (1 - made.release) * left(made.tc_facilitation, apart)
                expected[t, b, i], last = u * x, t
    torch.testing.assert_close(made(x_pre), expected, rtol=1e-12, atol=1e-13)
    assert torch.equal(make(time_dim=0)(x_pre.bool()), make(time_dim=0)(x_pre.float()))


def test_gradients_are_the_equations_derivative():
    made = ShortTermPlasticity(3, 0.3, 20.0, 30.0, time_dim=0)

    def released(x):
        made.reset()
        return made(x)

    likely = (0.8 * raster(6) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(released, (likely,))


@pytest.mark.parametrize("time_dim", [None, 0])
@pytest.mark.parametrize("make", [
    partial(trainer_of, la.STDP, 0.1, -0.05),
    partial(trainer_of, la.STDP, 0.1, -0.05, trace_mode="nearest", pairing="reduced"),
    partial(trainer_of, la.TripletSTDP, 0.1, 0.1, -0.1, -0.1),
    partial(trainer_of, la.KernelSTDP, GaussianKernel(0.3)),
    partial(trainer_of, la.InhibitorySTDP, 0.1),
])  # fmt: skip
def test_rules_on_spikes_learn_from_the_times_of_what_is_released(make, time_dim):
    x, y = raster(), raster(seed=1)
    found = []
    for graded in (False, True):
        model = la.Serial(nn.Linear(3, 3, bias=False).double(), nn.Identity())
        nn.init.constant_(model.connection.weight, 0.5)
        rule = make(time_dim=time_dim, graded_input=graded)
        unit = rule.register_cell("cell", model.cell)
        released = ShortTermPlasticity.depressing(3, time_dim=0)(x) if graded else x
        for pre, post in [(released, y)] if time_dim == 0 else zip(released, y, strict=True):
            unit.monitors["pre"](pre), unit.monitors["post"](post)
            rule(), rule.update()
        found.append(model.connection.weight.detach())
    assert torch.equal(*found)
    assert (found[0] - 0.5).abs().max() > 0.1


def test_rules_with_an_error_learn_from_how_much_is_released():
    torch.manual_seed(0)
    plasticity = ShortTermPlasticity.depressing(3, time_dim=0)
    neurons = SurrogateLIF(4, surrogate=Triangular(), gradient="time", time_dim=0)
    layer = la.Serial(nn.Linear(3, 4, bias=False).double(), neurons)
    rule = la.RuleTrainer(la.EProp(1.0), graded_input=True, time_dim=0, batch_reduction="sum")
    unit = rule.register_cell("cell", layer.cell)
    nn.init.uniform_(layer.connection.weight, 0.0, 6.0)
    out = layer(plasticity(raster()))
    assert 20 < out.sum() < 400
    error = torch.randn_like(out)
    rule(error=error)
    (expected,) = torch.autograd.grad(out, layer.connection.weight, error)
    found = unit.cell.updater.weight.update(layer.connection.weight)
    torch.testing.assert_close(found, -expected)


def test_a_rule_on_spikes_says_what_to_pass():
    layer = la.Serial(nn.Linear(3, 2), LIF(2))
    rule = la.RuleTrainer(la.STDP(0.1, -0.1))
    rule.register_cell("cell", layer.cell)
    with pytest.raises(ValueError, match=r"ShortTermPlasticity`, pass `graded_input=True`"):
        layer(ShortTermPlasticity(3)(torch.ones(1, 3)))


@pytest.mark.parametrize("value", [float("nan"), 2.0, -1.0])
def test_a_value_that_is_no_probability_is_rejected_before_anything_changes(value):
    synapses = ShortTermPlasticity(2)
    with pytest.raises(ValueError, match=r"`x` should be spikes, .* Found values from"):
        synapses(torch.tensor([[1.0, value]]))
    assert torch.equal(synapses(torch.ones(1, 2)), torch.full((1, 2), 0.5))

"""What would otherwise train nothing, or something else, without a word."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import nn

import lightning_accum as la
from lightning_accum import STDP, Cell, CellSpec, Clamp, Normalize, attach_updater
from lightning_accum.functional import (
    ExponentialKernel,
    GaussianKernel,
    bound_power,
    bound_upper_power,
)
from lightning_accum.nn import LIF


def test_an_option_that_is_misspelled():
    with pytest.raises(TypeError, match="tc_pst"):
        STDP(0.1, -0.1, tc_pst=1.0)


def test_a_neuron_that_is_called_in_another_way():
    with pytest.raises(ValueError, match=r"give the rule `time_dim=0`"):
        STDP(0.1, -0.1).register_cell("enc", Cell(nn.Linear(2, 1), LIF(1, time_dim=0)))


def test_a_copy_whose_cells_were_not_added_anew():
    fc, relu = nn.Linear(2, 1), nn.ReLU()
    rule = STDP(0.1, -0.1)
    rule.register_cell("enc", Cell(fc, relu))
    copied = copy.deepcopy(rule)
    for call in (copied, copied.update):
        with pytest.raises(RuntimeError, match=r"is a copy, and its cells \['enc'\]"):
            call()
    copied.register_cell("enc", Cell(fc, relu))
    copied()
    copied.update()


def test_a_bound_that_does_not_fit_is_turned_away_when_set():
    weight = attach_updater(nn.Linear(1, 1), "weight").weight
    with pytest.raises(TypeError, match=r"should be callable as `bound\(param, update, limit"):
        weight.upperbound(bound_power, 1.0)
    with pytest.raises(TypeError, match=r"should be callable as `bound\(param, pos, neg, max, min"):
        weight.fullbound(bound_upper_power, 1.0, 0.0)
    with pytest.raises(TypeError, match="pwer"):
        weight.fullbound(bound_power, 1.0, 0.0, pwer=2.0)
    assert not weight.bounded
    weight.upperbound(torch.minimum.__call__, 1.0)  # a builtin cannot be looked at


def test_constraints_without_sense():
    with pytest.raises(ValueError, match="nothing to clamp to"):
        Clamp()
    with pytest.raises(ValueError, match="norm"):
        Normalize(norm=-1.0)


def test_one_parameter_may_be_named_without_a_tuple():
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU())
    assert CellSpec("0", "1", params="weight").find(model).connection is model[0]
    with pytest.raises(AttributeError, match="Found `bias`"):
        CellSpec("0", "1", params="bias").find(model)


def test_a_neuron_of_another_step():
    for own in (0.1, 2.0):
        cell = Cell(nn.Linear(2, 1), LIF(1, dt=own))
        with pytest.raises(ValueError, match=rf"cell `enc`, {own} ms. Found `dt = 1.0`: give the"):
            STDP(0.1, -0.1).register_cell("enc", cell)
        STDP(0.1, -0.1, dt=own).register_cell("enc", cell)
        STDP(0.1, -0.1).register_cell("enc", cell, dt=own)

    class Foreign(nn.Identity):
        dt = 0.001  # in seconds

    STDP(0.1, -0.1).register_cell("enc", Cell(nn.Linear(2, 1), Foreign()))


def test_time_constants_in_seconds():
    cell = Cell(nn.Linear(2, 1), nn.Identity())
    with pytest.warns(UserWarning, match=r"`tc_pre` of cell `enc` should be at least.*in ms"):
        STDP(0.1, -0.1, tc_pre=0.02).register_cell("enc", cell)
    with pytest.warns(UserWarning, match=r"`tc_mem` of LIF should be at least a step"):
        LIF(1, tc_mem=0.5)
    LIF(1, tc_mem=1.0)
    STDP(0.1, -0.1, tc_pre=1.0, tc_post=1.0).register_cell("enc", cell)
    kernels = {"tc_post": ExponentialKernel(0.1, -0.1, 0.02), "width": GaussianKernel(0.1, 0.01)}
    for name, kernel in kernels.items():
        with pytest.warns(UserWarning, match=rf"`{name}` of the kernel of cell `enc` should be at"):
            la.KernelSTDP(kernel).register_cell("enc", cell)
    for kernel in (ExponentialKernel(0.1, -0.1, 1.0, 1.0), lambda delta: delta.sign()):
        la.KernelSTDP(kernel).register_cell("enc", cell)


def test_a_rate_is_not_changed_where_it_would_have_no_effect() -> None:
    fc, lif = nn.Linear(2, 1), LIF(1)
    rule = STDP(0.1, -0.1)
    unit = rule.register_cell("enc", Cell(fc, lif))
    for target in (rule, rule.defaults, unit.state.hyperparameters):
        with pytest.raises(FrozenInstanceError, match=r"`lr_post` should be .*`lr_scheduler`"):
            target.lr_post = 0.0
    with pytest.raises(FrozenInstanceError, match="`lr_pre`"):
        del rule.defaults.lr_pre
    assert (rule.defaults.lr_post, unit.state.hyperparameters.lr_post) == (0.1, 0.1)
    rule.carry = False  # is asked for in every call
    for twin in (copy.deepcopy(rule), pickle.loads(pickle.dumps(rule))):
        assert twin.defaults == rule.defaults
        with pytest.raises(FrozenInstanceError):
            twin.lr_pre = 0.0


@pytest.mark.parametrize("rule", [la.Oja(0.1), la.SoftHebb(0.1), la.WTAHebb(0.1)])
def test_indices_are_no_constant_input(rule):
    table, neuron = nn.Embedding(4, 3), nn.ReLU()
    rule.register_cell("c", la.Cell(table, neuron))
    neuron(table(torch.tensor([0, 2])))
    with pytest.raises(ValueError, match="should have a rule without a constant input"):
        rule()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_integers_of_a_connection_that_converts_them_are_numbers(dtype):
    class Converts(nn.Linear):
        def forward(self, x):
            return super().forward(x.to(self.weight.dtype))

    found = []
    for kind in (torch.float32, dtype):
        fc, neuron, rule = Converts(4, 3, bias=False), nn.ReLU(), la.Oja(0.1)
        nn.init.constant_(fc.weight, 0.3)
        rule.register_cell("c", la.Cell(fc, neuron))
        neuron(fc(torch.arange(8).view(2, 4).to(kind)))
        rule()
        found.append(la.get_updater(fc).weight.update(fc.weight))
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("delay", [None, 1.0, torch.ones(3), torch.ones(1, 1), torch.ones(2, 3, 1)])
def test_delays_have_the_shape_of_the_weight(delay):
    layer = la.Serial(nn.Linear(3, 2, bias=False), nn.Hardtanh(0, 1))
    nn.init.ones_(layer.connection.weight)
    layer.connection.delay = delay
    rule = la.DelayAdjustedSTDP(0.1, -0.1)
    with pytest.raises(ValueError, match="Argument `delay` should name delays of the shape"):
        rule.register_cell("c", layer.cell)
    layer.connection.delay = torch.ones(2, 3)
    rule.register_cell("c", layer.cell)
    layer(torch.ones(1, 3))
    rule()


class TestArgumentsThatNothingReads:
    """They are named once, at the first window."""

    def setup_method(self) -> None:
        self.fc, self.neuron = nn.Linear(3, 2, bias=False), nn.Identity()

    def window(self, rule: la.Rule, **given: object) -> None:
        if "enc" not in rule.registry:
            rule.register_cell("enc", Cell(self.fc, self.neuron))
        self.fc(torch.ones(1, 3))
        self.neuron(torch.ones(1, 2))
        rule(**given)

    def test_arguments_that_are_read_say_nothing(self) -> None:
        self.window(la.MSTDP(0.1, -0.1), reward=1.0)

        class All(STDP):
            def terms(self, window, h):
                assert dict(window.inputs) == {"reward": 1.0, "hits": 3}
                return super().terms(window, h)

        self.window(All(0.1, -0.1), reward=1.0, hits=3)

    def test_a_reward_has_a_name(self) -> None:
        with pytest.raises(TypeError, match="positional"):
            la.MSTDP(0.1, -0.1)(1.0)


def test_a_cell_that_was_added_instead_of_registered() -> None:
    fc, lif = nn.Linear(3, 2, bias=False), LIF(2)
    rule = STDP(0.1, -0.1)
    rule.add_cell("enc", Cell(fc, lif), params=["weight"])
    lif(fc(torch.ones(1, 3)))
    with pytest.raises(RuntimeError, match=r"call `del_cell` and `register_cell\('enc', cell"):
        rule()

"""Learning after every step: one compiled loop, and the calls step by step that it replaces."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import lightning_accum as la
from lightning_accum.callbacks._host import CellHost
from lightning_accum.functional import bound_upper_sharp
from lightning_accum.nn import LIF, AdaptiveLIF, LateralInhibition, Linear, WinnerTakeAll
from lightning_accum.rules import online
from lightning_accum.rules.online import learn_online, why_step_by_step
from lightning_accum.sparse.library import library


def layer_of(inputs: int, neurons: nn.Module, size: int, bias: bool = False) -> la.Serial:
    layer = la.Serial(Linear(inputs, size, bias=bias), neurons).double()
    torch.nn.init.uniform_(layer.connection.weight, 0.1, 0.5)
    return layer


def learner_of(layer: la.Serial, **options: object) -> la.STDP:
    rule = la.STDP(**{"lr_post": 0.02, "lr_pre": -0.01, "tc_pre": 10.0, **options})
    rule.register_cell("cell", layer.cell)
    return rule


def raster(steps: int, batch: int, inputs: int, share: float = 0.3, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(steps, batch, inputs, generator=generator) < share


def step_by_step(rule: la.Rule, layer: nn.Module, inputs: Tensor) -> Tensor:
    outputs = []
    for step in inputs:
        outputs.append(layer(step))
        rule()
        rule.update()
    return torch.stack(outputs)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Notes for each call whether the compiled loop ran."""
    if library(torch.float64) is None:
        pytest.skip("needs the compiled kernel")
    ran: list[bool] = []
    run_compiled = online.run_compiled

    def noting(*args: object) -> object:
        found = run_compiled(*args)
        ran.append(found is not None)
        return found

    monkeypatch.setattr(online, "run_compiled", noting)
    return ran


def same_everywhere(ours: tuple[la.STDP, la.Serial], plain: tuple[la.STDP, la.Serial]) -> None:
    """Compares weights, neurons, traces and counts."""
    for one, two in zip(ours[1].state_dict().items(), plain[1].state_dict().items(), strict=True):
        torch.testing.assert_close(one[1], two[1], rtol=1e-10, atol=1e-12)
    states = [each[0].state_dict() for each in (ours, plain)]
    torch.testing.assert_close(*states, rtol=1e-10, atol=1e-12)


@pytest.mark.filterwarnings("ignore::lightning_accum.LocalLearningWarning")  # without spikes
@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(*(st.integers(1, most) for most in (20, 4, 20, 9))),
    share=st.sampled_from([0.0, 0.05, 0.4, 1.0]),
    rates=st.tuples(*[st.sampled_from([0.05, -0.03, 0.0])] * 2),
    rule=st.fixed_dictionaries(
        {
            "trace_mode": st.sampled_from(["cumulative", "nearest"]),
            "batch_reduction": st.sampled_from(["sum", "mean"]),
            "tc_post": st.sampled_from([2.0, 30.0]),
        }
    ),
    neurons=st.fixed_dictionaries(
        {
            "theta_plus": st.sampled_from([0.0, 0.31]),  # no sum of which is a current
            "tc_theta": st.sampled_from([float("inf"), 20.0]),
            "refractory": st.sampled_from([0.0, 2.0]),
            "v_rest": st.sampled_from([0.0, 0.2]),
            "v_reset": st.sampled_from([0.0, -0.1]),
            "inhibition": st.sampled_from([None, WinnerTakeAll(0), WinnerTakeAll(3)]),
        }
    ),
    clamp=st.booleans(),
    bias=st.booleans(),
)
def test_the_loop_equals_calls_step_by_step(shape, share, rates, rule, neurons, clamp, bias):
    steps, batch, inputs, size = shape
    layer = layer_of(inputs, AdaptiveLIF(size, **neurons), size, bias)
    if clamp:
        la.attach_updater(layer.connection, "weight").register_constraint(
            la.Clamp(0.0937, 0.487)
        )  # no sum of which is the threshold
    other = copy.deepcopy(layer)
    rates = {"lr_post": rates[0], "lr_pre": rates[1]}
    pairs = [(learner_of(each, **rates, **rule), each) for each in (layer, other)]
    for seed in range(2):  # the second sequence goes on where the first one ended
        x = raster(steps, batch, inputs, share, seed).double()
        found = learn_online(*pairs[0], x)
        expected = step_by_step(*pairs[1], x)
        assert torch.equal(found, expected)
        same_everywhere(*pairs)


def test_a_long_sequence_settles_spikes_that_wait(compiled, monkeypatch):
    monkeypatch.setattr("lightning_accum.sparse.neurons._ROOM", 1)
    layer = layer_of(6, LIF(4), 4)
    other = copy.deepcopy(layer)
    rule, twin = learner_of(layer), learner_of(other)
    x = raster(50, 3, 6).double()
    assert torch.equal(learn_online(rule, layer, x), step_by_step(twin, other, x))
    same_everywhere((rule, layer), (twin, other))
    assert compiled == [True]


def test_input_and_spikes_of_other_dtypes(compiled):
    for dtype in (torch.float32, torch.bool, torch.int64):
        layer = layer_of(6, LIF(4, spike_dtype=torch.bool), 4).float()
        spikes = learn_online(learner_of(layer), layer, raster(5, 2, 6).to(dtype))
        assert spikes.dtype == torch.bool
    assert compiled == [True] * 3


def test_no_steps_change_nothing():
    layer = layer_of(6, LIF(4, time_dim=0), 4)
    rule, before = learner_of(layer, time_dim=0), layer.connection.weight.clone()
    assert learn_online(rule, layer, torch.zeros(0, 2, 6).double()).shape == (0, 2, 4)
    assert torch.equal(layer.connection.weight, before)


def unsuited() -> dict[str, tuple[la.Serial, la.Rule, Tensor]]:
    """Layers, rules and inputs that do not suit the compiled loop, by the reason."""
    x = raster(6, 2, 5).double()
    cases = {}
    layer = layer_of(5, LIF(3), 3)
    rule = learner_of(layer)
    layer.neuron.register_forward_hook(lambda *args: None)
    cases["something else watches"] = layer, rule, x
    layer = layer_of(5, LIF(3), 3)
    own = partial(bound_upper_sharp)  # which the loop does not know
    la.attach_updater(layer.connection, "weight").weight.upperbound(own, 1.0)
    cases["a bound"] = layer, learner_of(layer), x
    layer = layer_of(5, LIF(3), 3)
    la.attach_updater(layer.connection, "weight").register_constraint(la.Normalize(1.0))
    cases["another constraint"] = layer, learner_of(layer), x
    layer = layer_of(5, LIF(3), 3)
    la.attach_updater(layer.connection, "weight").register_constraint(la.Clamp(0.2, 0.3))
    cases["weights outside the limits"] = layer, learner_of(layer), x
    layer = layer_of(5, LIF(3, inhibition=LateralInhibition(0.1)), 3)
    cases["another inhibition"] = layer, learner_of(layer), x
    layer = layer_of(5, LIF(3), 3, bias=True)
    cases["a bias that learns"] = layer, learner_of(layer, params=("weight", "bias")), x
    layer = layer_of(5, nn.ReLU(), 3)
    rule = la.Hebb(0.01)
    rule.register_cell("cell", layer.cell)
    cases["another rule and neuron"] = layer, rule, x
    layer = layer_of(5, LIF(3), 3)
    cases["another reduction"] = layer, learner_of(layer, batch_reduction=torch.amax), x
    layer = layer_of(5, LIF(3), 3)
    rule = learner_of(layer)
    layer(x[0])
    cases["steps that no call has evaluated"] = layer, rule, x
    return cases


WHY = {
    "something else watches": "something else watches the layer",
    "a bound": "bounds of this package only",
    "another constraint": "no constraint but `Clamp`",
    "weights outside the limits": "outside the limits",
    "another inhibition": "`WinnerTakeAll`",
    "a bias that learns": "the weight only",
    "another rule and neuron": "`LIF` or `AdaptiveLIF`",
    "another reduction": "no reduction but the sum and the mean",
    "steps that no call has evaluated": "steps are recorded",
}


@pytest.mark.parametrize("reason", unsuited())
def test_what_does_not_suit_is_called_step_by_step(compiled, reason):
    layer, rule, x = unsuited()[reason]
    torch.manual_seed(0)
    other, twin, _ = unsuited()[reason]
    other.load_state_dict(layer.state_dict())
    assert torch.equal(learn_online(rule, layer, x), step_by_step(twin, other, x))
    torch.testing.assert_close(layer.state_dict(), other.state_dict(), rtol=0, atol=0)
    assert compiled == [False]
    layer, rule, x = unsuited()[reason]
    assert WHY[reason] in str(why_step_by_step(rule, layer, x))


def test_a_layer_in_evaluation_mode_learns_nothing():
    layer = layer_of(5, LIF(3), 3).eval()
    before = layer.connection.weight.clone()
    learn_online(learner_of(layer), layer, raster(6, 2, 5).double())
    assert torch.equal(layer.connection.weight, before)


def test_an_update_that_overflows_is_refused_as_step_by_step(compiled):
    layer = layer_of(5, LIF(3), 3)
    rule = learner_of(layer, lr_post=1e308)
    with pytest.raises(la.NonFiniteUpdateError, match="weight"):
        learn_online(rule, layer, raster(20, 2, 5, 0.9).double())
    assert layer.connection.weight.isfinite().all()
    assert compiled == [False]


@pytest.mark.parametrize(("every", "time_dim"), [(1, 0), (4, None), (4, 0), (100, None)])
def test_updates_come_after_every_few_steps(every, time_dim):
    layer = layer_of(5, LIF(3, time_dim=time_dim), 3)
    other = copy.deepcopy(layer)
    rule, twin = (learner_of(each, time_dim=time_dim) for each in (layer, other))
    x = raster(10, 2, 5).double()
    found = learn_online(rule, layer, x, update_every=every)
    expected = []
    for piece in x.split(every):
        expected.append(other(piece) if time_dim == 0 else torch.stack([*map(other, piece)]))
        twin()
        twin.update()
    assert torch.equal(found, torch.cat(expected))
    torch.testing.assert_close(layer.connection.weight, other.connection.weight)


def test_a_reward_reaches_the_rule():
    layer = layer_of(5, LIF(3), 3)
    rule = la.MSTDP(0.02, -0.01)
    rule.register_cell("cell", layer.cell)
    before = layer.connection.weight.clone()
    learn_online(rule, layer, raster(10, 2, 5).double(), reward=0.0)
    assert torch.equal(layer.connection.weight, before)
    learn_online(rule, layer, raster(10, 2, 5).double(), reward=1.0)
    assert not torch.equal(layer.connection.weight, before)


def test_a_rule_in_evaluation_mode_is_told():
    layer = layer_of(3, LIF(2), 2)
    rule = learner_of(layer)
    rule.eval()
    with pytest.warns(RuntimeWarning, match=r"`STDP` should be in training .* the layer itse"):
        learn_online(rule, layer, raster(5, 1, 3).double())


def test_a_rule_of_a_callback_is_rejected():
    rule, model = la.STDP(0.1, -0.1), nn.ModuleDict({"layer": layer_of(5, LIF(3), 3)})
    host = CellHost(rule, {"cell": la.CellSpec("layer.connection", "layer.neuron")})
    host.bind(model)
    with pytest.raises(ValueError, match=r"`STDP` should learn online by itself.*in a callback"):
        learn_online(rule, model["layer"], raster(4, 2, 5).double())
    host.release()

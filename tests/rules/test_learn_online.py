"""Learning after every step: one compiled loop, and the calls step by step that it replaces."""

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_helpers import spikes as raster
from kernel_helpers import threads
from round_trips import unpacked
from rule_trainers import trainer_of
from subtests import turns
from torch import Tensor, nn

import lightning_accum as la
from lightning_accum import RuleTrainer
from lightning_accum.callbacks._cell_host import CellHost
from lightning_accum.nn import LIF, AdaptiveLIF, LateralInhibition, Linear, WinnerTakeAll
from lightning_accum.rules import online_simulation
from lightning_accum.rules.online_simulation import learn_online, why_step_by_step
from lightning_accum.sparse import kernel_library
from lightning_accum.sparse.kernel_library import library


def layer_of(inputs, neurons, size, bias=False):
    layer = la.Serial(Linear(inputs, size, bias=bias), neurons).double()
    torch.nn.init.uniform_(layer.connection.weight, 0.1, 0.48)
    return layer


def pair_rule(kind, post, pre, **options):
    """A rule of pairs, whose options are those that all of them have, and ``tc_post``."""
    if kind is la.TripletSTDP:
        options["tc_post_fast"] = options.pop("tc_post", 20.0)
        return trainer_of(kind, post, -2 * pre, pre, 3 * pre, **options)
    own = {
        la.WeightDependentSTDP: {"power_pos": 0.7, "power_neg": 0.0, "w_max": 0.9},
        la.MSTDPET: {"tc_eligibility": 5.0},
    }
    return trainer_of(kind, post, pre, **own.get(kind, {}), **options)


NEURONS = {
    "theta_plus": st.sampled_from([0.0, 0.31]),  # no sum of which is a current
    "tc_theta": st.sampled_from([float("inf"), 20.0]),
    "refractory": st.sampled_from([0.0, 2.0]),
    "v_rest": st.sampled_from([0.0, 0.2]),
    "v_reset": st.sampled_from([0.0, -0.1]),
}
INHIBITION = st.sampled_from([None, WinnerTakeAll(0), WinnerTakeAll(3)])
FAMILY = [la.STDP, la.TripletSTDP, la.WeightDependentSTDP, la.MSTDP, la.MSTDPET]
BOUNDS = [
    lambda updater: None,
    # no sum of rates is a limit, or a limit the threshold
    lambda updater: updater.register_constraint(la.Clamp(0.0937, 0.487)),
    lambda updater: updater.weight.fullbound("multiplicative", 1.1, -0.9),
    lambda updater: updater.weight.upperbound("power", 1.1, power=0.6),
    lambda updater: updater.weight.lowerbound("scaled_multiplicative", -0.4, range=2.0),
    lambda updater: updater.weight.fullbound("scaled_power", 1.3, -0.5, upper_power=2.0),
    lambda updater: (
        updater.weight.fullbound("sharp", 0.4837, 0.0031),
        updater.register_constraint(la.Clamp(max=0.487)),
    ),
]


def rewards(kind, form, steps, batch):
    """What a rule is given: a reward of some form, if it takes one."""
    if kind not in (la.MSTDP, la.MSTDPET):
        return {}
    generator = torch.Generator().manual_seed(1)
    each = torch.randn(steps, batch, generator=generator, dtype=torch.float64)
    each *= torch.rand(steps, batch, generator=generator) < 0.5
    return {"reward": {"number": 0.7, "sample": each[0], "step": each}[form]}


def learner_of(layer, **options):
    rule = trainer_of(la.STDP, **{"lr_post": 0.02, "lr_pre": -0.01, "tc_pre": 10.0, **options})
    rule.register_cell("cell", layer.cell)
    return rule


def step_by_step(rule, layer, inputs, **given):
    outputs, reward = [], given.get("reward")
    for t, step in enumerate(inputs):
        outputs.append(layer(step))
        if isinstance(reward, Tensor) and reward.ndim == 2:
            given["reward"] = reward[t : t + 1]
        rule(**given)
        rule.update()
    return torch.stack(outputs)


@pytest.fixture
def compiled(monkeypatch):
    """Notes for each call whether the compiled loop ran."""
    if library(torch.float64) is None:
        pytest.skip("needs the compiled kernel")
    ran = []
    run_compiled = online_simulation.run_compiled

    def noting(*args):
        found = run_compiled(*args)
        ran.append(found is not None)
        return found

    monkeypatch.setattr(online_simulation, "run_compiled", noting)
    return ran


def same_everywhere(ours, plain):
    """Compares weights, neurons, traces and counts."""
    layers = [unpacked(each[1]) for each in (ours, plain)]
    torch.testing.assert_close(*layers, rtol=1e-10, atol=1e-12)
    states = [unpacked(each[0]) for each in (ours, plain)]
    torch.testing.assert_close(*states, rtol=1e-10, atol=1e-12)


@pytest.mark.filterwarnings("ignore::lightning_accum.LocalLearningWarning")  # without spikes
@settings(max_examples=40)
@example(  # a rate of 0, of which no trace passes on
    (1, 1, 1, 1), 0.0, (0.003, 0.0), la.TripletSTDP, "number", {}, {"inhibition": None}, BOUNDS[0],
    True,
)  # fmt: skip
@given(
    shape=st.tuples(*(st.integers(1, most) for most in (20, 4, 20, 9))),
    share=st.sampled_from([0.0, 0.05, 0.4, 1.0]),
    # so small that a step never takes more than the room, which would multiply rounding
    rates=st.tuples(*[st.sampled_from([0.003, -0.002, 0.0])] * 2),
    kind=st.sampled_from(FAMILY),
    reward=st.sampled_from(["number", "sample", "step"]),
    rule=st.fixed_dictionaries(
        {
            "trace_mode": st.sampled_from(["cumulative", "nearest"]),
            "batch_reduction": st.sampled_from(["sum", "mean"]),
            "tc_post": st.sampled_from([2.0, 30.0]),
        }
    ),
    neurons=st.fixed_dictionaries(NEURONS | {"inhibition": INHIBITION}),
    bound=st.sampled_from(BOUNDS),
    bias=st.booleans(),
)
def test_the_loop_equals_calls_step_by_step(
    shape, share, rates, kind, reward, rule, neurons, bound, bias
):
    steps, batch, inputs, size = shape
    # of neurons with weights at one limit and no bias, the winner is a matter of rounding
    bias = bias or neurons["inhibition"] is not None
    layer = layer_of(inputs, AdaptiveLIF(size, **neurons), size, bias)
    other = copy.deepcopy(layer)
    pairs = [(pair_rule(kind, *rates, **rule), each) for each in (layer, other)]
    for learner, each in pairs:
        bound(la.attach_updater(each.connection, "weight"))
        learner.register_cell("cell", each.cell)
    given = rewards(kind, reward, steps, batch)
    for seed in range(2):  # the second sequence goes on where the first one ended
        x = raster(steps, batch, inputs, density=share, seed=seed).double()
        found = learn_online(*pairs[0], x, **given)
        expected = step_by_step(*pairs[1], x, **given)
        assert torch.equal(found, expected)
        same_everywhere(*pairs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bound", BOUNDS[:3])
@pytest.mark.parametrize("kind", FAMILY)
def test_the_family_runs_in_the_loop_in_both_dtypes_and_any_threads(
    compiled, kind, bound, dtype, monkeypatch
):
    monkeypatch.setattr(kernel_library, "_SHARE", 1)
    layers = [layer_of(11, AdaptiveLIF(70, theta_plus=0.1), 70).to(dtype)]
    layers += [copy.deepcopy(layers[0]) for _ in range(2)]
    pairs = [(pair_rule(kind, 0.01, -0.007), each) for each in layers]
    x, given = raster(30, 3, 11).to(dtype), rewards(kind, "step", 30, 3)
    for learner, each in pairs:
        bound(la.attach_updater(each.connection, "weight"))
        learner.register_cell("cell", each.cell)
    why = why_step_by_step(*pairs[0], x, **given)
    assert (why is None) == (bound is not BOUNDS[2] or kind is not la.WeightDependentSTDP), why
    found = learn_online(*pairs[0], x, **given)
    assert torch.equal(found, step_by_step(*pairs[1], x, **given))
    with threads(3):
        assert torch.equal(found, learn_online(*pairs[2], x, **given))
    for one, other, again in zip(*pairs, strict=True):
        torch.testing.assert_close(unpacked(one), unpacked(other))
        torch.testing.assert_close(one.state_dict(), again.state_dict(), rtol=0, atol=0)
    assert compiled == [why is None] * 2


def test_a_long_sequence_settles_spikes_that_wait(compiled, monkeypatch):
    monkeypatch.setattr("lightning_accum.sparse.online_loop._ROOM", 1)
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


def test_no_steps_and_evaluation_change_nothing():
    layer = layer_of(6, LIF(4, time_dim=0), 4)
    rule, before = learner_of(layer, time_dim=0), layer.connection.weight.clone()
    assert learn_online(rule, layer, torch.zeros(0, 2, 6).double()).shape == (0, 2, 4)
    learn_online(rule, layer.eval(), raster(6, 2, 6).double())
    assert torch.equal(layer.connection.weight, before)


def another_bound(layer):
    own = la.attach_updater(layer.connection, "weight").weight
    own.upperbound(lambda w, u, limit: u * (w < limit), 1.0)  # which the loop does not know


def constraint(made):
    return lambda layer: la.attach_updater(layer.connection, "weight").register_constraint(made)


def hebb(layer):
    rule = RuleTrainer(la.Hebb(0.01))
    rule.register_cell("cell", layer.cell)
    return rule


def watched(layer):
    rule = learner_of(layer)
    layer.neuron.register_forward_hook(lambda *args: None)
    return rule


def test_a_rule_in_evaluation_mode_does_not_watch_the_layer_and_is_told():
    layer, x = layer_of(5, LIF(3), 3), raster(6, 2, 5).double()
    rule, resting = learner_of(layer), learner_of(layer)
    assert "else watches" in str(why_step_by_step(rule, layer, x))
    resting.eval()
    assert why_step_by_step(rule, layer, x) is None
    with pytest.warns(RuntimeWarning, match=r"`STDP` should be in training .* the layer itse"):
        learn_online(resting, layer, x)


def recorded(layer):
    rule = learner_of(layer)
    layer(raster(6, 2, 5).double()[0])
    return rule


def nothing(layer):
    pass


# What does not suit the compiled loop, by what is said of it: neurons, what is set, and the rule.
UNSUITED = {
    "something else watches the layer": (LIF(3), nothing, watched),
    "bounds of this package only": (LIF(3), another_bound, learner_of),
    "no constraint but `Clamp`": (LIF(3), constraint(la.Normalize(1.0)), learner_of),
    "outside the limits": (LIF(3), constraint(la.Clamp(0.2, 0.3)), learner_of),
    "`WinnerTakeAll`": (LIF(3, inhibition=LateralInhibition(0.1)), nothing, learner_of),
    "the weight only": (LIF(3), nothing, partial(learner_of, params=("weight", "bias"))),
    "`LIF` or `AdaptiveLIF`": (nn.ReLU(), nothing, hebb),
    "no reduction but the sum and the mean": (
        LIF(3), nothing, partial(learner_of, batch_reduction=torch.amax)
    ),
    "steps are recorded": (LIF(3), nothing, recorded),
}  # fmt: skip


@pytest.mark.parametrize("reason", UNSUITED)
def test_what_does_not_suit_is_called_step_by_step(compiled, reason):
    neuron, prepare, learner, x = *UNSUITED[reason], raster(6, 2, 5).double()
    layer = layer_of(5, copy.deepcopy(neuron), 3, bias=reason == "the weight only")
    other, asked = copy.deepcopy(layer), copy.deepcopy(layer)
    for each in (layer, other, asked):
        prepare(each)
    found = learn_online(learner(layer), layer, x)
    assert torch.equal(found, step_by_step(learner(other), other, x))
    torch.testing.assert_close(layer.state_dict(), other.state_dict(), rtol=0, atol=0)
    assert compiled == [False]
    assert reason in str(why_step_by_step(learner(asked), asked, x))


def test_an_update_that_overflows_is_refused_as_step_by_step(compiled):
    layer = layer_of(5, LIF(3), 3)
    rule = learner_of(layer, lr_post=1e308)
    with pytest.raises(la.NonFiniteUpdateError, match="weight"):
        learn_online(rule, layer, raster(20, 2, 5, density=0.9).double())
    assert layer.connection.weight.isfinite().all()
    assert compiled == [False]


@pytest.mark.parametrize("kind", [la.STDP, la.MSTDPET])
@pytest.mark.parametrize(("every", "time_dim"), [(1, 0), (4, None), (4, 0), (100, None)])
def test_updates_come_after_every_few_steps_each_with_its_own_reward(kind, every, time_dim):
    layer = layer_of(5, LIF(3, time_dim=time_dim), 3)
    both = layer, copy.deepcopy(layer)
    pairs = [(RuleTrainer(kind(0.02, -0.01), time_dim=time_dim), each) for each in both]
    for rule, each in pairs:
        rule.register_cell("cell", each.cell)
    x, given_, (twin, other) = raster(10, 2, 5).double(), rewards(kind, "step", 10, 2), pairs[1]
    found = learn_online(*pairs[0], x, update_every=every, **given_)
    expected = []
    for at in range(0, 10, every):
        piece = x[at : at + every]
        expected.append(other(piece) if time_dim == 0 else torch.stack([*map(other, piece)]))
        twin(**{name: each[at : at + every] for name, each in given_.items()})
        twin.update()
    assert torch.equal(found, torch.cat(expected))
    torch.testing.assert_close(unpacked(layer), unpacked(other))
    for shape, found in ((2, 10), r"Found \[2, 10\]"), ((9, 2), r"or \[10, 2\]. Found \[9, 2\]"):
        if given_:
            with pytest.raises(ValueError, match=rf"`reward` should be a number.* {found}"):
                learn_online(*pairs[0], x, reward=torch.ones(shape), update_every=every)


@pytest.mark.parametrize("reward", [None, float("nan"), torch.ones(3), "good"])
def test_a_reward_that_does_not_fit_is_refused_as_step_by_step(compiled, reward):
    layer, rule = layer_of(5, LIF(3), 3), RuleTrainer(la.MSTDP(0.02, -0.01))
    rule.register_cell("cell", layer.cell)
    with pytest.raises((ValueError, la.NonFiniteUpdateError)):
        learn_online(rule, layer, raster(10, 2, 5, density=0.9).double(), reward=reward)
    assert compiled == [False]


def test_a_rule_of_a_callback_is_rejected():
    rule, model = RuleTrainer(la.STDP(0.1, -0.1)), nn.ModuleDict({"layer": layer_of(5, LIF(3), 3)})
    host = CellHost(rule, {"cell": la.CellSpec("layer.connection", "layer.neuron")})
    host.bind(model)
    with pytest.raises(ValueError, match=r"`STDP` should learn online by itself.*in a callback"):
        learn_online(rule, model["layer"], raster(4, 2, 5).double())
    host.release()


PAIRS = la.STDP(0.1, -0.1)


@turns("first", [PAIRS, la.STDP, layer_of(5, LIF(3), 3)])
def test_only_a_trainer_learns_online(first):
    with pytest.raises(TypeError, match=r"`trainer` should be a RuleTrainer, such as"):
        learn_online(first, layer_of(5, LIF(3), 3), raster(4, 2, 5).double())


class Own(la.Rule):
    """Its second term is one that no loop knows."""

    scaled: bool = False

    def terms(self, window):
        trace = window.pre.trace(20.0)
        second = {"pre": trace, "transform": torch.neg} if self.scaled else {"pre": trace.before()}
        return [la.Term(0.1, window.post, trace), la.Term(-0.1, window.post, **second)]


@turns("rule, connection, options, words", [
    (replace(PAIRS, pairing="reduced", trace_mode="nearest"), Linear(2, 1), {},
     "no `STDP`, whose terms read numbers"),
    (la.Oja(0.1), Linear(2, 1), {}, "no `Oja`, whose terms read numbers"),
    (Own(), Linear(2, 1), {}, "no `Own`, whose term 2 is not a spike times a trace"),
    (Own(scaled=True), Linear(2, 1), {}, "no `Own`, whose term 2 has a `transform`"),
    (PAIRS, Linear(2, 1), {"backend": "plain"}, "`backend = 'plain'`"),
    (la.STDP(0.0, 0.0), Linear(2, 1), {}, "no `STDP`, whose rates are all 0"),
    (la.MSTDP(0.1, 0.1, reward=la.Neuromodulator(5.0)), Linear(2, 1), {}, "with a `Neuromod"),
    (PAIRS, Linear(2, 1), {"batch_reduction": "amax"}, "`batch_reduction = 'amax'`"),
    (PAIRS, la.nn.SparseLinear(2, 1, 1.0), {}, "finds `SparseLinear`"),
    (PAIRS, Linear(2, 1), {"update_every": 5}, "`update_every = 5`"),
])  # fmt: skip
def test_a_reason_names_the_term_or_the_argument_and_its_value(rule, connection, options, words):
    layer, every = la.Serial(connection, LIF(1)), options.pop("update_every", 1)
    trainer = RuleTrainer(rule, **options)
    trainer.register_cell("cell", layer.cell)
    assert words in str(why_step_by_step(trainer, layer, torch.ones(3, 1, 2), update_every=every))

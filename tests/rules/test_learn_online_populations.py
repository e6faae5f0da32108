"""Learning in a recurrent network: one compiled loop, the calls step by step, and a naive loop."""

import copy
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from round_trips import unpacked
from rule_trainers import trainer_of
from subtests import turns
from test_learn_online import NEURONS, step_by_step
from torch import nn

import lightning_accum as la
from lightning_accum.nn import LIF, AdaptiveLIF, DelayedLinear, Linear, SparseLinear, SurrogateLIF
from lightning_accum.rules import learn_online, why_step_by_step
from lightning_accum.sparse import kernel_library
from lightning_accum.sparse import recurrent as loop
from lightning_accum.sparse.kernel_library import library

SIZES = {"E": 9, "I": 4}
ENDS = [*itertools.product(SIZES, repeat=2)]
LOW, HIGH = 0.0937, 0.487  # no sum of which is the threshold


def network(delay=2, **neurons):
    """A small network in float64, whose weights leave some room to both limits."""
    populations = {name: AdaptiveLIF(size, **neurons) for name, size in SIZES.items()}
    connections = {(s, t): SparseLinear(SIZES[s], SIZES[t], 0.5, bias=False) for s, t in ENDS}
    made = la.Populations(populations, connections, delay).double().requires_grad_(False)
    for source, target in connections:
        weight = made.cell(source, target).connection.weight
        nn.init.uniform_(weight, LOW, 0.3).mul_(-1 if source == "I" else 1)
    return made


def learner_of(made, ends=("EE",), clamp=True, **options):
    rule = trainer_of(la.STDP, **{"lr_post": 0.05, "lr_pre": -0.04, "tc_pre": 10.0, **options})
    for source, target in ends:
        cell = made.cell(source, target)
        rule.register_cell(source + target, cell)
        if clamp:
            sides = (-HIGH, -LOW) if source == "I" else (LOW, HIGH)
            cell.updater.register_constraint(la.Clamp(*sides))
    return rule


def currents(steps, batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = steps, batch, sum(SIZES.values())
    return torch.rand(shape, generator=generator, dtype=torch.float64) * 0.45


@pytest.mark.filterwarnings("ignore::lightning_accum.LocalLearningWarning")  # without spikes
@pytest.mark.filterwarnings("ignore:`tc_pre` of cell")  # of which nothing is left after a step
@settings(max_examples=40)
@given(
    steps=st.integers(1, 40),
    delay=st.sampled_from([1, 3, {(s, t): 1 + 2 * (s > t) for s, t in ENDS}]),
    rule=st.fixed_dictionaries(
        {
            "trace_mode": st.sampled_from(["cumulative", "nearest"]),
            "tc_pre": st.sampled_from([0.001, 2.0, 30.0, 1e6]),
            "tc_post": st.sampled_from([2.0, 30.0]),
            "lr_post": st.sampled_from([0.05, -0.03, 0.0]),
        }
    ),
    neurons=st.fixed_dictionaries(NEURONS), clamp=st.booleans(),
    ends=st.sampled_from([("EE",), ("EE", "EI", "IE")]), threads=st.sampled_from([1, 3]),
    fewest=st.sampled_from([1, 192]),
)  # fmt: skip
def test_the_loop_equals_calls_step_by_step(
    steps, delay, rule, neurons, clamp, ends, threads, fewest
):
    torch.manual_seed(steps)
    made = network(delay, **neurons)
    pairs = [(learner_of(each, ends, clamp, **rule), each) for each in (made, copy.deepcopy(made))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_FEWEST_STEPS", fewest)
        patch.setattr(kernel_library, "threads_among", lambda pieces, elements: threads)
        for seed in range(2):  # the second sequence goes on where the first one ended
            x = currents(steps, seed=seed)
            if library(torch.float64):
                assert why_step_by_step(*pairs[0], x) is None
            assert torch.equal(learn_online(*pairs[0], x), step_by_step(*pairs[1], x))
            for states in ([unpacked(each[i]) for each in pairs] for i in range(2)):
                torch.testing.assert_close(*states, rtol=1e-10, atol=1e-12)


def test_input_and_spikes_of_other_dtypes():
    if not library(torch.float32):
        pytest.skip("needs the compiled kernel")
    made = network(spike_dtype=torch.bool).float()
    x = (currents(5) < 0.2).int()
    assert why_step_by_step(learner_of(made), made, x) is None
    assert learn_online(learner_of(made), made, x).dtype == torch.bool


def watched(made):
    made.neurons["I"].register_forward_hook(lambda *args: None)


def biased(made):
    made.connections["I_to_E"].bias = nn.Parameter(torch.zeros(9, dtype=torch.float64))


def inhibited(made):
    made.neurons["E"].inhibition = la.nn.LateralInhibition(0.1)


def outside(made):
    made.connections["E_to_E"].weight[0] = HIGH + 1


@turns("change, options, batch, why", [
    (None, {}, 2, "one sample"), (watched, {}, 1, "something else watches"),
    (biased, {}, 1, "without a bias"), (inhibited, {}, 1, "without inhibition"),
    (outside, {}, 1, "outside the limits"), (None, {"lr_post": 1e307}, 1, "overflow"),
])  # fmt: skip
def test_what_does_not_suit_is_called_step_by_step(change, options, batch, why):
    torch.manual_seed(0)
    made = network()
    if change:
        change(made)
    rule, x = learner_of(made, **options), currents(6, batch)
    assert why in str(why_step_by_step(rule, made, x))
    if options.get("lr_post", 0) < 1:
        other = copy.deepcopy(made)
        expected = step_by_step(learner_of(other, **options), other, x)
        assert torch.equal(learn_online(rule, made, x), expected)


@turns("steps", [7, 100])
def test_rates_are_too_large_if_a_weight_could_overflow_in_so_many_steps(steps):
    # Each step changes a weight by at most the rates times a trace, which is at most the steps.
    most = 1e-6 * torch.finfo(torch.float64).max / steps**2
    for share, reason in ((0.49, "None"), (0.51, "overflow")):
        made = network()
        rule = learner_of(made, lr_post=share * most, lr_pre=-share * most)
        assert reason in str(why_step_by_step(rule, made, currents(steps))), share


@turns("make, error, message", [
    (lambda: la.Populations({}, {}), ValueError, "populations, at least one"),
    (lambda: la.Populations({"E": nn.ReLU()}, {}), ValueError, r"a step a call.*ReLU\(\)"),
    (lambda: la.Populations({"E": LIF(2, time_dim=0)}, {}), ValueError, "time_dim = 0`"),
    (lambda: la.Populations({"E": LIF(2)}, {("E", "I"): Linear(2, 2)}), ValueError,
     "source, target"),
    (lambda: la.Populations({"E": LIF(2)}, {("E", "E"): Linear(2, 3)}), ValueError,
     r"out_features` should be 2.*out_features = 3`"),
    (lambda: la.Populations({"E": LIF(2)}, {("E", "E"): nn.ReLU()}), ValueError, "None`: give it"),
    (lambda: la.Populations({"E": SurrogateLIF(2, gradient="time")}, {}), ValueError,
     r"neurons\['E'\].gradient` should be .*'time'"),
    (lambda: network(0), ValueError, "later one. Found `delay = 0`"),
    (lambda: la.Populations({"E": LIF(2)}, {("E", "E"): Linear(2, 2)}, {("E", "E"): 1.5}),
     ValueError, r"`delay\[\('E', 'E'\)\]` should be a multiple of `dt = 1`.*= 1.5`.* is 2 ms"),
    (lambda: network({ends: torch.ones(3) for ends in ENDS}), ValueError, "one for each synapse"),
    (lambda: network({**dict.fromkeys(ENDS, 1), ("E", "E"): 1 + 0.5 * torch.eye(36)[2]}),
     ValueError, r"`delay\[\('E', 'E'\)\]\[2\]` should be .*= 1.5`"),
    (lambda: la.Populations({"E": LIF(2, dt=0.1), "I": LIF(1)}, {}), ValueError, "same `dt`"),
    (lambda: network({("E", "E"): 1}), ValueError, "one for each"),
    (lambda: network().cell("E", "X"), AttributeError, "ends of a connection.*'X'"),
    (lambda: network()(torch.zeros(1, 2)), ValueError, r"a step, \[B, 13\].*\(1, 2\)"),
    (lambda: network().set_extra_state({"past": torch.zeros(2, 1, 13)}), RuntimeError, "past"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_named(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_delays_of_synapses_add_to_those_of_axons_until_a_reset():
    delayed = DelayedLinear(1, 1, 3.0, delay=2.0)
    nn.init.ones_(delayed.weight)
    made = la.Populations({"E": LIF(1, v_threshold=0.5)}, {("E", "E"): delayed}, delay=2)
    for _ in range(2):
        spikes = [made(torch.tensor([[float(t == 0)]])).item() for t in range(6)]
        assert spikes == [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
        made.reset()


def test_the_loop_reads_no_synapse_that_is_not_there():
    if not library(torch.float64):
        pytest.skip("needs the compiled kernel")
    made = network()
    made.connections["E_to_I"].outputs[0] = 4
    with pytest.raises(IndexError, match="lead to neurons"):
        learn_online(learner_of(made), made, currents(3))

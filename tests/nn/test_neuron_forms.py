"""The fast loops over a sequence equal the plain steps of each neuron."""

import copy

import pytest
import torch
from compiled import currents

from lightning_accum.nn import LIF, AdaptiveLIF, LateralInhibition, WinnerTakeAll

NEURONS = {"lif": (LIF, {}), "adaptive": (AdaptiveLIF, {"theta_plus": 0.3, "tc_theta": 8.0})}
POTENTIALS = [(1.0, 0.0, 0.0), (1.0, -0.5, 0.0), (-50.0, -50.8, -50.3)]


def _plain(neurons, current):
    """What the neurons do, by their `_step` only."""
    spikes, state = neurons._integrate(current, neurons._load(current[0]), current.dtype)
    neurons._state = {"voltage": state.v, "hold": state.hold}
    return spikes


@pytest.mark.parametrize("name", NEURONS)
@pytest.mark.parametrize("refractory", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("inhibition", [None, WinnerTakeAll(0), WinnerTakeAll(3), 0.4])
def test_the_fast_loops_equal_the_plain_steps(name, refractory, inhibition):
    for potentials in POTENTIALS:
        for training in (True, False):
            check_the_loops(name, refractory, inhibition, potentials, training)


def check_the_loops(name, refractory, inhibition, potentials, training):
    kind, options = NEURONS[name]
    v_threshold, v_reset, v_rest = potentials
    fast = kind(
        5,
        tc_mem=7.0,
        v_threshold=v_threshold,
        v_reset=v_reset,
        v_rest=v_rest,
        refractory=refractory,
        time_dim=0,
        inhibition=LateralInhibition(inhibition) if inhibition == 0.4 else inhibition,
        **options,
    ).double()
    fast(currents(9, 3, 5, seed=1))  # in training, so that the threshold has risen
    fast.train(training)
    plain = copy.deepcopy(fast)
    total = 0.0
    for steps in (1, 3, 4, 33):
        current = currents(steps, 3, 5, seed=steps)
        spikes, expected = fast(current), _plain(plain, current)
        assert torch.equal(spikes, expected), (potentials, training)
        total += float(expected.sum())
        torch.testing.assert_close(fast.voltage, plain.voltage)
        held, expected_held = fast.state_dict()["_extra_state"], plain.state_dict()["_extra_state"]
        assert torch.equal(held["hold"].clamp(min=0), expected_held["hold"].clamp(min=0))
    assert total > 0, (potentials, training)
    if name == "adaptive":
        torch.testing.assert_close(fast.theta, plain.theta)
        assert (fast.theta > 0).any()


@pytest.mark.parametrize("name", NEURONS)
@pytest.mark.parametrize("spike_dtype", [None, torch.bool])
def test_traced_neurons_take_plain_steps(name, spike_dtype):
    kind, options = NEURONS[name]
    made = {"refractory": 2.0, "time_dim": 0, "spike_dtype": spike_dtype, **options}
    fast = kind(5, **made).double()
    traced = copy.deepcopy(fast)
    compiled = torch.compile(traced, backend="eager")
    for seed in range(3):
        current = currents(6, 3, 5, seed=seed)
        spikes, expected = compiled(current), fast(current)
        assert spikes.dtype == expected.dtype
        assert torch.equal(spikes, expected)
    torch.testing.assert_close(traced.state_dict(), fast.state_dict())
    torch.compiler.reset()  # torch compiles a function for few modules only


@pytest.mark.parametrize("name", NEURONS)
def test_a_step_leaves_the_state_before_it(name):
    kind, options = NEURONS[name]
    neurons = kind(5, refractory=2.0, inhibition=WinnerTakeAll(2), **options).double()
    state = neurons._load(torch.ones(3, 5, dtype=torch.float64))
    before = copy.deepcopy(state)
    _, after = neurons._step(currents(3, 5), state)
    torch.testing.assert_close(state, before, rtol=0, atol=0)
    assert after.v is not state.v

import math

import pytest
import torch
from compiled import currents
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_accum.nn import LIF, AdaptiveLIF, LateralInhibition, WinnerTakeAll

SHAPES = st.tuples(st.integers(1, 12), st.integers(1, 3), st.integers(1, 4))


def naive(
    current,
    *,
    tc_mem,
    v_threshold,
    v_reset,
    v_rest,
    refractory,
    dt=1.0,
    winner_steps=None,
    strength=None,
    theta_plus=0.0,
    tc_theta=math.inf,
):
    """One neuron and one step after the other, with absolute potentials."""
    steps, batch, size = current.shape
    v = [[v_rest] * size for _ in range(batch)]
    held_until = [[-1] * size for _ in range(batch)]
    theta = [0.0] * size
    spikes = torch.zeros_like(current)
    for t in range(steps):
        for b in range(batch):
            for n in range(size):
                if t <= held_until[b][n]:
                    v[b][n] = v_reset
                else:
                    leak = (v[b][n] - v_rest) * math.exp(-dt / tc_mem)
                    v[b][n] = v_rest + leak + current[t, b, n].item()
            fired = [n for n in range(size) if v[b][n] >= v_threshold + theta[n]]
            if winner_steps is not None and fired:
                fired = [max(fired, key=lambda n: v[b][n] - theta[n])]
            for n in fired:
                spikes[t, b, n] = 1.0
                v[b][n] = v_reset
                held_until[b][n] = t + refractory
            if winner_steps is not None and fired:
                for n in set(range(size)) - set(fired):
                    v[b][n] = v_reset
                    held_until[b][n] = max(held_until[b][n], t + winner_steps)
            if strength is not None:
                for n in range(size):
                    v[b][n] -= strength * len([m for m in fired if m != n])
        for n in range(size):
            rise = sum(spikes[t, b, n].item() for b in range(batch)) / batch
            theta[n] = theta[n] * math.exp(-dt / tc_theta) + theta_plus * rise
    return spikes, v, theta


@settings(max_examples=60)
@given(
    shape=SHAPES,
    seed=st.integers(0, 2**31),
    refractory=st.integers(0, 3),
    potentials=st.sampled_from([(1.0, 0.0, 0.0), (1.0, -0.5, 0.0), (-50.0, -50.8, -50.3)]),
    inhibition=st.sampled_from([None, 0, 2, 5, 0.7]),
    theta_plus=st.sampled_from([None, 0.0, 0.4]),
    tc_theta=st.sampled_from([math.inf, 8.0]),
)
def test_matches_the_naive_recurrence(
    shape, seed, refractory, potentials, inhibition, theta_plus, tc_theta
):
    current = currents(*shape, seed=seed)
    v_threshold, v_reset, v_rest = potentials
    shared = {"tc_mem": 7.0, "v_threshold": v_threshold, "v_reset": v_reset, "v_rest": v_rest}
    adaptation = {} if theta_plus is None else {"theta_plus": theta_plus, "tc_theta": tc_theta}
    soft = isinstance(inhibition, float)
    expected, v, theta = naive(
        current,
        **shared,
        **adaptation,
        refractory=refractory,
        winner_steps=None if soft else inhibition,
        strength=inhibition if soft else None,
    )
    shared |= adaptation | {"refractory": float(refractory)}
    if soft:
        shared["inhibition"] = LateralInhibition(inhibition)
    elif inhibition is not None:
        shared["inhibition"] = WinnerTakeAll(inhibition)
    kind = LIF if theta_plus is None else AdaptiveLIF
    sequence = kind(shape[-1], time_dim=0, **shared).double()
    stepwise = kind(shape[-1], **shared).double()
    assert torch.equal(sequence(current), expected)
    assert torch.equal(torch.stack([stepwise(i) for i in current]), expected)
    assert sequence.voltage is not None
    torch.testing.assert_close(sequence.voltage, torch.tensor(v, dtype=torch.float64))
    if theta_plus is not None:
        torch.testing.assert_close(sequence.theta, torch.tensor(theta, dtype=torch.float64))


def test_periods_are_in_ms():
    fast = LIF(1, tc_mem=10.0, refractory=1.0, dt=0.5, time_dim=0)
    slow = LIF(1, tc_mem=20.0, refractory=2.0, dt=1.0, time_dim=0)
    current = currents(40, 2, 1, seed=0)
    assert torch.equal(fast(current), slow(current))


def test_any_layer_shape():
    current = currents(6, 2, 12, seed=1)
    flat = LIF(12, time_dim=0, inhibition=WinnerTakeAll(1))
    image = LIF((3, 2, 2), time_dim=0, inhibition=WinnerTakeAll(1))
    assert torch.equal(image(current.view(6, 2, 3, 2, 2)).view(6, 2, 12), flat(current))
    assert image.voltage is not None
    assert flat.voltage is not None
    assert image.voltage.shape == (2, 3, 2, 2)
    assert torch.equal(image.voltage.flatten(1), flat.voltage)


def test_output_is_not_shared_with_the_state():
    lif, current = LIF(5, time_dim=0), currents(4, 3, 5, seed=4)
    first = lif(current)
    kept, voltage = first.clone(), lif.voltage
    lif(current)
    assert torch.equal(first, kept)
    lif.reset()
    lif(current)
    assert voltage is not None
    assert torch.equal(voltage, lif.voltage)


def test_input_is_not_changed():
    current = currents(4, 3, 5, seed=4)
    kept = current.clone()
    LIF(5, time_dim=0, inhibition=WinnerTakeAll(1))(current)
    assert torch.equal(current, kept)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_spikes_have_the_dtype_of_the_input(dtype):
    current = currents(4, 3, 5, seed=5).to(dtype)
    spikes = LIF(5, time_dim=0)(current)
    assert spikes.dtype == dtype
    boolean = LIF(5, time_dim=0, spike_dtype=torch.bool)(current)
    assert boolean.dtype == torch.bool
    assert torch.equal(boolean, spikes.bool())
    assert spikes.any()
    assert not spikes.all()


def test_spikes_can_be_the_input():
    raster = torch.rand(4, 3, 5) < 0.5
    spikes = LIF(5, time_dim=0)(raster)
    assert torch.equal(spikes, raster.float())


def test_half_precision_integrates_small_currents():
    lif = LIF(1, tc_mem=1e9, time_dim=0)
    assert lif(torch.full((1500, 1, 1), 1e-3, dtype=torch.bfloat16)).sum() == 1


def test_no_gradient_passes():
    lif, weight = LIF(5, time_dim=0), torch.rand(5, requires_grad=True)
    spikes = lif(currents(4, 3, 5, seed=6).float() * weight)
    assert not spikes.requires_grad
    assert lif.voltage is not None
    assert not lif.voltage.requires_grad


def test_theta_is_learned_in_training_alone():
    current = currents(20, 3, 5, seed=10)
    lif = AdaptiveLIF(5, theta_plus=0.3, time_dim=0)
    buffer = lif.theta
    lif.eval()
    lif(current)
    assert torch.equal(lif.theta, torch.zeros(5))
    lif.train()
    lif(current)
    learned = lif.theta.clone()
    assert (learned > 0).all()
    lif.reset()
    assert torch.equal(lif.theta, learned)
    assert lif.theta is buffer  # DDP and CUDA graphs hold on to it
    lif.eval()
    raised = lif(current)
    assert raised.sum() < LIF(5, time_dim=0)(current).sum()


def test_theta_keeps_its_precision():
    lif = AdaptiveLIF(5, time_dim=0).bfloat16()
    assert lif.theta.dtype == torch.float32
    assert AdaptiveLIF(5).double().theta.dtype == torch.float64


def test_at_most_one_winner_even_if_all_are_equal():
    spikes = LIF(6, time_dim=0, inhibition=WinnerTakeAll(3))(torch.full((9, 2, 6), 0.7))
    assert spikes.sum(-1).max() == 1
    assert spikes.any()


def test_no_samples_raise_no_threshold():
    neurons = AdaptiveLIF(3, theta_plus=0.5, time_dim=0)
    assert neurons(torch.ones(5, 0, 3)).shape == (5, 0, 3)
    assert neurons.theta.tolist() == [0.0, 0.0, 0.0]


def test_the_longest_refractory_period():
    x = torch.full((6, 1, 1), 2.0)
    longest = LIF(1, refractory=float(1 << 23), time_dim=0)
    assert longest(x).flatten().tolist() == [1, 0, 0, 0, 0, 0]
    assert longest(x).sum() == 0
    AdaptiveLIF(2, tc_mem=math.inf, tc_theta=math.inf)  # neither leaks nor returns


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("refractory", lambda: LIF(2, refractory=0.4)),
        ("tc_theta", lambda: AdaptiveLIF(2, tc_theta=0.1)),
    ],
)
def test_a_time_that_is_rounded_to_no_step_is_told(name, make):
    with pytest.warns(UserWarning, match=rf"`{name}` of \w*LIF should be at least a step"):
        make()

"""Neurons equal a loop over single neurons and steps, whichever way they are called."""

import copy
import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_helpers import currents
from round_trips import by_pickle
from torch import Tensor

from lightning_accum.nn import LIF, AdaptiveLIF, LateralInhibition, WinnerTakeAll, _fast, neuron

SIZE, RISE = 4, {"theta_plus": 0.4}


class Naive:
    """One neuron and one step after the other, with absolute potentials."""

    def __init__(self, *, refractory=0, inhibition=None, theta_plus=0.0, tc_theta=math.inf, **own):
        self.__dict__ |= own | {"refractory": int(refractory), "inhibition": inhibition}
        self.theta_plus, self.fade = theta_plus, math.exp(-1 / tc_theta)
        self.theta, self.learns, self.batch = [0.0] * SIZE, True, 0
        self.reset()

    def reset(self):
        self.v = [[self.v_rest] * SIZE for _ in range(self.batch)]
        self.held = [[0] * SIZE for _ in range(self.batch)]  # for so many steps

    def __call__(self, current):
        if current.shape[1] != self.batch:  # other samples
            self.batch = current.shape[1]
            self.reset()
        spikes = torch.zeros_like(current)
        for step, out in zip(current.tolist(), spikes, strict=True):
            for b in range(self.batch):
                for n in self.fired(self.v[b], self.held[b], step[b]):
                    out[b, n] = 1.0
            if self.learns and self.batch:
                self.theta = [
                    self.fade * each + self.theta_plus * sum(column) / self.batch
                    for each, column in zip(self.theta, out.T.tolist(), strict=True)
                ]
        return spikes

    def fired(self, v, held, current):
        """The neurons of one sample that spike; changes its potentials and its holds."""
        for n in range(SIZE):
            leak = self.v_rest + (v[n] - self.v_rest) * math.exp(-1 / self.tc_mem)
            v[n] = self.v_reset if held[n] > 0 else leak + current[n]
            held[n] -= 1
        excess = [v[n] - self.v_threshold - self.theta[n] for n in range(SIZE)]
        fired = [n for n in range(SIZE) if excess[n] >= 0]
        wins = isinstance(self.inhibition, WinnerTakeAll)
        if wins and fired:
            fired = [max(fired, key=excess.__getitem__)]
            for n in {*range(SIZE)} - {*fired}:
                v[n], held[n] = self.v_reset, max(held[n], self.inhibition.steps)
        for n in fired:
            v[n], held[n] = self.v_reset, max(held[n], self.refractory)
        if self.inhibition is not None and not wins:
            for n in range(SIZE):
                v[n] -= self.inhibition.strength * len([m for m in fired if m != n])
        return fired


def loaded(neurons):
    fresh = copy.deepcopy(neurons)
    fresh(currents(1, 5, SIZE) if fresh.time_dim == 0 else currents(5, SIZE))
    fresh.load_state_dict(neurons.state_dict())
    return fresh


def higher(neurons):
    neurons.v_threshold += 0.3


def inhibited(neurons):
    neurons.inhibition = WinnerTakeAll(1)


def switched(neurons):
    if isinstance(neurons, Naive):
        neurons.learns = not neurons.learns
    else:
        neurons.train(not neurons.training)


COPIES = [copy.deepcopy, by_pickle, loaded]
CHANGES = [lambda neurons: neurons.reset(), higher, inhibited, switched]
MEMORY = {
    "plain": Tensor.clone, "transposed": lambda x: x.mT.contiguous().mT,
    "strided": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "requires grad": lambda x: x.clone().requires_grad_(), "parameter": torch.nn.Parameter,
}  # fmt: skip
# What happens before each piece of the input, its steps and samples, and how it lies in memory.
PIECES = st.lists(
    st.tuples(
        st.sampled_from([None, None, *CHANGES, *COPIES]),
        st.sampled_from([0, 1, 3, 4, 13]),
        st.sampled_from([3, 3, 3, 1, 0]),
        st.sampled_from([*MEMORY]),
        st.booleans(),  # in inference mode
    ),
    min_size=1,
    max_size=5,
)


@pytest.fixture(params=["kernel", "loops", "compiled", "traced", "stepped"])
def way(request, monkeypatch):
    if request.param in ("loops", "compiled", "traced"):
        monkeypatch.setattr(neuron, "integrate_neurons", lambda *_: False)
    if request.param == "compiled":  # where there is no kernel
        monkeypatch.setattr(_fast, "has_kernel", lambda *_: False)
    if request.param == "traced":
        monkeypatch.setattr(neuron, "is_traced", lambda: True)
    return request.param


def called(neurons, current):
    """The spikes of a sequence, by one call or by one for each step."""
    return neurons(current) if neurons.time_dim == 0 else torch.stack([*map(neurons, current)])


@settings(
    max_examples=120, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    pieces=PIECES,
    refractory=st.integers(0, 3),
    potentials=st.sampled_from([(1.0, 0.0, 0.0), (1.0, -0.5, 0.0), (-50.0, -50.8, -50.3)]),
    inhibition=st.sampled_from([*3 * [None], *map(WinnerTakeAll, (0, 2)), LateralInhibition(0.7)]),
    adaptation=st.sampled_from([*2 * [None], RISE, {**RISE, "tc_theta": 8.0}]),
    dt=st.sampled_from([1.0, 0.5]),
    seed=st.integers(0, 999),
)
def test_they_equal_the_naive_loop(
    way, pieces, refractory, potentials, inhibition, adaptation, dt, seed
):
    potentials = dict(zip(("v_threshold", "v_reset", "v_rest"), potentials, strict=True))
    options = {"tc_mem": 7.0, "refractory": float(refractory), **(adaptation or {})}  # in steps
    in_ms = {k: v if k == "theta_plus" else dt * v for k, v in options.items()} | {"dt": dt}
    kind, time_dim = LIF if adaptation is None else AdaptiveLIF, None if way == "stepped" else 0
    naive = Naive(**options, **potentials, inhibition=inhibition)
    neurons = kind(SIZE, time_dim=time_dim, compile=way == "compiled", **in_ms, **potentials)
    neurons = neurons.double()
    neurons.inhibition = inhibition  # with which nothing is compiled
    results = []
    for i, (change, steps, samples, memory, inference) in enumerate(pieces):
        if change in COPIES:
            original, neurons = neurons, change(neurons)
            called(original, currents(2, 3, SIZE))  # which goes on apart
        elif change is not None:
            change(neurons), change(naive)
        theta = getattr(neurons, "theta", None)
        steps = steps or int(way == "stepped")
        current = MEMORY[memory](currents(steps, samples, SIZE, seed=seed + i))
        kept = current.detach().clone()
        with torch.inference_mode(inference):
            found = called(neurons, current)
        results.append((found, naive(kept)))
        assert torch.equal(current, kept)
        for spikes, expected in results:  # the earlier ones stay as they were
            assert not spikes.requires_grad
            assert torch.equal(spikes, expected)
        if neurons.voltage is not None and naive.batch:
            torch.testing.assert_close(neurons.voltage.tolist(), naive.v)
        if theta is not None:
            assert neurons.theta is theta  # DDP and CUDA graphs hold on to it
            torch.testing.assert_close(theta.tolist(), naive.theta)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, by_pickle])
def test_steps_since_the_reset_are_counted_in_copies_too(copied):
    lif = LIF(SIZE).double()
    called(lif, currents(4, 3, SIZE))
    twin = copied(lif)
    called(lif, currents(3, 3, SIZE))
    called(twin, currents(2, 3, SIZE))
    assert (lif.steps_since_reset, twin.steps_since_reset) == (7, 6)
    expected = LIF(SIZE).double()
    called(expected, torch.cat([currents(4, 3, SIZE), currents(2, 3, SIZE)]))
    assert torch.equal(twin.voltage, expected.voltage)
    lif.reset()
    assert lif.steps_since_reset == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_spikes_have_the_dtype_of_the_input(dtype):
    current = currents(4, 3, 5, seed=5).to(dtype)
    spikes = LIF(5, time_dim=0)(current)
    assert spikes.dtype == dtype
    boolean = LIF(5, time_dim=0, spike_dtype=torch.bool)(current)
    assert boolean.dtype == torch.bool
    assert torch.equal(boolean, spikes.bool())
    assert 0 < spikes.double().mean() < 1
    for step in (LIF(5), LIF(5, spike_dtype=torch.bool)):
        for each in (currents(3, 5), current[0], currents(3, 5)):
            assert step(each).dtype == (step.spike_dtype or each.dtype)


def test_spikes_can_be_the_input_and_half_precision_integrates_small_currents():
    raster = torch.rand(4, 3, 5) < 0.5
    assert torch.equal(LIF(5, time_dim=0)(raster), raster.float())
    lif = LIF(1, tc_mem=1e9, time_dim=0)
    assert lif(torch.full((1500, 1, 1), 1e-3, dtype=torch.bfloat16)).sum() == 1
    lif = AdaptiveLIF(5, time_dim=0).bfloat16()
    assert lif.theta.dtype == torch.float32
    assert AdaptiveLIF(5).double().theta.dtype == torch.float64


def test_at_most_one_winner_even_if_all_are_equal():
    spikes = LIF(6, time_dim=0, inhibition=WinnerTakeAll(3))(torch.full((9, 2, 6), 0.7))
    assert spikes.sum(-1).max() == 1
    assert spikes.any()


@pytest.mark.parametrize("inhibition", [WinnerTakeAll(2), LateralInhibition(0.7)])
@pytest.mark.parametrize("time_dim", [None, 0])
def test_neurons_compete_though_they_are_more_than_the_kernel_has_together(time_dim, inhibition):
    few, many = (
        LIF(size, 7.0, refractory=1.0, time_dim=time_dim, inhibition=inhibition).double()
        for size in (SIZE, 2000 + SIZE)
    )
    current = currents(20, 2, SIZE)
    first, last = current.tensor_split([SIZE // 2], dim=-1)
    silent = torch.zeros(20, 2, 2000, dtype=current.dtype)
    found = called(many, torch.cat([first, silent, last], dim=-1))
    found, rest, other = found.tensor_split([SIZE // 2, SIZE // 2 + 2000], dim=-1)
    assert torch.equal(torch.cat([found, other], dim=-1), called(few, current))
    assert found.any()
    assert not rest.any()


def test_the_longest_refractory_period():
    x = torch.full((6, 1, 1), 2.0)
    longest = LIF(1, refractory=float(1 << 23), time_dim=0)
    assert longest(x).flatten().tolist() == [1, 0, 0, 0, 0, 0]
    assert longest(x).sum() == 0
    AdaptiveLIF(2, tc_mem=math.inf, tc_theta=math.inf)  # neither leaks nor returns

"""Neurons that are called once a step go on in the memory of their state, as the equations say."""

import copy
import io

import pytest
import torch
from compiled import currents, needs_kernel
from torch import Tensor
from values import by_pickle

from lightning_accum.nn import LIF, AdaptiveLIF, WinnerTakeAll

STEPS = 4


class Pair:
    """Neurons that are called, and a copy that takes the plain steps of the equations."""

    def __init__(self, kind=LIF, **options):
        self.called = kind(5, tc_mem=7.0, **options).double()
        self.plain = copy.deepcopy(self.called)
        self.spikes = 0

    def steps(self, batch=3, seed=0, like=Tensor.clone):
        for current in currents(STEPS, batch, 5, seed=seed):
            found = self.called(like(current))
            state = self.plain._load(current)
            (expected,), state = self.plain._integrate(current[None], state, current.dtype)
            self.plain._state = {"voltage": state.v, "hold": state.hold}
            assert torch.equal(found, expected.to(found.dtype))
            torch.testing.assert_close(self.called.voltage, self.plain.voltage)
            self.spikes += int(expected.sum())

    def both(self, change):
        for neurons in (self.called, self.plain):
            change(neurons)


def higher(neurons):
    neurons.v_threshold = 1.3


def refractory(neurons):
    neurons.refractory = 2.0


def inhibited(neurons):
    neurons.inhibition = WinnerTakeAll(1)


def loaded(neurons):
    state = {"voltage": torch.full((3, 5), 0.8), "hold": torch.zeros(3, 5)}
    neurons.load_state_dict({"_extra_state": state})


CHANGES = [LIF.reset, LIF.double, higher, refractory, inhibited, loaded]


@pytest.mark.parametrize("kind", [LIF, AdaptiveLIF])
@pytest.mark.parametrize("period", [0.0, 3.0])
@pytest.mark.parametrize("spike_dtype", [None, torch.bool])
def test_each_step_is_that_of_the_equations(kind, period, spike_dtype):
    pair = Pair(kind, refractory=period, spike_dtype=spike_dtype)
    for seed in range(3):
        pair.steps(seed=seed)
    assert pair.spikes > 0


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_two_steps_counts(change):
    pair = Pair()
    pair.steps()
    pair.both(change)
    pair.steps(seed=1)


@pytest.mark.parametrize(
    "like",
    [
        lambda x: x.T.contiguous().T,
        lambda x: x.repeat_interleave(2, 1)[:, ::2],
        lambda x: x.clone().requires_grad_(),
        torch.nn.Parameter,
    ],
    ids=["transposed", "strided", "requires grad", "parameter"],
)
def test_currents_of_any_kind(like):
    pair = Pair()
    pair.steps()
    pair.steps(seed=1, like=like)
    pair.steps(seed=2)


def test_batches_of_other_sizes_and_dtypes_start_as_ever():
    pair = Pair()
    for batch in (3, 3, 2, 0, 3):
        pair.steps(batch)
    assert pair.called(currents(3, 5, dtype=torch.float32)).dtype == torch.float32
    with pytest.raises(ValueError, match=r"should have shape \[B, 5\]"):
        pair.called(currents(3, 4))


def test_into_and_out_of_inference_mode():
    pair = Pair()
    pair.steps()
    with torch.inference_mode():
        pair.steps(seed=1)
    pair.steps(seed=2)
    with torch.inference_mode():
        pair.both(LIF.reset)
        pair.steps(seed=3)
    pair.steps(seed=4)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, by_pickle])
def test_a_copy_and_its_original_go_on_apart(copied):
    pair = Pair()
    pair.steps()
    other = Pair()
    other.called, other.plain = copied(pair.called), copy.deepcopy(pair.plain)
    pair.steps(seed=1)
    assert other.called.steps_since_reset == STEPS
    other.steps(seed=2)
    pair.steps(seed=3)
    assert other.called.steps_since_reset == 2 * STEPS
    assert pair.called.steps_since_reset == 3 * STEPS


def test_a_saved_state_stays_as_it_is():
    pair = Pair()
    pair.steps()
    file, spikes = io.BytesIO(), pair.called(currents(3, 5))
    kept, voltage = spikes.clone(), pair.called.voltage
    before, state = voltage.clone(), pair.called.state_dict()
    torch.save(state, file)
    pair.called(currents(3, 5, seed=1))
    assert torch.equal(spikes, kept)
    assert torch.equal(voltage, before)
    file.seek(0)
    saved = torch.load(file, weights_only=True)["_extra_state"]
    assert torch.equal(saved["voltage"], state["_extra_state"]["voltage"])


def test_steps_since_the_reset_are_counted():
    pair = Pair()
    pair.steps()
    assert pair.called.steps_since_reset == STEPS
    pair.called.reset()
    assert pair.called.steps_since_reset == 0


@needs_kernel
def test_steps_go_on_in_place():
    pair = Pair()
    pair.called(currents(3, 5))
    before = pair.called._state["voltage"]
    pair.called(currents(3, 5, seed=1))
    assert pair.called._state["voltage"] is before

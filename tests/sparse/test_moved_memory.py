"""Memory that is moved between two calls is found again: C reads no address of the last call."""

import copy

import pytest
import torch
from kernel_helpers import needs_kernel, spikes

import lightning_accum as la
from lightning_accum.nn import LIF, Linear
from lightning_accum.observe import WindowRecorder

pytestmark = needs_kernel
STEPS, BATCH, INPUTS, NEURONS = 24, 2, 40, 30


def resize(tensor):
    """Moves the memory of a tensor, and leaves its values."""
    values = tensor.clone()
    tensor.resize_(10_000).fill_(7)
    tensor.resize_(values.shape).copy_(values)


MOVES = {
    "share": torch.Tensor.share_memory_, "resize": resize,
    "set data": lambda state: setattr(state, "data", state.clone()),
    "widen": lambda state: setattr(state, "data", state.double()),
    "transpose": lambda state: setattr(state, "data", state.t().contiguous().t()),
}  # fmt: skip


def junk():
    """What may lie where tensors were before."""
    return [torch.full((BATCH, NEURONS), 7.0) for _ in range(50)]


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("refractory", [0.0, 2.0])
def test_single_steps_of_neurons(move, refractory):
    current = torch.rand(STEPS, BATCH, NEURONS, generator=torch.Generator().manual_seed(0)) * 0.4
    neurons = LIF(NEURONS, refractory=refractory)
    for step in current[:4]:
        neurons(step)
    twin = copy.deepcopy(neurons)
    for step in current[4:]:
        neurons._apply(lambda state: (MOVES[move](state), state)[1])
        left = junk()
        assert torch.equal(neurons(step), twin(step))
        assert all(bool((each == 7).all()) for each in left)
    torch.testing.assert_close(neurons.voltage, twin.voltage, check_dtype=False)


def learner():
    torch.manual_seed(0)
    fc, neurons = Linear(INPUTS, NEURONS, bias=False).requires_grad_(False), LIF(NEURONS)
    fc.weight.abs_()
    rule = la.RuleTrainer(la.STDP(0.01, -0.01))
    rule.register_cell("cell", la.Cell(fc, neurons))
    return fc, neurons, rule


def test_a_rule_that_is_called_after_each_step():
    def windows(rule):
        return [each._buffer.memory for each in rule.modules() if isinstance(each, WindowRecorder)]

    ways = {
        "rule": lambda rule: rule.share_memory(),
        "windows": lambda rule: [memory[:1].share_memory_() for memory in windows(rule)],
    }
    for name, move in ways.items():
        net, twin = learner(), learner()
        for at, x in enumerate(spikes(STEPS, BATCH, INPUTS).float()):
            if at == STEPS // 2:
                move(net[2])
            left = junk()
            for fc, neurons, rule in (net, twin):
                neurons(fc(x))
                rule(carry=True)
                rule.update()
            assert all(bool((each == 7).all()) for each in left), name
        torch.testing.assert_close(net[0].weight, twin[0].weight, rtol=1e-5, atol=1e-6)


def test_spikes_that_are_recorded_step_by_step():
    recorder, twin = WindowRecorder(spikes=True), WindowRecorder(spikes=True)
    for window in spikes(3, 16, BATCH, INPUTS, density=0.05).float():
        for at, step in enumerate(window):
            recorder(step)
            twin(step)
            if at in (3, 9):
                recorder.window().share_memory_()
        assert torch.equal(recorder.window(), twin.window())
        found, expected = recorder.events(), twin.events()
        assert (found is None) == (expected is None)
        if found is not None:
            assert torch.equal(found.columns, expected.columns)
            found.columns.share_memory_()
        recorder.clear()
        twin.clear()
    assert found is not None

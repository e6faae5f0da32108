"""The gradient of a loss by a module's output, in the order of the calls."""

import copy

import pytest
import torch
from torch import nn

from lightning_accum.observe import GradientMonitor, WindowRecorder


def watched():
    torch.manual_seed(0)
    fc, relu = nn.Linear(3, 2), nn.Sigmoid()
    return fc, relu, GradientMonitor(relu, reducer=WindowRecorder())


def steps():
    return torch.arange(12.0).view(4, 1, 3)


def test_one_backward_pass_for_all_steps_comes_in_the_order_of_the_calls():
    fc, relu, monitor = watched()
    loss = sum((t + 1) * relu(fc(x)).sum() for t, x in enumerate(steps()))
    loss.backward()
    expected = torch.arange(1.0, 5.0).view(4, 1, 1).expand(4, 1, 2)
    assert torch.equal(monitor.reducer.window(), expected)


def test_a_backward_pass_for_each_step_is_the_same():
    fc, relu, monitor = watched()
    for t, x in enumerate(steps()):
        ((t + 1) * relu(fc(x)).sum()).backward()
        assert monitor.reducer.length == t + 1
    assert monitor.peek().tolist() == [[4.0, 4.0]]


def test_clearing_forgets_gradients_that_are_still_to_come():
    fc, relu, monitor = watched()
    late = relu(fc(steps()[0])).sum()
    monitor.clear()
    (2 * relu(fc(steps()[1])).sum()).backward()
    late.backward()
    assert monitor.reducer.window().tolist() == [[[2.0, 2.0]]]


def test_what_has_no_graph_is_not_seen():
    fc, relu, monitor = watched()
    with torch.no_grad():
        relu(fc(steps()[0]))
    assert monitor.peek() is None
    relu(fc(steps()[0])).sum().backward()
    assert monitor.reducer.length == 1


def test_the_graph_is_not_kept_and_a_copy_sees_nothing():
    fc, relu, monitor = watched()
    other = copy.deepcopy(monitor)
    loss = (relu(fc(steps()[0])) ** 2).sum()
    torch.autograd.grad(loss, fc.weight, create_graph=True)
    assert not monitor.peek().requires_grad
    assert other.peek() is None


def test_it_does_not_outlive_itself():
    fc, relu, monitor = watched()
    loss = relu(fc(steps()[0])).sum()
    del monitor
    loss.backward()
    assert not relu._forward_hooks


@pytest.mark.parametrize("calls", [1, 2])
def test_a_second_backward_pass_is_refused(calls):
    fc, relu, monitor = watched()
    outputs = [relu(fc(x)).sum() for x in steps()[:calls]]
    outputs[-1].backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="add the losses, and call `backward"):
        outputs[-1].backward()
    assert monitor.reducer.length == (calls == 1)

"""A rule that is called after each step plans for its cell once, and the plan follows changes."""

from __future__ import annotations

import copy

import pytest
import torch
from references import RULES
from torch import Tensor, nn

import lightning_accum as la
from lightning_accum.observe import WindowRecorder

exact = {"rtol": 1e-10, "atol": 1e-12}


class Given(nn.Module):
    """Gives out what it is told to."""

    spikes: Tensor

    def forward(self, current: Tensor) -> Tensor:
        return self.spikes


def learn(rule: la.Rule, fc: nn.Linear, neuron: Given, pre: Tensor, post: Tensor, **given) -> None:
    for x, neuron.spikes in zip(pre, post, strict=True):
        neuron(fc(x))
        rule(**{name: value[None] for name, value in given.items()})
        rule.update()


def made(name: str) -> tuple[la.Rule, nn.Linear, Given]:
    fc, neuron = nn.Linear(5, 3, bias=False).double(), Given()
    fc.register_buffer("delay", torch.ones(3, 5).double())
    rule = RULES[name].make(params=["weight"])
    rule.register_cell("cell", la.Cell(fc, neuron))
    return rule, fc, neuron


@pytest.mark.parametrize("name", RULES)
def test_a_cell_that_was_registered_anew_learns_as_a_new_one(name: str) -> None:
    torch.manual_seed(0)
    pre, post = (torch.rand(6, 2, n).double().round() for n in (5, 3))
    given = {"reward": torch.rand(2).double()} if RULES[name].rewarded else {}
    rule, fc, neuron = made(name)
    start = fc.weight.detach().clone()
    learn(rule, fc, neuron, pre, post, **given)
    fresh = RULES[name].make(params=["weight"])
    results = []
    rule.del_cell("cell")
    for one in (rule, fresh):
        with torch.no_grad():
            fc.weight.copy_(start)
        one.register_cell("cell", la.Cell(fc, neuron), dt=2.0, batch_reduction="sum")
        learn(one, fc, neuron, pre, post, **given)
        one.del_cell("cell")
        results.append(fc.weight.detach().clone())
    torch.testing.assert_close(*results, **exact)
    assert not torch.equal(results[0], start)


def test_a_copy_learns_its_own_parameters() -> None:
    torch.manual_seed(0)
    pre, post = (torch.rand(6, 2, n).double().round() for n in (5, 3))
    rule, fc, neuron = made("STDP")
    learn(rule, fc, neuron, pre, post)
    other, twin, its_neuron = copy.deepcopy((rule, fc, neuron))
    other.register_cell("cell", la.Cell(twin, its_neuron))
    before = fc.weight.detach().clone()
    learn(other, twin, its_neuron, pre, post)
    assert torch.equal(fc.weight, before)
    learn(rule, fc, neuron, pre, post)
    torch.testing.assert_close(twin.weight, fc.weight, **exact)


def test_a_parameter_that_changes_its_dtype_or_is_replaced_is_found() -> None:
    torch.manual_seed(0)
    pre, post = (torch.rand(6, 2, n).double().round() for n in (5, 3))
    rule, fc, neuron = made("STDP")
    learn(rule, fc, neuron, pre, post)
    fc.float()
    before = fc.weight.detach().clone()
    learn(rule, fc, neuron, pre.float(), post.float())
    assert fc.weight.dtype == torch.float32
    assert not torch.equal(fc.weight, before)
    fc.weight = nn.Parameter(before.clone())
    learn(rule, fc, neuron, pre.float(), post.float())
    assert not torch.equal(fc.weight, before)


def test_values_of_a_step_are_kept_in_their_own_dtype() -> None:
    recorder = WindowRecorder()
    for dtypes in ((torch.float64, torch.float32), (torch.float32,), (torch.float64,)):
        for dtype in dtypes:
            recorder(torch.ones(2, 3, dtype=dtype))
        window = recorder.window()
        assert window is not None
        assert window.dtype == max(dtypes, key=lambda dtype: dtype.itemsize)
        recorder.clear()


def test_a_value_that_is_no_spike_is_found_in_windows_of_one_step() -> None:
    recorder = WindowRecorder(spikes=True)
    recorder(torch.tensor([[1.0, 0.0]]))
    recorder.clear()

    def record() -> None:
        recorder(torch.tensor([[0.5, 0.0]]))  # at once in the kernel, otherwise when it is asked
        recorder.confirm()

    with pytest.raises(ValueError, match=r"should be 0 or 1. Found 0\.5"):
        record()

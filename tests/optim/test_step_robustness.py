"""Whichever way a step goes, it ends at the same place, or breaks off and can be taken again."""

import optimizer_cases as cases
import pytest
import torch
from interrupts import Interrupts, ends
from torch import nn

from lightning_accum import optim
from lightning_accum.sparse.moment_steps import same_layout


@pytest.mark.parametrize("name", cases.OWN)
def test_a_module_may_be_converted_between_steps(name):
    def conversions(module):
        yield module
        yield module.to(memory_format=torch.channels_last)
        yield module.double()
        yield module.to(memory_format=torch.contiguous_format)
        yield module.float()

    torch.manual_seed(0)
    module, other = nn.Conv2d(3, 2, 3), nn.Conv2d(3, 2, 3)
    other.load_state_dict(module.state_dict())
    optimizer, fixed = cases.CASES[name](module.parameters()), cases.CASES[name](other.parameters())
    for step, converted in enumerate(conversions(module)):
        for each, by in ((converted, optimizer), (other, fixed)):
            params = list(each.parameters())
            cases.give_gradients(params, step)
            by.step()
        moments = [state["exp_avg"] for state in optimizer.state.values()]
        assert all(map(same_layout, moments, converted.parameters()))
        assert {m.dtype for m in moments} == {converted.weight.dtype}
    cases.close([p.detach().float() for p in module.parameters()], list(other.parameters()), 1e-4)


class Descent(optim.GenericAdaptiveOptimizer):
    """Writes through ``.data``."""

    def step_param(self, state, group, grad, param):
        param.data.add_(grad, alpha=-group["lr"])


def test_complex_parameters_and_an_optimizer_that_writes_through_data():
    params = cases.parameters(torch.complex64)
    cases.assert_raises_as_stale(params, optim.Adam(params).step)
    params = cases.parameters()
    cases.assert_raises_as_stale(params, Descent(params, {}, 0.1, (0.0, 0.0), 0.0).step)


@pytest.mark.parametrize("name", cases.CASES)
def test_a_first_step_without_memory_can_be_taken_again(name, monkeypatch):
    params, others = cases.parameters(), cases.parameters()
    optimizer = cases.CASES[name](params)
    zeros, calls = torch.zeros_like, []

    def scarce(*args, **kwargs):
        calls.append(1)
        if len(calls) == 4:
            raise MemoryError
        return zeros(*args, **kwargs)

    monkeypatch.setattr(torch, "zeros_like", scarce)
    cases.give_gradients(params, 0)
    with pytest.raises(MemoryError):
        optimizer.step()
    monkeypatch.undo()
    assert all("exp_avg" in s or "mean" in s for s in optimizer.state.values())
    cases.same(cases.run(optimizer, params, 3), cases.run(cases.CASES[name](others), others, 3))


@pytest.mark.parametrize("name", ["adam", "radam", "one-at-a-time"])
def test_an_interrupt_leaves_an_optimizer_that_goes_on(name):
    came, at = True, 0
    while came:
        at += 1
        params = cases.parameters(shapes=((5,), (2, 3)))
        optimizer = cases.CASES[name](params)
        cases.give_gradients(params, 0)
        came = ends(optimizer.step, Interrupts(at, KeyboardInterrupt, within="optim"))
        kept = [p.detach().clone() for p in params]
        cases.run(optimizer, params, 1, 1)
        assert not any(map(torch.equal, params, kept))
    assert at > 30

"""What is applied, what is left out, and what shares no memory with what was given."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from lightning_accum import NonFiniteUpdateError, attach_updater
from lightning_accum.nn import Linear
from lightning_accum.optim import UpdateOptimizer


def test_only_the_named_parameters_are_updated() -> None:
    fc = Linear(2, 2)
    attach_updater(fc, "weight", "bias")
    before = fc.weight.detach().clone(), fc.bias.detach().clone()
    fc.updater.weight, fc.updater.bias = torch.ones(2, 2), torch.ones(2)
    fc.updatesome()
    assert torch.equal(fc.weight, before[0])
    fc.updatesome("bias")
    assert torch.equal(fc.weight, before[0])
    torch.testing.assert_close(fc.bias.detach(), before[1] + 1)
    fc.updatesome("weight", "bias")
    torch.testing.assert_close(fc.weight.detach(), before[0] + 1)
    torch.testing.assert_close(fc.bias.detach(), before[1] + 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
@pytest.mark.parametrize("policy", ["skip", "raise"])
def test_a_product_that_is_not_finite_is_not_applied(value: float, policy: str) -> None:
    fc = nn.Linear(2, 3, bias=False)
    updater = attach_updater(fc)
    updater.nonfinite = policy
    post, pre = torch.ones(4, 3), torch.ones(4, 2)
    post[1, 2] = value
    updater.weight.accumulate_outer(post, pre, 2.0)  # summed only when it is applied
    before = fc.weight.detach().clone()
    if policy == "raise":
        with pytest.raises(NonFiniteUpdateError):
            updater()
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            updater()
    assert torch.equal(fc.weight, before)


def test_a_bound_that_returns_what_it_was_given() -> None:
    fc = nn.Linear(2, 2, bias=False)
    updater = attach_updater(fc)
    updater.weight.upperbound(lambda param, update, limit: update, 1.0)
    change = torch.rand(2, 2)
    kept = change.clone()
    updater.weight.accumulate(change, None)
    before = fc.weight.detach().clone()
    for times in (1, 2):
        updater(clear=False)
        torch.testing.assert_close(fc.weight.detach(), before + times * kept)
    assert torch.equal(change, kept)


def test_the_state_of_a_replaced_parameter_goes_along() -> None:
    fc = nn.Linear(2, 2, bias=False)
    updater = attach_updater(fc)
    optimizer = UpdateOptimizer(fc.parameters())
    optimizer.attach([updater])
    optimizer.step()
    optimizer.state[fc.weight] = {"seen": torch.ones(())}
    fc.weight = nn.Parameter(torch.zeros(2, 2))
    updater.weight = torch.ones(2, 2)
    optimizer.step()
    assert optimizer.param_groups[0]["params"] == [fc.weight]
    assert list(optimizer.state) == [fc.weight]
    assert optimizer.state[fc.weight]["seen"] == 1

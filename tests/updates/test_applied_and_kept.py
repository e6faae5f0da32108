"""What is applied, what is left out, and what shares no memory with what was given."""

from __future__ import annotations

import torch
from torch import nn

from lightning_accum import attach_updater
from lightning_accum.optim import UpdateOptimizer


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

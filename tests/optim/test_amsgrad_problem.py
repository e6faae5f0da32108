"""The problem of 1904.09237, section 3, on which Adam does not converge and AMSGrad does."""

from __future__ import annotations

import pytest
import torch

from lightning_accum.optim import Adam, AMSGrad

C = 3.0  # every third slope, the others being -1: the minimum of the sum is at -1


def end(make, steps=3000):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = make([weight], betas=(0.0, 1 / (1 + C**2)), eps=0.0)
    for t in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = 0.5 / t**0.5
        weight.grad = torch.full((1,), C if t % 3 == 1 else -1.0)
        optimizer.step()
        weight.data.clamp_(-1.0, 1.0)
    return weight.item()


def test_adam_ends_at_the_worst_point_and_amsgrad_at_the_best():
    assert end(Adam) == pytest.approx(1.0, abs=0.02)
    assert end(AMSGrad) == pytest.approx(-1.0, abs=0.05)

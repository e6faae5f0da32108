"""Autograd is told of every step, whichever way it goes."""

import pytest
import torch
from optimizer_cases import CASES, OWN, parameters
from torch import nn
from turns import turns

from lightning_accum import attach_updater
from lightning_accum.optim import (
    Adam,
    GenericAdaptiveOptimizer,
    UpdateOptimizer,
    _kernels,
)

SIZES = ((5,), (2, 3), (8193,), (3, 65537), (2, 3, 4, 4), ())
WAYS = {
    "auto": {},
    "listed": {"foreach": True},
    "each": {"foreach": False},
    "capturable": {"capturable": True},
    "decayed": {"weight_decay": 0.1},
}


def assert_raises_as_stale(params, step):
    """A graph whose parameters are stepped before its backward pass."""
    losses = [(param * param).abs().sum() for param in params]
    for param in params:
        param.grad = torch.ones_like(param)
    step()
    for loss in losses:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@turns("dtype", [torch.float32, torch.bfloat16])
@turns("way", WAYS)
@turns("name", [name for name in OWN if name != "radam-still"])
def test_a_graph_that_a_step_made_stale_raises(name, way, dtype):
    params = parameters(dtype, shapes=SIZES)
    optimizer = CASES[name](params, **WAYS[way])
    for _ in range(2):  # with a new plan, and a known one
        assert_raises_as_stale(params, optimizer.step)


class Descent(GenericAdaptiveOptimizer):
    """Writes through ``.data``."""

    def step_param(self, state, group, grad, param):
        param.data.add_(grad, alpha=-group["lr"])


def test_complex_parameters_and_an_optimizer_that_writes_through_data():
    params = parameters(torch.complex64)
    assert_raises_as_stale(params, Adam(params).step)
    params = parameters()
    assert_raises_as_stale(params, Descent(params, {}, 0.1, (0.0, 0.0), 0.0).step)


@turns("change", ["product", "parts", "bounded", "two rates", "nothing to raise"])
def test_an_applied_update(change):
    fc = nn.Linear(3, 2)
    updater = attach_updater(fc, "weight", "bias")
    if change == "product":
        updater.weight.accumulate_outer(torch.ones(4, 2), torch.ones(4, 3))
    else:
        updater.weight = torch.ones(2, 3), torch.full((2, 3), 0.5)
        updater.bias = torch.ones(2)
    if change == "bounded":
        updater.weight.fullbound("multiplicative", 1.0, 0.0)
    if change == "nothing to raise":
        updater.nonfinite = "ignore"
    groups = [{"params": [fc.weight]}, {"params": [fc.bias], "lr": 0.5 + (change != "two rates")}]
    params = [fc.weight] if change == "product" else [fc.weight, fc.bias]
    assert_raises_as_stale(params, UpdateOptimizer(groups, 1.5, [updater]).step)


def test_versions_are_counted():
    params = parameters()
    before = [p._version for p in params]
    _kernels.count_versions(params)
    assert [p._version for p in params] == [version + 1 for version in before]

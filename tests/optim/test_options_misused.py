"""Options and templates of optimizers by which something else would be learned."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from lightning_accum import Accumulator, attach_updater
from lightning_accum.functional import bound_power
from lightning_accum.optim import (
    Adam,
    AdamWarmup,
    AdamWarmupCosineDecay,
    GenericAdaptiveOptimizer,
    updates_as_gradients,
)


@pytest.mark.parametrize("make", [AdamWarmup, AdamWarmupCosineDecay])
def test_a_share_of_the_steps_as_warmup(make: Any) -> None:
    params = [nn.Parameter(torch.ones(2))]
    with pytest.raises(ValueError, match=r"of at least 1. Found `warmup = 0.1`"):
        make(params, warmup=0.1)
    make(params, warmup=0), make(params, warmup=10)


def test_an_infinite_rate() -> None:
    with pytest.raises(ValueError, match="Found `lr = inf`"):
        Adam([nn.Parameter(torch.ones(2))], lr=math.inf)


class Returning(GenericAdaptiveOptimizer):
    """Returns what the template says to write in place."""

    def __init__(self, params: Any, step: bool, state: bool) -> None:
        super().__init__(params, {}, 0.1, (0.9, 0.99), 0.0)
        self.returns = step, state

    def init_state(self, state: Any, group: Any, param: Any) -> Any:
        state["mean"] = torch.zeros_like(param)
        return state if self.returns[1] else None

    def step_param(self, state: Any, group: Any, grad: Any, param: Any) -> Any:
        return param - grad if self.returns[0] else None


@pytest.mark.parametrize(
    ("step", "state", "said"), [(True, False, "param.copy_"), (False, True, "state.update")]
)
def test_a_template_that_returns_its_result(step: bool, state: bool, said: str) -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    with pytest.raises(TypeError, match=said.replace(".", r"\.")):
        Returning([weight], step, state).step()
    assert weight.tolist() == [1, 1]


def test_an_updater_given_twice_is_exported_once() -> None:
    fc = nn.Linear(2, 1, bias=False)
    updater = attach_updater(fc, "weight")
    updater.weight = torch.ones(1, 2)
    updates_as_gradients(updater, updater)
    assert fc.weight.grad is not None
    assert fc.weight.grad.tolist() == [[-1, -1]]


@pytest.mark.parametrize("name", ["reduction", "upperbound", "lowerbound", "fullbound"])
def test_what_is_called_cannot_be_assigned(name: str) -> None:
    accumulator = Accumulator(name="weight")
    with pytest.raises(AttributeError, match=rf"call `{name}\(bound_power, \.\.\.\)`"):
        setattr(accumulator, name, bound_power)
    assert not accumulator.bounded

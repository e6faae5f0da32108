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
    AdaBelief,
    Adam,
    AdamWarmup,
    AdamWarmupCosineDecay,
    AMSGrad,
    GenericAdaptiveOptimizer,
    Noam,
    RAdam,
    WeightDecay,
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


@pytest.mark.parametrize("make", [RAdam, lambda p, **o: AdaBelief(p, rectify=True, **o)])
def test_a_rectification_that_never_comes(make: Any) -> None:
    params = [nn.Parameter(torch.ones(2))]
    with pytest.raises(ValueError, match=r"above 2 / 3 .* Found `betas = \(0.9, 0.5\)`"):
        make(params, betas=(0.9, 0.5), degenerate_to_sgd=False)
    make(params, betas=(0.9, 0.5))
    optimizer = make(params, betas=(0.9, 0.7), degenerate_to_sgd=False)
    for _ in range(30):
        params[0].grad = torch.ones(2)
        optimizer.step()
    assert (params[0] < 1).all()
    AdaBelief(params, betas=(0.9, 0.5), degenerate_to_sgd=False)  # which does not rectify


@pytest.mark.parametrize("kind", [torch.optim.Adam, Adam])
def test_a_state_without_the_maximum(kind: Any) -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    saver = kind([weight], lr=0.1)
    saver.step()
    optimizer = AMSGrad([weight], lr=0.1)
    with pytest.warns(UserWarning, match=r"`AMSGrad` .* Found `amsgrad = False` in groups \[0\]"):
        optimizer.load_state_dict(saver.state_dict())
    optimizer.param_groups[0]["amsgrad"] = True
    for slope in (0.0, 0.0):
        weight.grad = torch.full((2,), slope)
        optimizer.step()
    state = optimizer.state[weight]
    assert (state["max_exp_avg_sq"] > state["exp_avg_sq"]).all()
    for make in (lambda: AMSGrad([weight]), lambda: torch.optim.Adam([weight], amsgrad=True)):
        optimizer.load_state_dict(make().state_dict())
    AMSGrad([weight], amsgrad=False).load_state_dict(saver.state_dict())


def test_a_decay_of_torchs_adam_keeps_its_meaning() -> None:
    ends = []
    for ours in (False, True):
        weight = nn.Parameter(torch.ones(2))
        optimizer: torch.optim.Optimizer = torch.optim.Adam([weight], lr=0.1, weight_decay=0.5)
        for step in range(4):
            if ours and step == 2:
                saved = optimizer.state_dict()
                saved["param_groups"][0]["decoupled_weight_decay"] = False  # as of torch 2.7
                optimizer = Adam([weight])
                optimizer.load_state_dict(saved)
            weight.grad = torch.full((2,), 0.1 * step)
            optimizer.step()
        ends.append(weight.detach())
    torch.testing.assert_close(*ends)


@pytest.mark.parametrize("foreach", [None, False])
def test_a_weight_decay_written_into_a_group(foreach: bool | None) -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = Adam([weight], foreach=foreach)
    optimizer.param_groups[0]["weight_decay"] = WeightDecay(0.5)
    with pytest.raises(TypeError, match=r"of a group .* should be a number. Found a `WeightDecay`"):
        optimizer.step()
    assert weight.tolist() == [1, 1]


class InPlaceOnly(WeightDecay):
    """Decays the parameter, and forgets the gradient."""

    def __call__(self, param: Any, grad: Any, group: Any) -> Any:
        param.mul_(0.5)


def test_a_weight_decay_that_returns_nothing() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    with pytest.raises(TypeError, match=r"Found a `NoneType` from `InPlaceOnly.__call__"):
        Adam([weight], weight_decay=InPlaceOnly(0.1)).step()


def test_noam_tells_of_the_rate_in_a_checkpoint_of_adam() -> None:
    weight = nn.Parameter(torch.ones(2))
    saved = torch.optim.Adam([weight], lr=1e-3).state_dict()
    optimizer = Noam([weight])
    with pytest.warns(UserWarning, match=r"Found 0.001, .*`group\['lr'\] = 1.4`"):
        optimizer.load_state_dict(saved)
    optimizer.load_state_dict(saved)  # it was as low before
    optimizer.param_groups[0]["lr"] = 1.4
    optimizer.load_state_dict(Noam([weight]).state_dict())


def test_an_absolute_decay_of_one_or_more() -> None:
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises(ValueError, match=r"below 1 .* 1.5`, which flips their signs"):
        Adam([weight], weight_decay=WeightDecay(1.5, absolute=True))
    with pytest.raises(ValueError, match=r"Found `weight_decay = 1.0`, which sets them to 0"):
        Adam([weight], weight_decay=WeightDecay(1.0, absolute=True))
    optimizer = Adam([weight], weight_decay=WeightDecay(0.9, absolute=True))
    with pytest.raises(ValueError, match="below 1"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "weight_decay": 2.0})
    Adam([weight], weight_decay=WeightDecay(1.5))
    Adam([weight], weight_decay=WeightDecay(1.5, weight_decouple=False, absolute=True))


def test_a_decay_that_flips_weights_in_a_step() -> None:
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.zeros(2)
    with pytest.warns(UserWarning, match=r"Found 0, .* = 5`, which sets them to 0: lower"):
        Adam([weight], lr=0.2, weight_decay=5.0).step()
    optimizer = Adam([weight], lr=0.1, weight_decay=5.0)  # the factor is 0.5
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 1.0
    with pytest.warns(UserWarning, match=r"Found -4, with a learning rate of 1 and .* = 5`"):
        optimizer.step()
    optimizer.step()  # told once
    Noam([weight], lr=1.0, weight_decay=5.0, warmup=4, d_model=16).step()  # its rate is low

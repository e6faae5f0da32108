"""A call that is refused changes nothing, in any cell."""

from __future__ import annotations

import copy
import gc
import warnings

import numpy as np
import pytest
import torch
from rule_trainers import trainer_of
from torch import nn

import lightning_accum as la
from lightning_accum import attach_updater, get_updater, optim


def layer():
    made = la.Serial(nn.Linear(3, 2), nn.Hardtanh(0, 1))
    for param in made.parameters():
        nn.init.ones_(param)
    return made


def parts(module):
    updater = get_updater(module.connection)
    found = [(getattr(updater, name).pos, getattr(updater, name).neg) for name in updater.names]
    return [part for pair in found for part in pair if part is not None]


def same(one, other):
    return len(one) == len(other) and all(map(torch.equal, one, other))


def two(kind, **options):
    both = {"batch_reduction": "sum", "params": ("weight", "bias")}
    rule = trainer_of(kind, 0.1, -0.1, **both, **options)
    layers = layer(), layer()
    for name, each in zip("ab", layers, strict=True):
        rule.register_cell(name, each.cell)
    return rule, *layers


def run(one, other):
    for _ in range(4):
        one(torch.ones(2, 3))
    for _ in range(3):
        other(torch.ones(2, 3))


REWARDS = {
    "missing": (None, r"call `trainer\(reward=\.\.\.\)`, or"),
    "word": ("good", "convert it"),
    "list": ([1.0, 1.0], r"convert it, `torch.as_tensor\(reward\)`"),
    "array": (np.ones(2), r"convert it, `torch.as_tensor\(reward\)`"),
    "scalar": (np.float32(1.0), r"convert it, `torch.as_tensor\(reward\)`"),
    "batch": (torch.ones(3), "give a number for each sample"),
    "swapped": (torch.ones(2, 4), r"time is its first dimension, so call `reward.transpose"),
    "too long": (
        torch.ones(9, 2), r"give .* steps \(4\), as by `trainer\(reward=reward\[t : t \+ 4\]\)`"
    ),
    "fits the second cell": (torch.ones(3, 2), r"give only .* window's steps \(4\)"),
    "fits the first cell": (torch.ones(4, 2), r"give only .* window's steps \(3\)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", [la.MSTDP, la.MSTDPET])
@pytest.mark.parametrize("bad", REWARDS)
def test_a_reward_that_does_not_fit_leaves_everything_for_another_call(kind, bad):
    wrong, remedy = REWARDS[bad]
    (rule, *layers), (other, *others) = two(kind), two(kind)
    for earlier in (False, True):  # then something is pending, and carried
        run(*layers)
        run(*others)
        before = copy.deepcopy([state.state_dict() for _, state in rule.cells])
        known = [parts(each) for each in layers]
        with pytest.raises(ValueError, match=rf"`reward` should be .* Found .*: {remedy}"):
            rule(**({} if wrong is None else {"reward": wrong}))
        assert all(map(same, [parts(each) for each in layers], known))
        assert bool(known[0]) == earlier
        assert repr([state.state_dict() for _, state in rule.cells]) == repr(before)
        for each in (rule, other):
            each(reward=torch.tensor([1.0, -2.0]))
        for one, two_ in zip(layers, others, strict=True):
            assert parts(one)
            assert same(parts(one), parts(two_))


# ---------------------------------------------------------------------------- applying
@pytest.mark.parametrize("through", ["update", "optimizer", "gradients"])
def test_updaters_are_applied_all_or_none(through):
    rule, *layers = two(la.STDP)
    updaters = [attach_updater(each.connection) for each in layers]
    before = [param.detach().clone() for each in layers for param in each.parameters()]

    def apply():
        if through == "update":
            rule.update()
        elif through == "gradients":
            optim.updates_as_gradients(*updaters)
        else:
            params = [param for each in layers for param in each.parameters()]
            optim.UpdateOptimizer(params, updaters=updaters).step()

    updaters[0].weight = torch.ones(2, 3)
    updaters[1].weight = torch.full((2, 3), torch.nan)
    with pytest.raises(la.NonFiniteUpdateError, match="Nothing was applied"):
        apply()
    after = [param for each in layers for param in each.parameters()]
    assert all(map(torch.equal, before, after))
    assert all(param.grad is None for param in after)
    assert not updaters[0].weight.empty
    updaters[1].clear()
    updaters[1].weight = torch.ones(2, 3)
    apply()
    for each in layers:
        changed = each.connection.weight - 1
        if through == "gradients":
            changed = -each.connection.weight.grad
        assert (changed == 1).all()
    assert all(updater.weight.empty for updater in updaters)


def test_a_refused_call_is_a_call():
    """The error says what to do; the end of the rule does not add that it was never called."""
    made, rule = layer(), la.RuleTrainer(la.MSTDP(0.1, -0.05))
    rule.register_cell("enc", made.cell)
    made(torch.ones(2, 3))
    with pytest.raises(ValueError, match="reward"):
        rule()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule.eval()
        del rule
        gc.collect()

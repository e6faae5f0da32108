"""A call that is refused changes nothing, in any cell."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import lightning_accum as la
from lightning_accum import attach_updater, get_updater, optim


def layer() -> la.Serial:
    made = la.Serial(nn.Linear(3, 2), nn.Hardtanh(0, 1))
    for param in made.parameters():
        nn.init.ones_(param)
    return made


def parts(module: la.Serial) -> list[torch.Tensor]:
    updater = get_updater(module.connection)
    found = [(getattr(updater, name).pos, getattr(updater, name).neg) for name in updater.names]
    return [part for pair in found for part in pair if part is not None]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def two(kind: type, **options: object) -> tuple[la.Rule, la.Serial, la.Serial]:
    rule = kind(0.1, -0.1, batch_reduction="sum", params=("weight", "bias"), **options)
    layers = layer(), layer()
    for name, each in zip("ab", layers, strict=True):
        rule.register_cell(name, each.cell)
    return rule, *layers


def run(one: la.Serial, other: la.Serial) -> None:
    for _ in range(4):
        one(torch.ones(2, 3))
    for _ in range(3):
        other(torch.ones(2, 3))


BAD = {
    "missing": {},
    "word": {"reward": "good"},
    "list": {"reward": [1.0, 1.0]},
    "batch": {"reward": torch.ones(3)},
    "fits the first cell": {"reward": torch.ones(4, 2)},
}


@pytest.mark.parametrize("kind", [la.MSTDP, la.MSTDPET])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("earlier", [False, True])
def test_a_reward_that_does_not_fit_leaves_everything_for_another_call(kind, bad, earlier):
    (rule, *layers), (other, *others) = two(kind), two(kind)
    if earlier:  # something is pending, and carried
        for each, own in ((rule, layers), (other, others)):
            run(*own)
            each(reward=0.5)
    run(*layers)
    run(*others)
    before = copy.deepcopy([state.state_dict() for _, state in rule.cells])
    known = [parts(each) for each in layers]
    with pytest.raises(ValueError, match="Argument `reward` should be"):
        rule(**BAD[bad])
    assert all(map(same, [parts(each) for each in layers], known))
    after = [state.state_dict() for _, state in rule.cells]
    assert repr(after) == repr(before)
    rule(reward=torch.tensor([1.0, -2.0]))
    other(reward=torch.tensor([1.0, -2.0]))
    for one, two_ in zip(layers, others, strict=True):
        assert parts(one)
        assert same(parts(one), parts(two_))


class Second(la.Rule):
    """Fails for one parameter of one cell, after the others."""

    lr: float = 0.1

    def terms(self, window, h):
        if window.inputs.get("fail") and window.name == "bias" and window.total == 3:
            raise LookupError("on purpose")
        return [la.Term(h.lr, window.post, window.pre)]


def test_whichever_term_fails_nothing_was_accumulated():
    rule, layers = Second(params=("weight", "bias")), (layer(), layer())
    for name, each in zip("ab", layers, strict=True):
        rule.register_cell(name, each.cell)
    run(*layers)
    with pytest.raises(LookupError, match="on purpose"):
        rule(fail=True)
    assert all(not parts(each) for each in layers)
    rule()
    assert all(len(parts(each)) == 2 for each in layers)
    assert parts(layers[0])[0][0, 0] / parts(layers[1])[0][0, 0] == pytest.approx(4 / 3)


def test_activity_that_does_not_fit_is_dropped_and_the_next_window_is_a_new_one():
    rule, one, other = two(la.STDP)
    other.connection(torch.ones(2, 3))
    with pytest.raises(ValueError, match="Cell `b` should see"):
        rule()
    run(one, other)
    rule()
    assert parts(one)


# ---------------------------------------------------------------------------- applying
@pytest.mark.parametrize("through", ["update", "optimizer", "gradients"])
def test_updaters_are_applied_all_or_none(through):
    rule, *layers = two(la.STDP)
    updaters = [attach_updater(each.connection) for each in layers]
    before = [param.detach().clone() for each in layers for param in each.parameters()]

    def apply() -> None:
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


@pytest.mark.parametrize("fn", [lambda x: x.mean(0), lambda: None, lambda x, y, z: x])
def test_a_reduction_that_cannot_be_called(fn):
    with pytest.raises(TypeError, match=r"should be a callable `fn\(stacked, dim\)`. Found `<lam"):
        la.STDP(0.1, -0.1, batch_reduction=fn)
    with pytest.raises(TypeError, match=r"lambda x, dim: x.mean"):
        la.STDP(0.1, -0.1).register_cell("c", layer().cell, batch_reduction=fn)


@pytest.mark.parametrize("fn", [torch.mean, torch.prod, lambda x, dim=0: x.mean(dim), nn.ReLU()])
def test_a_reduction_that_can(fn):
    la.STDP(0.1, -0.1, batch_reduction=fn)

"""UpdateOptimizer alone: rates, groups, schedulers, closures, copies."""

import copy

import pytest
import torch
from optimizer_cases import assert_raises_as_stale
from torch import nn
from turns import turns
from values import by_pickle

from lightning_accum import Clamp, NonFiniteUpdateError, attach_updater
from lightning_accum.optim import UpdateOptimizer


def layer(*params, value=0.5):
    fc = nn.Linear(3, 2, dtype=torch.float64)
    for param in fc.parameters():
        nn.init.constant_(param, value)
    return fc, attach_updater(fc, *(params or ("weight", "bias")))


def pend(updater, pos=1.0, neg=0.25):
    for name in updater.names:
        like = getattr(updater.parent, name)
        setattr(updater, name, (torch.full_like(like, pos), torch.full_like(like, neg)))


def value(param):
    first = param.detach().flatten()[0]
    assert (param == first).all()
    return float(first)


@turns(
    "lr, pos, neg, start",
    [(1.0, 1.0, 0.25, 0.5), (0.0, 3.0, 1.0, -1.0), (7.3, 0.0, 9.1, 0.3), (0.01, 4.2, 0.0, 0.0)],
)
def test_the_rate_scales_the_change(lr, pos, neg, start):
    fc, updater = layer(value=start)
    optimizer = UpdateOptimizer(fc.parameters(), lr, [updater])
    pend(updater, pos, neg)
    for _ in range(2):  # in the second step nothing is pending any more
        optimizer.step()
        for param in fc.parameters():
            assert value(param) == pytest.approx(start + lr * (pos - neg), abs=1e-12)


def test_a_closure_runs_first_then_what_is_outstanding_is_called_for():
    fc, updater = layer("weight")
    optimizer = UpdateOptimizer(fc.parameters())
    called = []

    def closure():
        optimizer.zero_grad()
        loss = fc(torch.ones(1, 3, dtype=torch.float64)).sum()
        loss.backward()
        return loss

    def prepare(given):
        called.append(given)
        pend(updater)

    optimizer.attach([updater], prepare, called.append)
    assert optimizer.step(closure).item() == pytest.approx(4.0)
    assert called == [optimizer, optimizer]
    assert fc.weight.grad is not None
    assert fc.weight.requires_grad
    assert value(fc.weight) == 1.25  # by what was pending, not by the gradient
    optimizer.detach([updater], prepare, called.append)
    with pytest.raises(RuntimeError, match="Found none"):
        optimizer.step()
    assert len(called) == 2


@turns(
    "schedule",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
        lambda o: torch.optim.lr_scheduler.LinearLR(o, 0.5, total_iters=2),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 4),
    ],
)
def test_a_scheduler_reaches_the_rate(schedule):
    fc, updater = layer("weight", value=0.0)
    optimizer = UpdateOptimizer([fc.weight], updaters=[updater])
    scheduler, rates = schedule(optimizer), []
    for _ in range(5):
        rates.append(optimizer.param_groups[0]["lr"])
        pend(updater)
        optimizer.step()
        scheduler.step()
        assert value(fc.weight) == pytest.approx(0.75 * sum(rates), abs=1e-12)
    assert len({*rates}) > 2


FACTOR = r"`lr` should be a non-negative factor. Found `lr = "


@turns(
    "options, words",
    [({"lr": -0.1}, FACTOR), ({"lr": float("nan")}, FACTOR),
     ({"weight_decay": 0.1}, r"should have no `weight_decay`.* = 0\.1")],
)  # fmt: skip
def test_options_that_cannot_be(options, words):
    fc, updater = layer()
    with pytest.raises(ValueError, match=words):
        UpdateOptimizer([{"params": [fc.weight], **options}])
    optimizer = UpdateOptimizer([{"params": fc.weight, "weight_decay": 0.0}], updaters=[updater])
    assert optimizer.param_groups[0]["weight_decay"] == 0.0
    with pytest.raises(ValueError, match=words):
        optimizer.add_param_group({"params": [fc.bias], **options})
    state_dict = optimizer.state_dict()
    state_dict["param_groups"][0].update(options)
    with pytest.raises(ValueError, match=words):
        optimizer.load_state_dict(state_dict)
    assert optimizer.param_groups[0]["lr"] == 1.0


def test_a_step_that_cannot_be_changes_nothing():
    fc, updater = layer()
    optimizer = UpdateOptimizer(fc.parameters(), updaters=[updater])
    with pytest.raises(ValueError, match=FACTOR):
        UpdateOptimizer(fc.parameters(), -0.1)
    optimizer.step()  # nothing pending is no mistake
    updater.weight = torch.full_like(fc.weight, torch.nan)
    updater.bias = torch.ones_like(fc.bias)
    with pytest.raises(NonFiniteUpdateError, match="weight of `Linear`"):
        optimizer.step()
    assert value(fc.weight) == value(fc.bias) == 0.5
    del fc
    with pytest.raises(RuntimeError, match="no longer exists"):
        optimizer.step()


def test_bounds_come_before_the_rate_and_constraints_after_it():
    fc, updater = layer("weight")
    updater.weight.fullbound("multiplicative", 1.0, 0.0)
    updater.register_constraint(Clamp(max=0.7))
    optimizer = UpdateOptimizer(fc.parameters(), 0.5, [updater])
    pend(updater)
    optimizer.step()  # 0.5 + 0.5 * (0.5 * 1 - 0.5 * 0.25)
    assert value(fc.weight) == pytest.approx(0.6875)
    pend(updater)
    optimizer.step()
    assert value(fc.weight) == pytest.approx(0.7)


def test_every_group_has_its_rate():
    fc, updater = layer()
    groups = [{"params": [fc.weight], "lr": 2.0}, {"params": [fc.bias]}]
    optimizer = UpdateOptimizer(groups, 0.5, [updater])
    pend(updater)
    optimizer.step()
    assert value(fc.weight) == 0.5 + 2 * 0.75
    assert value(fc.bias) == 0.5 + 0.5 * 0.75
    optimizer.param_groups[0]["lr"] = torch.tensor(0.0)  # as torch allows it
    pend(updater)
    optimizer.step()
    assert value(fc.weight) == 0.5 + 2 * 0.75
    assert updater.weight.empty  # a rate of zero consumes what was pending


def test_an_updater_counts_once_however_often_it_is_attached():
    fc, updater = layer("weight")
    optimizer = UpdateOptimizer([fc.weight], updaters=[updater, updater])
    optimizer.attach([updater])
    pend(updater)
    optimizer.step()
    assert value(fc.weight) == 1.25
    optimizer.detach([updater])
    pend(updater)
    with pytest.raises(RuntimeError, match="Found none"):
        optimizer.step()
    assert value(fc.weight) == 1.25


@turns("copied", [copy.deepcopy, by_pickle])
def test_a_copy_is_of_other_parameters_and_attached_anew(copied):
    fc, updater = layer("weight")
    optimizer = UpdateOptimizer([fc.weight], 0.5, [updater])
    twin, other = copied((fc, optimizer))
    pend(updater)
    with pytest.raises(RuntimeError, match="Found none, so"):
        other.step()
    mine = attach_updater(twin, "weight")
    other.attach([mine])
    pend(mine)
    other.step()
    assert (value(fc.weight), value(twin.weight)) == (0.5, 0.875)
    optimizer.step()
    assert (value(fc.weight), value(twin.weight)) == (0.875, 0.875)


def test_what_stands_in_no_group_stays_pending():
    fc, updater = layer()
    optimizer = UpdateOptimizer([nn.Parameter(fc.weight.detach())], updaters=[updater])
    pend(updater)
    with pytest.raises(RuntimeError, match="Found 1 updaters, none of them of"):
        optimizer.step()
    optimizer.add_param_group({"params": [fc.weight]})
    fc.bias = nn.Parameter(torch.full_like(fc.bias, 0.5))
    optimizer.step()
    assert (value(fc.weight), value(fc.bias)) == (1.25, 0.5)
    optimizer.add_param_group({"params": [fc.bias], "lr": 0.1})
    optimizer.step()
    assert value(fc.bias) == pytest.approx(0.575)


def test_it_follows_parameters_by_their_names():
    (one, first), (two, second) = layer(), layer("weight")
    two.weight = one.weight  # of two names one is replaced
    slow = {"params": [one.weight], "lr": 0.5}
    optimizer = UpdateOptimizer([slow, {"params": [one.bias]}], updaters=[first, second])
    optimizer.state[one.bias] = {"seen": torch.ones(())}
    one.weight, one.bias = (nn.Parameter(p.detach().clone()) for p in (one.weight, one.bias))
    pend(first)
    pend(second)
    optimizer.step()
    assert value(one.weight) == value(two.weight) == 0.875
    assert value(one.bias) == 1.25
    found = [[id(p) for p in group["params"]] for group in optimizer.param_groups]
    assert found == [[id(one.weight), id(two.weight)], [id(one.bias)]]
    assert dict(optimizer.state) == {one.bias: {"seen": 1}}


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

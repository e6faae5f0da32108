"""UpdateOptimizer alone, in any order of calls, and updates that become gradients."""

import copy
import random
from contextlib import nullcontext

import pytest
import torch
from optimizer_cases import assert_raises_as_stale
from round_trips import by_pickle
from subtests import turns
from torch import nn
from torch.distributed.checkpoint import state_dict as checkpoint

from lightning_accum import Clamp, NonFiniteUpdateError, attach_updater, get_updater
from lightning_accum.optim import Adam, UpdateOptimizer, update_optimizer, updates_as_gradients


def layer(*params, value=0.5, dtype=torch.float64):
    fc = nn.Linear(3, 2, dtype=dtype)
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


class Run:
    """An UpdateOptimizer of two layers, and by hand what each parameter holds and waits for."""

    def __init__(self, draw):
        self.draw, self.attached, self.groups = draw, set(), []
        self.layers = [layer()[0], layer("weight")[0]]
        self.values = {(0, "weight"): 0.5, (0, "bias"): 0.5, (1, "weight"): 0.5}
        self.pending = {}
        self.optimizer = UpdateOptimizer([self.param(0, "weight")], 0.5)
        self.groups.append(([(0, "weight")], 0.5))

    def param(self, i, name):
        return getattr(self.layers[i], name)

    def updater(self, i):
        return get_updater(self.layers[i])

    def pend(self):
        i, pos, neg = self.draw.randrange(2), self.draw.random(), self.draw.random()
        pend(self.updater(i), pos, neg)
        for name in self.updater(i).names:
            self.pending[i, name] = self.pending.get((i, name), 0.0) + pos - neg

    def step(self):
        applied = {key: rate for keys, rate in self.groups for key in keys}
        applied = {key: rate for key, rate in applied.items() if key[0] in self.attached}
        if not applied:
            words = "updaters, none of them of" if self.attached else "Found none"
            with pytest.raises(RuntimeError, match=words):
                self.optimizer.step()
        else:
            self.optimizer.step()
        for key, rate in applied.items():  # at a rate of zero too, nothing stays pending
            self.values[key] += rate * self.pending.pop(key, 0.0)

    def attach(self):
        i = self.draw.randrange(2)
        self.optimizer.attach([self.updater(i)] * self.draw.choice([1, 2]))
        self.attached.add(i)

    def detach(self):
        i = self.draw.randrange(2)
        self.optimizer.detach([self.updater(i)])
        self.attached.discard(i)

    def change(self):
        at, rate = self.draw.randrange(len(self.groups)), self.draw.choice([0.0, 0.01, 1.0, 7.25])
        given = self.draw.choice([float, torch.tensor])(rate)  # a tensor, as torch allows it
        self.optimizer.param_groups[at]["lr"] = given
        self.groups[at] = self.groups[at][0], rate

    def grow(self):
        known = [key for keys, _ in self.groups for key in keys]
        for key in self.values.keys() - known:
            self.optimizer.add_param_group({"params": [self.param(*key)], "lr": 2.0})
            self.groups.append(([key], 2.0))
            return

    def replace(self):
        """Puts another parameter in the place of one, which the optimizer follows by its name."""
        for i in self.attached:
            for name in self.updater(i).names:
                param = self.param(i, name)
                setattr(self.layers[i], name, nn.Parameter(param.detach().clone()))

    def copy(self):
        original = self.layers, self.optimizer
        self.layers, self.optimizer = self.draw.choice([copy.deepcopy, by_pickle])(original)
        for fc in original[0]:
            pend(get_updater(fc))  # goes on apart
        self.attached.clear()

    def check(self):
        for (i, name), expected in self.values.items():
            assert value(self.param(i, name)) == pytest.approx(expected, abs=1e-9)
            assert getattr(self.updater(i), name).empty == ((i, name) not in self.pending)
        found = [[id(p) for p in group["params"]] for group in self.optimizer.param_groups]
        assert found == [[id(self.param(*key)) for key in keys] for keys, _ in self.groups]


@turns("seed", range(40))
def test_calls_in_any_order(seed):
    run = Run(random.Random(seed))
    names = ["pend", "step", "attach", "detach", "change", "grow", "replace", "copy"]
    for name in run.draw.choices(names, [6, 8, 4, 1, 3, 1, 1, 1], k=40):
        print(name)  # which a failure shows
        getattr(run, name)()
        run.optimizer.idle  # noqa: B018 -- follows what was replaced
        run.check()


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
    for step in (optimizer.step, lambda: updates_as_gradients(updater)):
        with pytest.raises(NonFiniteUpdateError, match="weight of `Linear`"):
            step()
        assert value(fc.weight) == value(fc.bias) == 0.5
        assert fc.weight.grad is fc.bias.grad is None
    updater.nonfinite = "skip"
    updates_as_gradients(updater)
    assert updater.skipped["weight"] == 1
    assert not fc.weight.grad.any()
    Adam(fc.parameters(), lr=0.5).step()
    assert torch.isfinite(fc.weight).all()
    del fc
    with pytest.raises(RuntimeError, match="no longer exists"):
        optimizer.step()


def test_bounds_come_before_the_rate_and_constraints_after_it():
    fc, updater = layer("weight")
    updater.weight.fullbound("multiplicative", 1.0, 0.0)
    updater.register_constraint(Clamp(max=0.7))
    optimizer = UpdateOptimizer(fc.parameters(), 0.5, [updater])
    for expected in (0.6875, 0.7):  # 0.5 + 0.5 * (0.5 * 1 - 0.5 * 0.25)
        pend(updater)
        optimizer.step()
        assert value(fc.weight) == pytest.approx(expected)


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
    assert optimizer.state.keys() == {one.weight, two.weight, one.bias}
    assert optimizer.state[one.bias] == {"seen": 1}


def test_it_keeps_a_parameter_while_another_form_of_it_stands_in_its_place(monkeypatch):
    """FSDP2 does so: a sharded parameter is whole during a forward pass."""
    fc, updater = layer("weight")
    sharded = [fc.weight, nn.Parameter(fc.weight.detach().clone())]
    monkeypatch.setattr(
        update_optimizer, "is_sharded", lambda tensor: any(tensor is p for p in sharded)
    )
    optimizer = UpdateOptimizer([fc.weight], updaters=[updater])
    fc.weight = nn.Parameter(fc.weight.detach().clone())
    assert optimizer.ids == {id(sharded[0])}
    fc.weight = sharded[1]
    assert optimizer.ids == {id(sharded[1])}


@turns("change", ["product", "parts", "bounded", "two rates", "nothing to raise"])
def test_an_applied_update(change):
    fc = nn.Linear(3, 2)
    updater = attach_updater(fc, "weight", "bias")
    if change == "product":
        updater.weight.pending.add_products([(torch.ones(4, 2), torch.ones(4, 3), 1.0)])
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


# ---------------------------------------------------------------------------- as gradients
@pytest.mark.parametrize("mode", [nullcontext, torch.inference_mode])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_gradient_is_the_change_reversed_added_to_what_is_there(dtype, mode):
    fc, updater = layer(value=0.25, dtype=dtype)
    pos, neg = torch.rand(2, 3), torch.rand(2, 3)
    updater.weight.fullbound("multiplicative", 1.0, 0.0)
    expected = (0.75 * pos - 0.25 * neg).to(dtype)
    updater.weight = pos, neg
    with mode():
        updates_as_gradients(updater, updater)  # one is exported once
    pos.zero_(), neg.zero_()
    updater.weight = torch.full((2, 3), 5.0)
    updater.clear()
    assert fc.weight.grad.dtype == dtype
    torch.testing.assert_close(fc.weight.grad, -expected)
    assert fc.bias.grad is None
    assert updater.weight.empty
    updater.weight.fullbound(None)
    updater.weight = torch.ones(2, 3)
    with mode():
        updates_as_gradients(updater)
    torch.testing.assert_close(fc.weight.grad, -expected - 1)
    torch.optim.SGD(fc.parameters(), lr=1.0).step()
    torch.testing.assert_close(fc.weight.detach(), 0.25 + expected + 1)


def test_a_look_at_the_state_applies_and_loses_nothing():
    (fc, updater), (other, its) = layer("weight"), layer("weight")
    optimizer = UpdateOptimizer(fc.parameters(), updaters=[updater])
    pend(updater)
    updater.register_constraint(lambda weight: weight.fill_(9.0))
    saved = checkpoint.get_optimizer_state_dict(fc, optimizer)
    assert value(fc.weight) == 0.5
    assert updater.weight.pos is not None
    loaded = UpdateOptimizer(other.parameters(), lr=3.0, updaters=[its])
    pend(its)
    checkpoint.set_optimizer_state_dict(other, loaded, saved)
    loaded.step()
    assert value(other.weight) == 0.5 + 1.0 - 0.25

"""A rule called and applied after each step goes on in memory of its own, as the equation says."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from clamped_layers import Fed
from round_trips import by_file
from rule_trainers import trainer_of
from torch import nn

import lightning_accum as la
from lightning_accum.cells.trainer import Undo
from lightning_accum.sparse.kernel_library import has_kernel
from lightning_accum.updates import NonFiniteUpdateError
from lightning_accum.updates.updater import set_updater

exact = {"rtol": 1e-12, "atol": 1e-12}
STEPS = 8


class Net:
    """A rule with the modules of its cells, and the weights after each step."""

    def __init__(self, rule, cells=1, shared=False, rates=False):
        self.rule, self.weights = rule, []
        generator = torch.Generator().manual_seed(7)
        self.layers = []
        for at in range(cells):
            fc, neuron = nn.Linear(5, 3, bias=False).double(), Fed()
            fc.weight.data = torch.rand(3, 5, generator=generator, dtype=torch.float64)
            fc = self.layers[0][0] if shared and at else fc
            self.layers.append((fc, neuron))
            overrides = {("lr_post", "lr_pre")[at]: 0.0} if rates else {}
            rule.register_cell(f"cell{at}", la.Cell(fc, neuron), **overrides)

    def learn(self, steps=STEPS, batch=4, seed=0, every=1, window=1):
        generator = torch.Generator().manual_seed(seed)
        for at in range(1, steps * window + 1):
            x = (torch.rand(batch, 5, generator=generator) < 0.4).to(self.layers[0][0].weight)
            for fc in {fc: None for fc, _ in self.layers}:
                fc(x)
                for other, each in self.layers:
                    if other is fc:
                        each.food.append(torch.rand(batch, 3, generator=generator) < 0.4)
                        each(x)
            if at % window:
                continue
            self.rule()
            if at // window % every == 0:
                self.rule.update()
            self.weights.append(torch.stack([fc.weight.detach().clone() for fc, _ in self.layers]))

    def again(self):
        """Returns whether a step changes what is carried in place."""
        before = self.rule.state_of("cell0").carried
        self.learn(1, seed=99)
        return self.rule.state_of("cell0").carried is before


def stdp(backend, **options):
    return trainer_of(la.STDP, 0.1, -0.07, 20.0, 10.0, **options, backend=backend)


RULES = {
    "STDP": stdp,
    "STDP, nearest": lambda backend: stdp(backend, trace_mode="nearest"),
    "STDP, sum": lambda backend: stdp(backend, batch_reduction="sum"),
    "STDP, one sign": lambda backend: la.RuleTrainer(la.STDP(0.1, 0.07), backend=backend),
    "STDP, one term": lambda backend: la.RuleTrainer(la.STDP(0.1, 0.0), backend=backend),
    "Hebb": lambda backend: la.RuleTrainer(la.Hebb(0.1), backend=backend),
    "anti-Hebb": lambda backend: la.RuleTrainer(la.AntiHebb(0.1), backend=backend),
}


@pytest.mark.parametrize("name", RULES)
def test_each_step_changes_the_weights_as_the_equation_says(name):
    fast, plain = (Net(RULES[name](backend)) for backend in ("auto", "plain"))
    for net in (fast, plain):
        net.learn()
    torch.testing.assert_close(fast.weights, plain.weights, **exact)
    found, expected = (net.rule.state_of("cell0") for net in (fast, plain))
    torch.testing.assert_close(found.carried, expected.carried, **exact)
    assert found.samples == expected.samples == {"weight": 4 * STEPS}
    if name.startswith("STDP") and has_kernel(torch.device("cpu"), torch.float64):
        assert fast.again()


def test_what_is_pending_stays_as_it_is_while_steps_go_on():
    net = Net(stdp("auto"))
    net.learn(batch=1)
    net.learn(1, batch=1, every=2)
    pending = net.rule.updater_of("cell0").weight
    before = copy.deepcopy((pending.pos, pending.neg))
    ((fc, neuron),) = net.layers
    for fired in (True, False):
        neuron.food.append(torch.full((1, 3), fired))
        neuron(fc(torch.ones(1, 5).double()))  # overwrites the memory of the window
    torch.testing.assert_close((pending.pos, pending.neg), before, rtol=0, atol=0)


def two_rules(net):
    other = Net(stdp(net.rule.options.backend))
    other.layers = net.layers
    other.rule = la.RuleTrainer(la.STDP(0.02, 0.03), backend=net.rule.options.backend)
    other.rule.register_cell("cell0", la.Cell(*net.layers[0]))
    net.other = other.rule
    for _ in range(3):
        net.learn(1)
        other.rule()
        other.rule.update()


def given_another_updater(net):
    net.learn(1, every=2)  # and nothing applied
    net.rule.registry["cell0"].replacement = la.Updater(net.layers[0][0], "weight")
    net.learn(2)
    net.rule.registry["cell0"].replacement = None


def read(net):
    net.learn(1, every=2)
    updater = net.rule.updater_of("cell0")
    net.weights.append(updater.weight.pos)
    net.weights.append(updater.weight.update(net.layers[0][0].weight))


def restored(net):
    undo = Undo(net.rule)
    net.learn(3)
    undo.undo()


def saved(net):
    net.learn(1, every=2)
    updater = net.rule.updater_of("cell0")
    rule, change = by_file((net.rule.state_dict(), updater.state_dict()))
    net.learn(2)
    net.rule.load_state_dict(rule)
    updater.load_state_dict(change)


def without_gradients(net):
    with torch.inference_mode():
        net.learn(4, batch=3)
    with torch.autocast("cpu", torch.bfloat16):
        net.learn(4)


def replaced(net):
    ((fc, _),) = net.layers
    fc.weight = nn.Parameter(fc.weight.detach().clone() + 0.1)
    net.learn()
    set_updater(fc, la.Updater(fc, "weight", reduction="mean"))
    net.learn(1, every=2)
    net.rule.updater_of("cell0").weight = torch.ones(3, 5)  # another contribution


def registered(net):
    net.rule.del_cell("cell0")
    net.rule.register_cell("cell0", la.Cell(*net.layers[0]), dt=2.0, batch_reduction="sum")


def copied(net):
    net.learn(1, every=2)  # and nothing applied
    loaded = by_file((net.rule, net.layers), weights_only=False)
    for clone in (copy.deepcopy, lambda _: loaded):
        net.rule, net.layers = clone((net.rule, net.layers))
        net.rule.register_cell("cell0", la.Cell(*net.layers[0]))
        net.learn(1, every=2)


def in_another_dtype(net):
    ((fc, _),), kept = net.layers, net.weights
    net.weights = []  # in which both forms are rounded
    fc.float()
    net.learn()
    nn.init.constant_(fc.double().weight, 0.5)
    net.rule.clear()
    net.weights = kept


def carrying_nothing(net):
    net.rule.del_cell("cell0")
    net.rule.register_cell("cell0", la.Cell(*net.layers[0]), carry=False)
    for steps in (3, 3, 1, 4, 4):
        net.learn(1, window=steps)


CLAMP = la.Clamp(0.2, 0.7)
BETWEEN = {
    "clear": lambda net: net.rule.clear(),
    "an update after several steps": lambda net: net.learn(6, every=3),
    "a smaller batch": lambda net: net.learn(batch=3),
    "a constraint": lambda net: net.rule.updater_of("cell0").register_constraint(CLAMP),
    "the mode": lambda net: (net.rule.eval(), net.rule.train()), "another rule": two_rules,
    "another updater": given_another_updater, "a look": read, "an undone batch": restored,
    "a state": saved, "inference mode and autocast": without_gradients,
    "a bound": lambda net: net.rule.updater_of("cell0").weight.fullbound("power", 1.0, 0.0),
    "another parameter and updater of the module": replaced,
    "the own state": lambda net: net.rule.load_state_dict(copy.deepcopy(net.rule.state_dict())),
    "another registration": registered,
    "windows of several steps": lambda net: [net.learn(1, window=n) for n in (3, 3, 1, 4, 4)],
    "windows that carry nothing": carrying_nothing, "copies": copied,
    "a parameter in another dtype": in_another_dtype,
}  # fmt: skip


@pytest.mark.parametrize("between", BETWEEN)
def test_nothing_that_happens_between_steps_is_missed(between):
    names = RULES if between.startswith("windows") else ("STDP", "STDP, nearest", "STDP, sum")
    for name in names:
        fast, plain = (Net(RULES[name](backend)) for backend in ("auto", "plain"))
        for net in (fast, plain):
            net.learn()
            BETWEEN[between](net)
            net.learn(seed=1)
            net.learn(seed=2, every=2)
        torch.testing.assert_close(fast.weights, plain.weights, **exact)


def test_several_cells_of_a_rule():
    for shared, rates in itertools.product((False, True), repeat=2):
        fast, plain = (Net(stdp(backend), 2, shared, rates) for backend in ("auto", "plain"))
        for net in (fast, plain):
            net.learn()
        torch.testing.assert_close(fast.weights, plain.weights, **exact)


@pytest.mark.filterwarnings("ignore:.*kept.$:RuntimeWarning")
@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_an_update_that_is_not_finite_is_not_applied(policy):
    net = Net(stdp("auto"))
    updater = net.rule.updater_of("cell0")
    updater.nonfinite = policy
    net.learn()
    state = net.rule.state_of("cell0")
    state.carried = {k: torch.full_like(v, torch.nan) for k, v in state.carried.items()}
    weight = net.layers[0][0].weight.detach().clone()
    if policy == "raise":
        with pytest.raises(NonFiniteUpdateError, match=r"cell cell0.* holds NaN or Inf\. Nothing"):
            net.learn(1)
        updater.clear()
    else:
        net.learn(3)
        assert updater.skipped == {"weight": 3}
    assert torch.equal(net.layers[0][0].weight, weight)


def test_hooks_of_the_updater_see_each_update():
    net, calls = Net(stdp("auto")), []
    net.rule.updater_of("cell0").register_forward_hook(lambda *given: calls.append(given))
    net.learn()
    assert len(calls) == STEPS


def test_autograd_notices_the_change():
    net = Net(stdp("auto"))
    net.learn()
    fc, _ = net.layers[0]
    x = torch.ones(4, 5, dtype=torch.float64, requires_grad=True)
    loss = fc(x).sum()
    net.rule.clear()
    net.learn(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("reads", [False, True])
def test_terms_are_asked_for_once_unless_they_read_numbers(reads):
    asked = []

    class Noting(la.Hebb):
        def terms(self, window):
            asked.append(1)
            return la.Term(self.lr, window.post.values() if reads else window.post, window.pre)

    net = Net(la.RuleTrainer(Noting(0.1)))
    net.learn(1)
    asked.clear()
    net.learn(STEPS)
    net.learn(2, window=3)
    assert len(asked) == (STEPS + 2 if reads else 0)

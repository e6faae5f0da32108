"""A rule is a value: a frozen dataclass whose fields are its hyperparameters."""

from __future__ import annotations

import copy
import inspect
import math
from dataclasses import FrozenInstanceError, field, replace
from typing import TYPE_CHECKING, ClassVar

import pytest
import torch
from round_trips import by_file, by_pickle
from subtests import turns
from torch import nn

import lightning_accum as la
from lightning_accum import RuleTrainer

if TYPE_CHECKING:
    from collections import OrderedDict as NotImported


class First(la.Rule):
    lr: float
    tc: float | None = None
    mode: str = field(default="slow", kw_only=True)
    kind: ClassVar[str] = "class"
    gate: nn.Module | None = None
    unknown: NotImported | None = None
    spikes = False

    def terms(self, window):
        pre = window.pre if self.gate is None else self.gate(window.pre.values())
        return la.Term(self.lr, window.post, pre)


class Second(First):
    power: int = 1
    tc = 5.0
    gain = 0.5  # without an annotation it belongs to the class


def test_the_signature_of_a_constructor():
    every = inspect.signature(Second).parameters
    by_place = [n for n, p in every.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert by_place == ["lr", "tc", "gate", "unknown", "power"]
    assert every["mode"].kind is inspect.Parameter.KEYWORD_ONLY
    assert {"kind", "spikes", "gain", "dt"}.isdisjoint(every)
    assert every["lr"].default is inspect.Parameter.empty
    assert every["tc"].default == 5.0
    assert inspect.signature(First).parameters["tc"].default is None


def test_a_rule_is_a_value():
    rule, other = Second(0.1, power=2), Second(0.2, power=2)
    fields = "lr=0.1, tc=5.0, mode='slow', gate=None, unknown=None, power=2"
    assert repr(rule) == f"Second({fields})"
    for same in (
        Second(0.1, 5.0, power=2), copy.copy(rule), copy.deepcopy(rule), by_pickle(rule),
        by_file(rule, weights_only=False), replace(other, lr=0.1),
    ):  # fmt: skip
        assert same == rule != other
        assert hash(same) == hash(rule)
    assert First(0.1, 5.0) != rule  # of another class
    with pytest.raises(ValueError, match=r"`tc = -1\.0`"):
        replace(rule, tc=-1.0)


@turns("kind, args, options, words", [
    (First, (), {}, r"missing 1 required positional argument: 'lr'"),
    (First, (0.1, None, None, None, 1.0), {}, r"takes from 2 to 5 positional arguments but 6"),
    (Second, (0.1,), {"gain": 1.0}, r"Found `gain`, which belongs to the class: annotate it"),
    (Second, (0.1,), {"dt": 1.0}, r"Found `dt`, an option .* `RuleTrainer\(rule, dt=...\)`"),
])  # fmt: skip
def test_arguments_that_do_not_fit(kind, args, options, words):
    with pytest.raises(TypeError, match=words):
        kind(*args, **options)


@turns("name", ["dt", "time_dim", "params", "carry", "backend"])
def test_an_option_of_running_is_not_a_field(name):
    for members in ({"__annotations__": {name: float}}, {name: None}):
        with pytest.raises(TypeError, match=f"`Bad` should leave `{name}` to its trainer"):
            type("Bad", (la.Rule,), members)


@turns("name", ["__init__", "__post_init__"])
def test_a_rule_has_no_constructor_of_its_own(name):
    with pytest.raises(TypeError, match=rf"`Bad` should list .* `check\(self\)`. Found `{name}`"):
        type("Bad", (la.Rule,), {name: lambda self: None})


def test_a_hyperparameter_is_not_assigned_to_a_trainer():
    trainer = RuleTrainer(la.STDP(0.1, -0.1))
    for name in ("lr_post", "dt"):
        with pytest.raises(FrozenInstanceError, match=rf"`{name}` of a trainer of `STDP`.*replace"):
            setattr(trainer, name, 0.5)


def layer():
    made = la.Serial(nn.Linear(2, 2, bias=False), nn.Identity())
    nn.init.ones_(made.connection.weight)
    return made


def changed(trainer, cell):
    cell.neuron(cell.connection(torch.ones(1, 2)))
    trainer()
    pending = trainer.updater_of("c").weight
    delta = pending.update(cell.connection.weight).max().item()
    pending.clear()
    return delta


def test_fields_and_options_of_a_cell():
    trainer, cell = RuleTrainer(Second(0.1, 2.0), params=["bias"], dt=2.0), layer().cell
    assert (trainer.rule.tc, trainer.options.params, trainer.options.dt) == (2.0, ("bias",), 2.0)
    state = trainer.register_cell("c", cell, lr=0.5, params=["weight"]).state
    assert state.rule == Second(0.5, 2.0)
    assert (trainer.rule, trainer.state_of("c")) == (Second(0.1, 2.0), state)
    assert (state.options.params, state.options.dt) == (("weight",), 2.0)
    assert {"lr": 0.5, "tc": 2.0, "params": ("weight",)}.items() <= state.settings.items()
    assert changed(trainer, cell) == 1.0  # 0.5, times an output of 2: what terms read is in force
    for name, words in (("gain", "`gain`"), ("pwer", "`pwer`: did you mean `power`")):
        with pytest.raises(TypeError, match=f"cell `d` should be hyperparameters.*{words}"):
            trainer.register_cell("d", layer().cell, **{name: 1.0})


def test_hyperparameters_are_replaced_between_windows():
    trainer, cell = RuleTrainer(Second(0.1)), layer().cell
    trainer.register_cell("c", cell)
    assert changed(trainer, cell) == pytest.approx(0.2)
    trainer.replace("c", lr=0.5)
    assert (trainer.state_of("c").rule.lr, trainer.rule.lr) == (0.5, 0.1)
    assert changed(trainer, cell) == 1.0
    for name, error in (("lrate", TypeError), ("dt", TypeError)):
        with pytest.raises(error, match=name):
            trainer.replace("c", **{name: 0.5})
    with pytest.raises(ValueError, match=r"`tc = 0\.0`"):
        trainer.replace("c", tc=0.0)
    cell.neuron(cell.connection(torch.ones(1, 2)))
    with pytest.raises(ValueError, match=r"`c` should be replaced between windows. Found 1 rec"):
        trainer.replace("c", lr=0.7)
    assert trainer.state_of("c").rule.lr == 0.5


def test_what_is_carried_stays_when_hyperparameters_are_replaced():
    trainer, cell = RuleTrainer(la.STDP(0.1, 0.0)), layer().cell
    unit = trainer.register_cell("c", cell)
    for pre, post in ((1.0, 0.0), (0.0, 1.0)):
        for side, value in (("pre", pre), ("post", post)):
            unit.monitors[side](torch.full((1, 2), value))
        trainer()
        trainer.replace("c", lr_post=1.0)
    assert unit.cell.updater.weight.pos.max().item() == pytest.approx(math.exp(-1 / 20))


def test_modules_among_the_fields_move_and_are_saved_with_the_trainer():
    gate, own = nn.Linear(2, 2), nn.Linear(2, 2)
    trainer = RuleTrainer(First(0.1, gate=gate))
    layers = layer(), layer()
    trainer.register_cell("c", layers[0].cell, gate=own)
    trainer.register_cell("d", layers[1].cell)
    assert trainer.rule.gate is trainer.state_of("d").rule.gate is gate
    assert trainer.state_of("c").rule.gate is own
    saved = by_file(trainer.state_dict())
    for module in (gate, own):
        kept = [value for value in saved.values() if torch.is_tensor(value)]
        assert any(torch.equal(module.weight, value) for value in kept)
    trainer.double()
    assert gate.weight.dtype == own.weight.dtype == torch.float64
    twin = copy.deepcopy(trainer)
    assert twin.rule.gate is dict(twin.named_modules())["gate"] is not gate
    assert twin.get_submodule("_states.d").rule.gate is twin.rule.gate
    assert RuleTrainer(First(0.1, gate=nn.ReLU())).rule != RuleTrainer(First(0.1)).rule

"""A trainer's class lists its arguments once: as annotated attributes."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import TYPE_CHECKING, ClassVar

import pytest
import torch
from torch import nn
from turns import turns

import lightning_accum as la
from lightning_accum import RuleTrainer
from lightning_accum.cells import field

if TYPE_CHECKING:
    from collections import OrderedDict as NotImported


class First(la.Rule):
    lr: float
    tc: float | None = None
    mode: str = field(default="slow", kw_only=True)
    kind: ClassVar[str] = "class"
    gate: nn.Module = field(default_factory=nn.Identity, hyperparameter=False)
    unknown: NotImported | None = None
    spikes = False

    def terms(self, window):
        return la.Term(self.lr, window.post, self.gate(window.pre.values()))


class Second(First):
    power: int = 1
    tc = 5.0
    batch_reduction = "sum"

    def __post_init__(self):
        super().__post_init__()
        self.calls = 0


class Wrapped(Second):
    def __init__(self, size):
        super().__init__(1.0 / size, power=size)
        self.size = size


def test_the_signature_of_a_constructor():
    every = inspect.signature(Second).parameters
    kinds = inspect.Parameter
    by_place = [n for n, p in every.items() if p.kind is kinds.POSITIONAL_OR_KEYWORD]
    assert by_place == ["lr", "tc", "gate", "unknown", "power"]
    assert all(every[n].kind is kinds.KEYWORD_ONLY for n in ("mode", "dt", "carry", "picker"))
    assert {"kind", "spikes"}.isdisjoint(every)
    assert inspect.signature(First).parameters["tc"].default is None
    assert (every["tc"].default, every["batch_reduction"].default) == (5.0, "sum")
    assert every["lr"].default is inspect.Parameter.empty
    assert every["lr"].annotation is float
    assert every["gate"].annotation == nn.Module | None
    assert every["unknown"].annotation == "NotImported | None"
    assert list(inspect.signature(Second.__init__).parameters) == ["self", *every]


def test_fields_are_read_from_the_rule_and_are_hyperparameters():
    rule = RuleTrainer(Second(0.1, 2.0), params=["bias"])
    assert (rule.lr, rule.tc, rule.power, rule.dt) == (0.1, 2.0, 1, 1.0)
    h = vars(rule.defaults)
    assert list(h)[:4] == ["lr", "tc", "unknown", "power"]
    assert h["params"] == ("bias",)
    assert {"gate", "carry", "backend"}.isdisjoint(h)
    assert rule.calls == 0
    layer = la.Serial(nn.Linear(2, 2), nn.Identity())
    unit = rule.register_cell("c", layer.cell, lr=0.5, params=["weight"])
    own = unit.state.hyperparameters
    assert (own.lr, own.params, rule.lr) == (0.5, ("weight",), 0.1)


def test_a_module_belongs_to_the_rule():
    rule, other, given = (
        RuleTrainer(First(0.1)),
        RuleTrainer(First(0.1, gate=None)),
        RuleTrainer(First(0.1, gate=nn.ReLU())),
    )
    assert dict(rule.named_children())["gate"] is rule.gate is not other.gate
    assert isinstance(other.gate, nn.Identity)
    assert isinstance(given.gate, nn.ReLU)
    with pytest.raises(TypeError, match="Overrides of cell `c` should be hyperparameters"):
        given.register_cell("c", la.Cell(nn.Linear(2, 2), nn.ReLU()), gate=None)
    for twin in (copy.deepcopy(given), pickle.loads(pickle.dumps(given))):
        assert isinstance(twin.gate, nn.ReLU)
        assert twin.defaults == given.defaults


def test_a_constructor_of_ones_own():
    rule = RuleTrainer(Wrapped(4))
    assert (rule.size, rule.lr, rule.power, rule.tc, rule.calls) == (4, 0.25, 4, 5.0, 0)
    assert list(inspect.signature(Wrapped).parameters) == ["size"]
    assert list(inspect.signature(type("Sub", (Wrapped,), {})).parameters) == ["size"]


def test_arguments_that_do_not_fit():
    with pytest.raises(TypeError, match=r"First\(\): missing a required argument: 'lr'"):
        RuleTrainer(First())
    with pytest.raises(TypeError, match=r"First\(\): too many positional arguments"):
        RuleTrainer(First(0.1, None, None, None, 1.0))


@turns("name", ["forward", "spikes", "training", "defaults"])
def test_a_field_is_not_called_as_something_else(name):
    with pytest.raises(
        TypeError, match=f"Fields of `Bad` should have names .* Found `{name}: ...`"
    ):
        type("Bad", (la.Rule,), {"__annotations__": {name: bool}, name: True})


def test_a_hyperparameter_without_annotation_says_how_to_list_it():
    class Forgot(la.Rule):
        spikes = False
        gain = 0.1

        def terms(self, window):
            return la.Term(self.gain, window.post, window.pre)

    layer = la.Serial(nn.Linear(2, 2), nn.Identity())
    rule = RuleTrainer(Forgot())
    rule.register_cell("c", layer.cell)
    layer(torch.ones(1, 2))
    with pytest.raises(AttributeError, match=r"Found `gain`: list it in the class, as `lr: float"):
        rule()

"""What is said of a mistake names it, and how to mend it."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from torch import nn

import lightning_accum as la
from lightning_accum.callbacks._host import CellHost

RULES = [
    thing
    for name in la.__all__
    if inspect.isclass(thing := getattr(la, name))
    and issubclass(thing, la.Rule)
    and not inspect.isabstract(thing)
]


def positional(rule: type) -> dict[str, object]:
    every = inspect.signature(rule).parameters.values()
    return {p.name: 0.1 for p in every if p.default is p.empty and p.kind is not p.VAR_KEYWORD}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_lists_its_arguments(rule):
    with pytest.raises(TypeError) as caught:
        rule(**positional(rule), time_dims=0)
    text = str(caught.value)
    assert text.startswith(f"Arguments of `{rule.__name__}` should be among")
    assert text.endswith("Found `time_dims`: did you mean `time_dim`?")
    own = list(inspect.signature(rule).parameters)
    assert all(f"'{name}'" in text for name in [*own, "time_dim", "params", "carry", "picker"])


def test_the_nearest_name_is_suggested():
    with pytest.raises(TypeError, match=r"Found `tau_pre`: did you mean `tc_pre`\?"):
        la.STDP(0.1, -0.1, tau_pre=20.0)
    rule = la.STDP(0.1, -0.1)
    with pytest.raises(TypeError, match=r"Found \['lr_prae'\]: did you mean `lr_pre`\?"):
        rule.register_cell("c", la.Cell(nn.Linear(2, 2), nn.ReLU()), lr_prae=0.0)
    assert not list(rule.cells)


def test_a_hyperparameter_that_a_rule_misspells_is_found():
    h = la.STDP(0.1, -0.1).defaults
    with pytest.raises(AttributeError, match=r"Found `lr_pots`: did you mean `lr_post`\?"):
        h.lr_pots  # noqa: B018
    assert not hasattr(h, "lr_pots")
    assert copy.deepcopy(h) == h


class Forgetful(la.Rule):
    def __init__(self) -> None:
        self.lr = 0.1

    def terms(self, window, h):
        return []


@pytest.mark.parametrize(
    "use",
    [
        lambda rule: rule.register_cell("c", la.Cell(nn.Linear(2, 2), nn.ReLU())),
        lambda rule: list(rule.cells),
        lambda rule: CellHost(rule, {"c": la.CellSpec("0", "1")}),
        repr,
    ],
)
def test_a_rule_that_was_never_initialised_says_so(use):
    with pytest.raises(RuntimeError, match=r"`Forgetful.__init__` should call `super\(\).__init__"):
        use(Forgetful())


NET = nn.Sequential(nn.Linear(3, 2, bias=False), nn.ReLU())


def test_connection_and_neuron_in_the_wrong_order():
    rule = la.Hebb(0.1)
    with pytest.raises(AttributeError, match=r"in its neuron, a Linear, and not in its .* swap"):
        rule.register_cell("c", la.Cell(NET[1], NET[0]))
    with pytest.raises(AttributeError, match=r"in its neuron, a Linear, and not in its .* swap"):
        la.CellSpec("1", "0", params=("weight",)).find(NET)
    assert not list(rule.cells)
    assert la.get_updater(NET[0]) is None


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("time_dim", [None, 0])
def test_a_compiled_connection_and_neuron_are_trained(time_dim):
    net = nn.Sequential(nn.Linear(3, 2, bias=False), nn.ReLU())
    nn.init.ones_(net[0].weight)
    plain = net[0]
    net[0], net[1] = (torch.compile(module, backend="eager") for module in net)
    rule = la.Hebb(0.1, time_dim=time_dim)
    host = CellHost(rule, {"c": la.CellSpec("0", "1")})
    host.bind(net)
    host.trainer.recording = True
    net(torch.ones(*[2] * (1 if time_dim is None else 2), 3))
    host.evaluate()
    rule.update()
    assert (plain.weight > 1).all()
    host.release()


# ---------------------------------------------------------------------------- cells by name
def test_cells_may_be_mappings_as_in_a_configuration():
    given = {"c": {"connection": "0", "neuron": "1", "params": ["weight"]}}
    host = CellHost(la.Hebb(0.1), given)
    assert host.cells == {"c": la.CellSpec("0", "1", params=("weight",))}
    host.bind(NET)
    host.release()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"connection": "0"}, r"Found \['connection'\] for `c`\."),
        ({"connection": "0", "neuron": "1", "param": ()}, "for `c`: did you mean `params`"),
        ({"connection": "0", "neuron": "1", "connexion": "0"}, "did you mean `connection`"),
        (("0", "1"), "Found `tuple` for `c`"),
        ({}, r"Found \[\] for `c`"),
    ],
)
def test_a_mapping_that_is_no_cell(wrong, says):
    with pytest.raises(TypeError, match=says):
        CellHost(la.Hebb(0.1), {"c": wrong})


class Product(la.Rule):
    spikes = False
    lr: float = 0.1
    other: float = 1.0

    def terms(self, window, h):
        return la.Term(self.lr * self.other, window.post, window.pre)

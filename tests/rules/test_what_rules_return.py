"""What a rule of one's own returns, and layers without neurons."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from references import RULES
from torch import nn

from lightning_accum import Cell, Hebb, WTAHebb, get_updater
from lightning_accum.cells.fields import field
from lightning_accum.engine import CustomChange, Term
from lightning_accum.rules import Rule


class Returns(Rule):
    spikes = False
    make: Any = field(hyperparameter=False)

    def terms(self, window: Any, h: Any) -> Any:
        return self.make(window)


class Constant(CustomChange):
    def parts(self, samples: slice, vjp: Any) -> Any:
        return torch.full((2, 3), 0.5), None


def pending(rule: Rule) -> Any:
    fc, neuron = nn.Linear(3, 2, bias=False), nn.Identity()
    rule.register_cell("enc", Cell(fc, neuron))
    fc(torch.tensor([[1.0, 2.0, 3.0]])), neuron(torch.tensor([[1.0, 10.0]]))
    rule()
    return get_updater(fc).weight.pos


def test_a_single_term_may_come_alone() -> None:
    expected = pending(Hebb(0.5))
    for make in (
        lambda w: Term(0.5, w.post, w.pre),
        lambda w: [Term(0.5, w.post, w.pre)],
        lambda w: (Term(0.5, w.post.values(), w.pre.values()) for _ in range(1)),
    ):
        assert torch.equal(pending(Returns(make)), expected)
    assert torch.equal(pending(Returns(lambda w: Constant(1))), torch.full((2, 3), 0.5))
    assert pending(Returns(lambda w: [])) is None


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda w: w.post.values()[0].T @ w.pre.values()[0], r"a tensor of shape \(2, 3\)"),
        (lambda w: [w.post.values()[0].T @ w.pre.values()[0]], r"a tensor of shape \(2, 3\)"),
        (lambda w: [Term(0.5, w.post, w.pre), None], "NoneType"),
        (lambda w: None, "NoneType"),
        (lambda w: 0.1, "float"),
        (lambda w: {"pos": Term(0.5, w.post, w.pre)}, "str"),
    ],
)
def test_something_else_than_terms(make: Any, found: str) -> None:
    with pytest.raises(TypeError, match=rf"`Returns.terms` should return Terms.*Found {found}:"):
        pending(Returns(make))


def test_something_else_than_a_signal() -> None:
    with pytest.raises(TypeError, match=r"`pre` of a Term.*Found `1.0`.*give `window.one`"):
        pending(Returns(lambda w: Term(0.1, w.post, 1.0)))
    with pytest.raises(TypeError, match=r"`post` of a Term.*Found `list`.*`torch.ones_like"):
        pending(Returns(lambda w: Term(0.1, [1.0], w.pre)))
    with pytest.raises(
        TypeError, match=r"`rate` of a Term .*shape \[2\]: for a reward, .*reward_mod"
    ):
        pending(Returns(lambda w: Term(torch.ones(2), w.post, w.pre)))
    with pytest.raises(TypeError, match=r"Argument `rate` should be a number\. Found `list`"):
        pending(Returns(lambda w: Term([1.0], w.post, w.pre)))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("reduction", ["mean", torch.amax])
@pytest.mark.parametrize("sizes", [(0, 3), (4, 0), (0, 0)])
@pytest.mark.parametrize("name", RULES)
def test_layers_without_inputs_or_neurons(name: str, sizes: Any, reduction: Any) -> None:
    case, (inputs, outputs) = RULES[name], sizes
    if name == "WTAHebb" and outputs == 0:
        pytest.skip("nobody could win")
    for time_dim in (None, 0):
        for param in ("weight", "bias"):
            fc, neuron = nn.Linear(inputs, outputs), nn.Identity()
            rule = case.make(time_dim=time_dim, params=param, batch_reduction=reduction)
            rule.register_cell("enc", Cell(fc, neuron))
            time = () if time_dim is None else (5,)
            for _ in range(3):
                fc(torch.ones(*time, 2, inputs)), neuron(torch.ones(*time, 2, outputs))
            rule(**({"reward": torch.ones(2)} if case.rewarded else {}))
            rule.update()
            assert getattr(fc, param).isfinite().all()


@pytest.mark.parametrize("winners", [1, 2])
def test_competition_shows_nan_to_the_policy(winners: int) -> None:
    fc, neuron = nn.Linear(3, 3, bias=False), nn.Identity()
    rule = WTAHebb(0.1, winners=winners)
    rule.register_cell("enc", Cell(fc, neuron))
    fc(torch.ones(2, 3)), neuron(torch.tensor([[1.0, 2.0, 3.0], [3.0, torch.nan, 2.0]]))
    before = fc.weight.detach().clone()
    rule()
    updater = get_updater(fc)
    updater.nonfinite = "skip"
    rule.update()
    assert updater.skipped == {"weight": 1}
    assert torch.equal(fc.weight, before)

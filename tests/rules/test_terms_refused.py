"""Mistakes in a rule of one's own that would learn something else, or fail with a riddle."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_accum import MSTDP, STDP, Cell, Rule, Serial, Term, attach_updater
from lightning_accum.nn import LIF, Linear


class Own(Rule):
    """Returns what a test gives it."""

    lr: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.make: Callable[..., Any] | None = None

    def terms(self, window: Any, h: Any) -> Any:
        assert self.make is not None
        return self.make(window, h.lr)


def learn(make: Callable[..., Any], outputs: int = 4) -> Tensor:
    """Returns the weights after one window of a rule with these terms."""
    torch.manual_seed(0)
    layer = Serial(Linear(4, outputs, bias=False), nn.Identity())
    rule = Own(time_dim=0)
    rule.make = make
    unit = rule.register_cell("enc", layer.cell)
    unit.monitors["pre"](torch.rand(6, 2, 4) < 0.5)
    unit.monitors["post"](torch.rand(6, 2, outputs) < 0.5)
    before = layer.connection.weight.detach().clone()
    try:
        rule()
    except BaseException:
        assert torch.equal(layer.connection.weight, before)
        assert rule.updater_of("enc").weight.empty
        rule.clear()
        raise
    rule.update()
    return layer.connection.weight.detach() - before


@pytest.mark.parametrize("outputs", [3, 4])
@pytest.mark.parametrize("tc", [None, 20.0])
def test_exchanged_sides(outputs: int, tc: float | None) -> None:
    def exchanged(window: Any, lr: float) -> Term:
        return Term(lr, window.pre if tc is None else window.pre.trace(tc), window.post)

    with pytest.raises(ValueError, match=r"`window.pre` and `window.post` exchanged"):
        learn(exchanged, outputs)


def test_a_side_without_time() -> None:
    with pytest.raises(ValueError, match=r"Found \(2, 4\) for `post` and \(6, 2, 4\) for `pre`"):
        learn(lambda window, lr: Term(lr, window.post.values().mean(0), window.pre))


def test_one_side_alone_may_be_of_the_other() -> None:
    def correlations(window: Any, lr: float) -> Term:
        return Term(lr, window.post, window.post.values())

    assert learn(correlations).any()


def test_a_misspelled_mode_of_a_trace() -> None:
    with pytest.raises(ValueError, match=r"`mode` should be one of .* Found `mode = 'additive'`"):
        learn(lambda window, lr: Term(lr, window.post, window.pre.trace(20.0, "additive")))


def test_no_parameters() -> None:
    with pytest.raises(ValueError, match=r"Found `params = \(\)`"):
        STDP(0.1, -0.1, params=[])


def test_check_that_returns_its_verdict() -> None:
    class Verdict(Own):
        def check(self, h: Any) -> Any:
            super().check(h)
            return h.lr < 1

    with pytest.raises(TypeError, match=r"`Verdict.check` should raise .* it returns True"):
        Verdict()


def test_post_init_without_that_of_the_base() -> None:
    class Alone(Own):
        def __post_init__(self) -> None:
            self.own = 1

    with pytest.raises(TypeError, match=r"begin it with `super\(\).__post_init__\(\)`"):
        Alone()


def test_a_refused_call_is_a_call() -> None:
    """The error says what to do; the end of the rule does not add that it was never called."""
    layer = Serial(Linear(4, 3, bias=False), LIF(3, time_dim=0))
    rule = MSTDP(0.1, -0.05, time_dim=0)
    rule.register_cell("enc", layer.cell)
    layer(torch.ones(20, 2, 4))
    with pytest.raises(ValueError, match="reward"):
        rule()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule.eval()
        del rule
        gc.collect()


@pytest.mark.parametrize(
    ("library", "base", "own", "how"),
    [
        ("snntorch", "SpikingNeuron", None, "step"),
        ("norse", "SNNCell", None, "step"),
        ("norse", "SNN", 0, "sequence"),
    ],
)
def test_foreign_neurons_that_take_steps_or_sequences(
    library: str, base: str, own: int | None, how: str
) -> None:
    kind = type(base, (nn.Identity,), {"__module__": f"{library}.neurons"})
    neuron = type("Own", (kind,), {})()
    other = 0 if own is None else None
    with pytest.raises(ValueError, match=f"`time_dim={own}`, and call the neuron once per {how}"):
        STDP(0.1, -0.1, time_dim=other).register_cell("enc", Cell(nn.Linear(4, 3), neuron))
    STDP(0.1, -0.1, time_dim=own).register_cell("enc", Cell(nn.Linear(4, 3), neuron))


def test_reductions_of_all_dimensions() -> None:
    fc = nn.Linear(4, 3, bias=False)
    updater = attach_updater(fc, "weight")
    updater.weight.reduction(lambda x, dim: x.mean())
    updater.weight = torch.rand(3, 4)
    before = fc.weight.detach().clone()
    with pytest.raises(ValueError, match=r"Found shape \(\) from \(1, 3, 4\)"):
        updater()
    assert torch.equal(fc.weight, before)


class Novel(Rule):
    """Reads an argument of its call."""

    lr: float = 0.1

    def terms(self, window: Any, h: Any) -> Any:
        return Term(h.lr * window.inputs["novelty"], window.post, window.pre)


def test_an_argument_that_was_not_passed() -> None:
    fc, neuron, rule = nn.Linear(3, 2), nn.Identity(), Novel()
    rule.register_cell("enc", Cell(fc, neuron))
    neuron(fc(torch.ones(1, 3)) > 0)
    with pytest.raises(KeyError, match=r"with `novelty`.* Found \['reward'\]: call `rule\(nov"):
        rule(reward=1.0)
    rule(novelty=1.0)


FACTORS = {  # of a signal [6, 2, 4]
    "one per sample": (
        torch.ones(2),
        r"Found \(2,\): give it one value per sample, `x.view",
    ),
    "one per neuron": (
        torch.ones(4),
        r"any dimension may be 1. Found \(4,\)",
    ),
    "no neurons": (torch.ones(6, 2), r"Found \(6, 2\): give it all dimensions"),
    "no time": (torch.ones(2, 4), r"Found \(2, 4\): give it all dimensions, as `x\[None\]`"),
    "batch first": (torch.ones(2, 6, 4), r"Found \(2, 6, 4\)"),
}


@pytest.mark.parametrize("side", ["post", "pre"])
@pytest.mark.parametrize(("factor", "message"), FACTORS.values(), ids=FACTORS)
def test_a_factor_of_another_shape(factor: Tensor, message: str, side: str) -> None:
    def scaled(window: Any, lr: float) -> Term:
        sides = {"post": window.post, "pre": window.pre.trace(20.0)}
        sides[side] = sides[side] * factor
        return Term(lr, **sides)

    with pytest.raises(ValueError, match=message):
        learn(scaled)


def test_a_factor_may_have_dimensions_of_1() -> None:
    whole = learn(lambda w, lr: Term(lr, w.post * torch.full((6, 2, 4), 3.0), w.pre.trace(20.0)))
    for factor in (3.0, torch.tensor(3.0), torch.full((1, 2, 1), 3.0), torch.full((6, 1, 4), 3.0)):
        part = learn(lambda w, lr, f=factor: Term(lr, w.post * f, w.pre.trace(20.0)))
        torch.testing.assert_close(part, whole)

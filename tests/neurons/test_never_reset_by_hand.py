"""A rule that is cleared by hand, with neurons of other kinds that nobody resets."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_accum import STDP, Cell

STEPS, BATCH, INPUTS, OUTPUTS = 10, 4, 6, 5
NOT_RESET = "and its neuron, a `{}`, not reset: {} wherever the rule is cleared"


class Own(nn.Module):
    """A leaky neuron of a user's own, which keeps its potential and what it returned."""

    v: Any = None

    def forward(self, x: Tensor) -> Tensor:
        v = x if self.v is None else 0.9 * self.v + x
        self.spikes = (v > 1).to(x)
        self.v = v - self.spikes
        return self.spikes


class Recorder(Own):
    """Keeps what it returned; its potential is given and returned."""

    def forward(self, x: Tensor, v: Tensor | None = None) -> Any:
        v = x if v is None else 0.9 * v + x
        self.spikes = (v > 1).to(x)
        return self.spikes, v - self.spikes


class Record(nn.Module):
    """Simulates a whole sequence from rest, and keeps the potentials at its end."""

    def forward(self, x: Tensor) -> Tensor:
        v, spikes = torch.zeros_like(x[0]), []
        for now in x:
            v = 0.9 * v + now
            spikes.append((v > 1).to(x))
            v = v - spikes[-1]
        self.v = v
        return torch.stack(spikes)


def snntorch() -> nn.Module:
    library = pytest.importorskip("snntorch", reason="snnTorch is not installed")
    return library.Leaky(beta=0.9, init_hidden=True)


def spikingjelly() -> nn.Module:
    pytest.importorskip("spikingjelly", reason="SpikingJelly is not installed")
    from spikingjelly.activation_based import neuron

    return neuron.LIFNode(step_mode="m")


def rest(neuron: Any) -> None:
    neuron.v = None


KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Any], bool, str, str]] = {
    "own": (Own, rest, False, "Own", "set the neuron's state to zero"),
    "snntorch": (
        snntorch,
        lambda neuron: neuron.reset_mem(),
        False,
        "Leaky",
        r"call `reset_mem\(\)` on the neuron",
    ),
    "spikingjelly": (
        spikingjelly,
        lambda neuron: neuron.reset(),
        True,
        "LIFNode",
        r"call `reset\(\)` on the neuron",
    ),
}


class Loop:
    """A loop by hand."""

    def __init__(self, neuron: nn.Module, whole: bool, **options: Any) -> None:
        torch.manual_seed(0)
        self.fc, self.neuron, self.whole = nn.Linear(INPUTS, OUTPUTS, bias=False), neuron, whole
        nn.init.uniform_(self.fc.weight, 0.0, 0.6)
        self.rule = STDP(0.01, -0.01, time_dim=0 if whole else None, **options)
        self.rule.register_cell("enc", Cell(self.fc, neuron))

    def simulate(self) -> None:
        with torch.no_grad():
            spikes = (torch.rand(STEPS, BATCH, INPUTS) < 0.5).float()
            for now in (spikes,) if self.whole else spikes:
                self.neuron(self.fc(now))

    def learn(self, clear: bool = True) -> None:
        self.rule()
        self.rule.update()
        if clear:
            self.rule.clear()

    def go_on(self) -> None:
        for _ in range(8):
            self.simulate()
            self.learn()

    def hooks(self) -> int:
        modules = self.fc, self.neuron
        return sum(len(each._forward_pre_hooks) + len(each._forward_hooks) for each in modules)


@pytest.mark.parametrize("kind", KINDS)
def test_a_neuron_that_is_never_reset_is_told_once(kind: str) -> None:
    make, _, whole, name, how = KINDS[kind]
    loop = Loop(make(), whole)
    hooks = loop.hooks()
    with pytest.warns(RuntimeWarning, match=NOT_RESET.format(name, how)) as said:
        loop.go_on()
    assert len(said) == 1
    assert loop.hooks() == hooks


@pytest.mark.parametrize("when", ["before", "after", "last"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_neuron_that_is_reset_is_fine(kind: str, when: str) -> None:
    make, reset, whole, _, _ = KINDS[kind]
    loop = Loop(make(), whole)
    for _ in range(8):
        if when == "before":
            reset(loop.neuron)
        loop.simulate()
        if when == "after":
            reset(loop.neuron)
        loop.learn()
        if when == "last":
            reset(loop.neuron)


@pytest.mark.parametrize("value", [0.0, -0.5])
def test_a_neuron_that_is_reset_in_place_is_fine(value: float) -> None:
    loop = Loop(Own(), whole=False)
    for _ in range(8):
        loop.simulate()
        loop.neuron.v.data.fill_(value)  # which the tensor's version does not tell
        loop.neuron.spikes.data.zero_()
        loop.learn()


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_fine(kind: str) -> None:
    make, _, whole, _, _ = KINDS[kind]
    loop, again = Loop(make(), whole), Loop(make(), whole, carry=False)
    for _ in range(8):
        for each in (loop, again):
            each.simulate()
            each.learn(clear=False)


def test_a_record_is_not_a_state() -> None:
    Loop(Record(), whole=True).go_on()


def test_a_neuron_that_is_given_its_state_is_fine() -> None:
    loop = Loop(Recorder(), whole=False)
    for _ in range(8):
        v = None
        for _ in range(STEPS):
            _, v = loop.neuron(loop.fc((torch.rand(BATCH, INPUTS) < 0.5).float()), v)
        loop.learn()


@pytest.mark.parametrize("windows", [1, 2, 3])
@pytest.mark.parametrize("end", ["eval", "delete"])
def test_no_hook_stays_when_the_rule_ends(windows: int, end: str) -> None:
    loop = Loop(Own(), whole=False)
    for _ in range(windows):
        loop.simulate()
        loop.learn()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of too few windows
        loop.rule.eval() if end == "eval" else vars(loop).pop("rule")
    assert loop.hooks() == 0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda rule: pickle.loads(pickle.dumps(rule))])
def test_copies_between_the_first_windows_change_nothing(
    copied: Callable[[Any], Any],
) -> None:
    loop = Loop(Own(), whole=False)
    for _ in range(2):
        loop.simulate()
        loop.learn()
    copied([loop.rule, loop.fc, loop.neuron])
    with pytest.warns(RuntimeWarning, match="not reset"):
        loop.go_on()

"""Neurons that are not given, within a batch, the state that they returned are told."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum import STDP, CellSpec
from lightning_accum.callbacks import CellTrainerCallback, FabricCellTrainer

STEPS, BATCH, INPUTS, OUTPUTS = 6, 4, 6, 5
CELLS = {"hidden": CellSpec("fc", "lif")}


def norse(name: str = "LIFCell") -> Any:
    return getattr(pytest.importorskip("norse.torch"), name)()


def snntorch(**options: bool) -> Any:
    return pytest.importorskip("snntorch").Leaky(beta=0.9, **options)


class Object:
    """A state whose tensors cannot be seen."""

    def __init__(self, v: Tensor) -> None:
        self.v = v


class Own(nn.Module):
    """Takes a second current, or the state as an object, and may keep a state of its own."""

    v: Tensor | None = None

    def __init__(self, keeps: bool) -> None:
        super().__init__()
        self.keeps = keeps

    def forward(self, x: Tensor, more: Any = None) -> Any:
        before = more.v if isinstance(more, Object) else self.v
        v = x if before is None else 0.9 * before + x
        if isinstance(more, Tensor):
            v = v + more
        self.v = v if self.keeps else None
        return (v > 1).to(x), v, Object(v)


class Rectifier(nn.Module):
    """Returns a potential, and takes none."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return (x > 1).to(x), x


class Spikes(Own):
    """Returns spikes only."""

    def __init__(self) -> None:
        super().__init__(keeps=True)

    def forward(self, x: Tensor, more: Any = None) -> Any:
        return super().forward(x, more)[0]


class Net(pl.LightningModule):
    """Runs one of the functions below in each batch."""

    def __init__(self, lif: nn.Module, simulate: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.fc, self.lif, self.simulate = nn.Linear(INPUTS, OUTPUTS, bias=False), lif, simulate
        nn.init.uniform_(self.fc.weight, 0.2, 0.9)
        self.requires_grad_(False)

    def training_step(self, batch: Tensor) -> None:
        self.simulate(self, batch.transpose(0, 1))

    def configure_optimizers(self) -> None:
        return None


def zeros(like: Any) -> Any:
    """Returns a state of zeros of the form of another one."""
    if isinstance(like, Tensor):
        return torch.zeros_like(like)
    return type(like)(*map(torch.zeros_like, like))


def without(net: Any, x: Tensor) -> None:
    for step in x:
        net.lif(net.fc(step))


def made_once(net: Any, x: Tensor) -> None:
    rest = zeros(net.lif(net.fc(x[0]))[1])
    for step in x[1:]:
        net.lif(net.fc(step), rest)


def made_in_loop(net: Any, x: Tensor) -> None:
    state = None
    for step in x:
        if state is not None:
            state = zeros(state)
        _, state = net.lif(net.fc(step), state)


def reset_mem(net: Any, x: Tensor) -> None:
    mem = net.lif.reset_mem()
    for step in x:
        net.lif(net.fc(step), mem)


def passed(change: Callable[[Tensor], Tensor]) -> Callable[[Any, Tensor], Any]:
    def simulate(net: Any, x: Tensor) -> None:
        state = None
        for step in x:
            _, state = net.lif(net.fc(step), state)
            alone = isinstance(state, Tensor)
            state = change(state) if alone else type(state)(*map(change, state))

    return simulate


def threaded(net: Any, x: Tensor) -> None:
    mem = net.lif.reset_mem()
    for step in x:
        _, mem = net.lif(net.fc(step), mem)


def after_reset(net: Any, x: Tensor) -> None:
    net.lif.v = None
    without(net, x)


def hidden(net: Any, x: Tensor) -> None:
    net.lif.reset_mem()
    without(net, x)
    net.lif.reset_mem()


def two_layers(net: Any, x: Tensor) -> None:
    first = second = None
    for step in x:
        _, first = net.lif(net.fc(step), first)
        _, second = net.lif(net.fc(step), second)


def sequences(net: Any, x: Tensor) -> None:
    for sample in x.unbind(1):
        net.lif(net.fc(sample.unsqueeze(1)))


def two_steps(net: Any, x: Tensor) -> None:
    without(net, x[:2])


def silent(net: Any, x: Tensor) -> None:
    passed(torch.clone)(net, torch.cat([torch.zeros_like(x[1:]), x[:1]]))


def zero_current(net: Any, x: Tensor) -> None:
    net.lif.v = None
    for step in x:
        current = net.fc(step)
        net.lif(current, torch.zeros_like(current))


def objects(net: Any, x: Tensor) -> None:
    state = None
    for step in x:
        *_, state = net.lif(net.fc(step), state)


def now_and_then(net: Any, x: Tensor) -> None:
    net.batches = getattr(net, "batches", 0) + 1
    (without if net.batches != 3 else passed(torch.clone))(net, x)


def with_callback(net: Net, rule: STDP, batches: int, carry: bool) -> None:
    torch.manual_seed(1)
    data = DataLoader((torch.rand(batches * BATCH, STEPS, INPUTS) < 0.5).float(), BATCH)
    trainer(None, CellTrainerCallback(rule, CELLS, carry=carry)).fit(net, data)


def with_fabric(net: Net, rule: STDP, batches: int, carry: bool) -> None:
    learner = FabricCellTrainer(rule, CELLS, carry=carry)
    learner.setup(net)
    for batch in (torch.rand(batches, BATCH, STEPS, INPUTS) < 0.5).float():
        with learner.batch():
            net.training_step(batch)
        learner.step()
    learner.release()


class Case(NamedTuple):
    """A neuron, and what a program does with it."""

    make: Callable[[], nn.Module]
    simulate: Callable[[Any, Tensor], Any]
    time_dim: Any = None


def told(
    case: Case, fit: Callable[..., None] = with_callback, batches: int = 6, carry: bool = False
) -> list[str]:
    torch.manual_seed(0)
    net = Net(case.make(), case.simulate)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(net, STDP(1e-3, -1e-3, time_dim=case.time_dim), batches, carry)
    assert all(not module._forward_hooks for module in (net.fc, net.lif))
    return [str(w.message) for w in caught if "returned in the step before" in str(w.message)]


FORGOTTEN = {
    "norse, none": (Case(norse, without), "`LIFCell`", "no state"),
    "norse, once": (Case(norse, made_once), "`LIFCell`", "a state of zeros"),
    "norse, in the loop": (Case(norse, made_in_loop), "`LIFCell`", "a state of zeros"),
    "snntorch, once": (Case(snntorch, made_once), "`Leaky`", "a state of zeros"),
    "snntorch, in the loop": (Case(snntorch, made_in_loop), "`Leaky`", "a state of zeros"),
    "snntorch, reset_mem": (Case(snntorch, reset_mem), "`Leaky`", "a state of zeros"),
}

FINE = {
    **{
        f"{make.__name__}, {name}": Case(make, passed(change))
        for make in (norse, snntorch)
        for name, change in {
            "passed": lambda v: v,
            "detached": torch.detach,
            "cloned": torch.clone,
            "changed": lambda v: 0.5 * v,
            "changed in place": lambda v: v.mul_(0.5),
        }.items()
    },
    "snntorch, own state": Case(snntorch, hidden),
    "snntorch, init_hidden": Case(lambda: snntorch(init_hidden=True), hidden),
    "snntorch, output": Case(lambda: snntorch(init_hidden=True, output=True), hidden),
    "norse, two layers": Case(norse, two_layers),
    "norse, sequences": Case(lambda: norse("LIF"), sequences, 0),
    "norse, two steps": Case(norse, two_steps),
    "norse, silent": Case(norse, silent),
    "norse, now and then": Case(norse, now_and_then),
    "own, second current": Case(lambda: Own(keeps=True), zero_current),
    "own, objects": Case(lambda: Own(keeps=False), objects),
    "own, without a state": Case(Rectifier, without),
    "spikes only": Case(Spikes, after_reset),
}


@pytest.mark.parametrize("fit", [with_callback, with_fabric])
@pytest.mark.parametrize("name", FORGOTTEN)
def test_a_state_that_is_not_passed_on_is_told_once(name: str, fit: Any) -> None:
    case, kind, given = FORGOTTEN[name]
    (message,) = told(case, fit)
    assert f"The neuron of cell `hidden`, a {kind}, should be given" in message
    assert f"was given {given} in each step" in message
    assert "`spk, mem = lif(x, mem)`" in message


@pytest.mark.parametrize("name", FINE)
def test_states_that_are_passed_on_or_kept_are_fine(name: str) -> None:
    assert told(FINE[name]) == []


@pytest.mark.parametrize("case", [Case(snntorch, threaded), Case(Spikes, after_reset)])
def test_neurons_that_are_surely_fine_are_not_called_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    lif, calls = case.make(), []
    forward = type(lif).forward

    def counted(self: Any, x: Tensor, mem: Any = None) -> Any:
        calls.append(x)
        return forward(self, x, mem)

    monkeypatch.setattr(type(lif), "forward", counted)  # of copies too
    assert told(case._replace(make=lambda: lif)) == []
    assert len(calls) == 6 * STEPS


def test_a_stream_is_told_too() -> None:
    assert len(told(Case(norse, without), carry=True)) == 1


def test_a_fit_of_three_batches_is_not_told() -> None:
    assert told(Case(norse, without), batches=3) == []

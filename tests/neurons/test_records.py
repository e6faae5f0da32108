"""A neuron that begins each batch at rest may keep its state as a record, and nothing is told."""

from __future__ import annotations

import math
import random
import threading
import warnings
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum import STDP, CellSpec, EProp
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.observe.state_reads import reads_state

STEPS, BATCH, INPUTS, OUTPUTS = 10, 4, 6, 5


class Own(nn.Module):
    """A leaky neuron of one's own, which takes whole sequences and begins them at rest."""

    threshold = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.membrane = None

    def simulate(self, current: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        spikes, potentials = [], []
        for now in current:
            v = 0.9 * v + now
            potentials.append(v)
            spikes.append((v > self.threshold).float())
            v = v * (1 - spikes[-1])
        return torch.stack(spikes), torch.stack(potentials)

    def forward(self, current: Tensor) -> Any:
        spikes, potentials = self.simulate(current, torch.zeros_like(current[0]))
        self.record(spikes, potentials)
        return spikes

    def record(self, spikes: Tensor, potentials: Tensor) -> None:
        self.membrane = potentials


class Detached(Own):
    def record(self, spikes: Tensor, potentials: Tensor) -> None:
        self.v, self.spikes = potentials[-1].detach(), [spikes]


class Buffer(Own):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("v", torch.zeros(BATCH, OUTPUTS))

    def record(self, spikes: Tensor, potentials: Tensor) -> None:
        self.v.copy_(potentials[-1].detach())


class Total(Own):
    """Counts the spikes of each sample over batches."""

    total: Any = 0.0

    def record(self, spikes: Tensor, potentials: Tensor) -> None:
        self.total = self.total + spikes.sum(0).detach()


class Noisy(Own):
    def forward(self, current: Tensor) -> Any:
        return super().forward(current + torch.rand_like(current))


class InPlace(Own):
    def forward(self, current: Tensor) -> Any:
        return super().forward(current.mul_(1.0))


class Constant(Own):
    """Reads a tensor that has the shape of a state in batches of one sample."""

    def __init__(self) -> None:
        super().__init__()
        self.threshold = torch.full((1, OUTPUTS), 1.0)


class Carried(Own):
    """Goes on from the state that the last batch left."""

    v: Any = None

    def forward(self, current: Tensor) -> Any:
        v = torch.zeros_like(current[0]) if self.v is None else self.v
        spikes, potentials = self.simulate(current, v)
        self.v = potentials[-1].detach()
        return spikes


class Weak(Carried):
    """Never reaches its threshold."""

    threshold = 100.0


class Hidden(Carried):
    """Carries its state in a tuple, beside a record of it."""

    state: Any = (None,)

    def forward(self, current: Tensor) -> Any:
        (self.v,) = self.state
        spikes = super().forward(current)
        self.state, self.v = (self.v,), self.v.clone()
        return spikes


class Locked(Carried):
    """Cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Named(Carried):
    """Returns its spikes in a dictionary."""

    def forward(self, current: Tensor) -> Any:
        return {"spikes": super().forward(current)}


class Stepwise(nn.Module):
    """Is called once per step; its model sets it to zero, or the next batch goes on."""

    v: Any = None

    def forward(self, current: Tensor) -> Tensor:
        self.v = current if self.v is None else 0.9 * self.v + current
        spikes = (self.v > 1.0).float()
        self.v = (self.v * (1 - spikes)).detach()
        return spikes


class Renewed(Stepwise):
    """Knows when a batch begins, and keeps what it computed last as a record."""

    steps = 0

    def forward(self, current: Tensor) -> Tensor:
        if self.steps % STEPS == 0:
            self.v = None
        self.steps += 1
        return super().forward(current)


class Model(pl.LightningModule):
    def __init__(self, neuron: nn.Module) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.fc, self.neuron = nn.Linear(INPUTS, OUTPUTS, bias=False), neuron
        nn.init.uniform_(self.fc.weight, 0.1, 0.3)

    def training_step(self, batch: Tensor) -> dict[str, Tensor]:
        inputs = batch.transpose(0, 1)
        for part in inputs if isinstance(self.neuron, Stepwise) else [inputs]:
            self.neuron(self.fc(part))
        return {"error": torch.ones(len(batch), OUTPUTS)}

    def configure_optimizers(self) -> None:
        return None


def told(neuron: nn.Module, rule: Any = None, size: int = BATCH, **cell: Any) -> list[str]:
    torch.manual_seed(0)
    learner = CellTrainerCallback(
        rule or STDP(1e-3, -1e-3, time_dim=0),
        {"hidden": CellSpec("fc", "neuron", **cell)},
        input_keys=("error",) if isinstance(rule, EProp) else (),
    )
    samples = (torch.rand(6 * size, STEPS, INPUTS) < 0.5).float()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer(None, learner).fit(Model(neuron), DataLoader(samples, batch_size=size))
    return [str(each.message) for each in found if "at rest" in str(each.message)]


@pytest.mark.parametrize("kind", [Own, Detached, Buffer, Total, Noisy, InPlace])
def test_a_record_is_not_a_state(kind: type[nn.Module]) -> None:
    assert told(kind()) == []


@pytest.mark.parametrize("kind", [Stepwise, Renewed])
def test_neurons_that_are_called_in_each_step(kind: type[nn.Module]) -> None:
    assert len(told(kind(), STDP(1e-3, -1e-3))) == (kind is Stepwise)


@pytest.mark.parametrize("size", [1, BATCH])
def test_a_constant_is_not_a_state(size: int) -> None:
    assert told(Constant(), size=size) == []


def test_the_potential_that_a_rule_reads_is_not_a_state() -> None:
    assert told(Own(), EProp(1e-3, tc_mem=-1 / math.log(0.9), threshold=1.0, time_dim=0)) == []


@pytest.mark.parametrize("kind", [Carried, Weak, Hidden, Locked, Named])
def test_a_state_that_is_carried_is_told(kind: type[nn.Module]) -> None:
    (said,) = told(kind())
    assert (
        f"a `{kind.__name__}`, should begin each batch at rest. Found that it kept its `v`" in said
    )


@pytest.mark.parametrize("kind", [Own, Noisy, InPlace, Buffer, Carried, Named])
def test_finding_out_disturbs_nothing(kind: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    neuron, current, calls = kind().train(), torch.rand(STEPS, BATCH, OUTPUTS), list[Any]()
    neuron(current)
    neuron.register_forward_hook(lambda *call: calls.append(call))
    before = {n: v.clone() for n, v in {**vars(neuron), **neuron._buffers}.items() if is_tensor(v)}
    given, states = current.clone(), (torch.get_rng_state(), random.getstate())
    state = [v for v in before.values() if v.shape[-2:] == (BATCH, OUTPUTS)]
    assert not reads_state(neuron, state, (current,), {})  # which are not the neuron's
    state = [v for v in {**vars(neuron), **neuron._buffers}.values() if is_tensor(v)]
    assert reads_state(neuron, state, (), {"current": current}) == isinstance(neuron, Carried)
    assert torch.equal(states[0], torch.get_rng_state())
    assert states[1] == random.getstate()
    assert torch.equal(current, given)
    assert calls == []
    for name, value in before.items():
        assert torch.equal(getattr(neuron, name), value)


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)

"""Neurons of other libraries that begin each batch in the state that the last one left are told."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import trainer
from foreign import BATCH, LR_POST, LR_PRE, OUTPUTS, TC_POST, TC_PRE, raster
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import STDP, CellSpec
from lightning_accum.callbacks import CellTrainerCallback


class Own(nn.Module):
    """A neuron of a user's own, which normalizes its input and keeps the potential in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(OUTPUTS, dtype=torch.float64)
        self.v: Any = None

    def forward(self, x: Tensor) -> Tensor:
        v = self.norm(x) if self.v is None else 0.9 * self.v + self.norm(x)
        spikes = (v > 1).to(x)
        self.v = v - spikes
        return spikes


class Stateless(Own):
    """Keeps only what the normalization does."""

    def forward(self, x: Tensor) -> Tensor:
        return (self.norm(x) > 1).to(x)


def snntorch(**options: Any) -> nn.Module:
    library = pytest.importorskip("snntorch", reason="snnTorch is not installed")
    return library.Leaky(beta=0.9, **options)


def spikingjelly(mode: str) -> nn.Module:
    library = pytest.importorskip("spikingjelly", reason="SpikingJelly is not installed")
    assert library is not None
    from spikingjelly.activation_based import neuron

    return neuron.LIFNode(step_mode=mode)


class Learner(pl.LightningModule):
    last = False  # whether it resets the neuron after the batch

    def __init__(self, neuron: nn.Module, reset: Callable[[Any], Any] | None, whole: bool) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.fc, self.neuron = nn.Linear(7, OUTPUTS, bias=False, dtype=torch.float64), neuron
        nn.init.uniform_(self.fc.weight, 0.0, 0.6)
        self.reset, self.whole = reset, whole

    def training_step(self, batch: list[Tensor]) -> None:
        if self.reset is not None and not self.last:
            self.reset(self.neuron)
        pre = batch[0].transpose(0, 1)
        for x in (pre,) if self.whole else pre:
            self.neuron(self.fc(x))
        if self.reset is not None and self.last:
            self.reset(self.neuron)

    def configure_optimizers(self) -> None:
        return None


def fit(learner: Learner, batches: int = 5, **options: Any) -> list[str]:
    stdp = STDP(LR_POST, LR_PRE, TC_POST, TC_PRE, time_dim=0 if learner.whole else None)
    use = CellTrainerCallback(stdp, {"cell": CellSpec("fc", "neuron")}, **options)
    samples = raster(4, batch=batches * BATCH).transpose(0, 1)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        data = DataLoader(TensorDataset(samples), batch_size=BATCH)
        trainer(None, use, max_epochs=2).fit(learner, data)
    hooks = (len(m._forward_hooks) + len(m._forward_pre_hooks) for m in learner.modules())
    assert sum(hooks) == 0
    return [str(each.message) for each in found if "should begin each batch" in str(each.message)]


def rest(neuron: Any) -> None:
    neuron.v = None


KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Any], bool, str, str]] = {
    "snntorch": (snntorch, lambda n: n.reset_mem(), False, "mem", "call its `reset_mem()`"),
    "snntorch, hidden": (
        lambda: snntorch(init_hidden=True),
        lambda n: n.reset_mem(),
        False,
        "mem",
        "call its `reset_mem()`",
    ),
    "spikingjelly, steps": (
        lambda: spikingjelly("s"),
        lambda n: n.reset(),
        False,
        "v",
        "call its `reset()`",
    ),
    "spikingjelly, sequences": (
        lambda: spikingjelly("m"),
        lambda n: n.reset(),
        True,
        "v",
        "call its `reset()`",
    ),
    "own": (Own, rest, False, "v", "set it to zero"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_neurons_that_are_never_reset_are_told_once(kind: str) -> None:
    make, _, whole, state, how = KINDS[kind]
    (said,) = fit(Learner(make(), None, whole))
    assert f"kept its `{state}` from batch to batch" in said
    assert "`cell`" in said
    assert how in said


@pytest.mark.parametrize("kind", KINDS)
def test_neurons_that_are_reset_or_carry_a_stream_are_fine(kind: str) -> None:
    make, reset, whole, _, _ = KINDS[kind]
    assert fit(Learner(make(), reset, whole)) == []
    assert fit(Learner(make(), None, whole), carry=True) == []


@pytest.mark.parametrize("kind", KINDS)
def test_neurons_that_are_reset_after_each_batch_are_fine(kind: str) -> None:
    make, reset, whole, _, _ = KINDS[kind]
    learner = Learner(make(), reset, whole)
    learner.last = True
    assert fit(learner) == []


def test_neurons_without_a_state_are_fine() -> None:
    assert fit(Learner(Stateless(), None, False)) == []


def test_neurons_that_are_given_their_state_are_fine() -> None:
    class Given(Learner):
        def training_step(self, batch: list[Tensor]) -> None:
            mem = torch.zeros(BATCH, OUTPUTS).double()
            for x in batch[0].transpose(0, 1):
                _, mem = self.neuron(self.fc(x), mem)

    assert fit(Given(snntorch(), None, False)) == []


def test_a_reset_now_and_then_is_fine() -> None:
    class Sometimes(Learner):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            if batch_idx == 2:
                self.neuron.reset_mem()

    assert fit(Sometimes(snntorch(), None, False)) == []

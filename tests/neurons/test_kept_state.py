"""This package's modules that begin each batch in the state that the last one left are told."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum import STDP, CellSpec, DelayAdjustedSTDP, DeltaRule
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LIF, Competition, DelayedLinear, LeakyIntegrator

STEPS, BATCH, INPUTS, OUTPUTS = 10, 4, 6, 5


class Chain(pl.LightningModule):
    """A connection, a neuron and, behind them, a readout."""

    def __init__(self, connection: nn.Module, neuron: nn.Module, resets: Sequence[str]) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.fc, self.neuron, self.resets = connection, neuron, resets
        self.readout = nn.Linear(OUTPUTS, 3, bias=False)
        self.leak = LeakyIntegrator(3, time_dim=0)
        nn.init.uniform_(connection.weight, 0.2, 0.6)

    def training_step(self, batch: Tensor) -> dict[str, Tensor]:
        for path in self.resets:
            self.get_submodule(path).reset()
        y = self.leak(self.readout(self.neuron(self.fc(batch.transpose(0, 1))).float()))
        return {"error": y - 1.0}

    def configure_optimizers(self) -> None:
        return None


def linear() -> nn.Module:
    return nn.Linear(INPUTS, OUTPUTS, bias=False)


def delayed() -> nn.Module:
    return DelayedLinear(INPUTS, OUTPUTS, max_delay=5.0, time_dim=0)


def lif() -> nn.Module:
    return LIF(OUTPUTS, time_dim=0)


def competition() -> nn.Module:
    return Competition(lif(), OUTPUTS, time_dim=0)


KINDS = {  # a connection, a neuron, what has to be reset beside `neuron`, and what is not
    "Competition": (linear, competition, ["neuron.neuron", "leak"], "neuron"),
    "its neuron": (linear, competition, ["neuron.neuron", "leak"], "neuron.neuron"),
    "DelayedLinear": (delayed, lif, ["fc", "leak"], "fc"),
    "LeakyIntegrator": (linear, lif, ["leak"], "leak"),
}


def fit(kind: str, resets: Sequence[str], reverse: bool = False, **options: bool) -> list[str]:
    connection, neuron, _, _ = KINDS[kind]
    torch.manual_seed(0)
    model = Chain(connection(), neuron(), resets)
    rule = DelayAdjustedSTDP if connection is delayed else STDP
    hidden = CellTrainerCallback(
        rule(0.001, -0.001, time_dim=0), {"hidden": CellSpec("fc", "neuron")}, **options
    )
    delta = DeltaRule(0.001, time_dim=0)
    cells = {"out": CellSpec("readout", "leak")}
    out = CellTrainerCallback(delta, cells, input_keys=("error",), **options)
    return told(model, [out, hidden] if reverse else [hidden, out])


def told(model: Chain, callbacks: list[pl.Callback]) -> list[str]:
    samples = (torch.rand(6 * BATCH, STEPS, INPUTS) < 0.5).float()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer(None, *callbacks).fit(model, DataLoader(samples, batch_size=BATCH))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    texts = [str(each.message) for each in found]
    return [text for text in texts if "at rest" in text or "both pass" in text]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_module_that_keeps_its_state_is_told_once(kind: str, reverse: bool) -> None:
    _, _, others, kept = KINDS[kind]
    resets = [path for path in ("neuron", *others) if path != kept]
    (said,) = fit(kind, resets, reverse)
    assert f"a `{kind if kind != 'its neuron' else 'LIF'}`" in said
    assert "call its `reset()`" in said
    assert "at the beginning of `training_step`" in said


@pytest.mark.parametrize("kind", KINDS)
def test_modules_that_are_reset_or_carry_a_stream_are_fine(kind: str) -> None:
    assert fit(kind, ["neuron", *KINDS[kind][2]]) == []
    assert fit(kind, [], carry=True) == []


@pytest.mark.parametrize("reverse", [False, True])
def test_a_native_neuron_of_a_cell_is_told_once_with_its_traces(reverse: bool) -> None:
    (said,) = fit("LeakyIntegrator", ["leak"], reverse)
    assert "The traces and the neuron of cell `hidden`" in said


def test_a_neuron_of_no_cell_is_told_too() -> None:
    model = Chain(linear(), nn.Sequential(lif(), linear_of(OUTPUTS), lif()), ["neuron.2", "leak"])
    rule, cells = STDP(0.001, -0.001, time_dim=0), {"hidden": CellSpec("neuron.1", "neuron.2")}
    (said,) = told(model, [CellTrainerCallback(rule, cells)])
    assert "`neuron.0`, a `LIF`, should begin each batch at rest" in said


def linear_of(size: int) -> nn.Module:
    layer = nn.Linear(size, OUTPUTS, bias=False)
    nn.init.uniform_(layer.weight, 0.2, 0.6)
    return layer

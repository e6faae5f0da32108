"""A state that the model passes to its neurons from batch to batch is told."""

from __future__ import annotations

import warnings
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum import STDP, CellSpec
from lightning_accum.callbacks import CellTrainerCallback

STEPS, BATCH, INPUTS, OUTPUTS = 6, 4, 6, 5


def norse() -> nn.Module:
    return pytest.importorskip("norse.torch").LIFCell()


def snntorch() -> nn.Module:
    return pytest.importorskip("snntorch").Leaky(beta=0.9)


class Stream(pl.LightningModule):
    """Passes the state of its neurons on in a batch, and to the next one if it keeps it."""

    def __init__(self, neuron: nn.Module, keeps: str) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.fc, self.lif, self.keeps, self.state = nn.Linear(INPUTS, OUTPUTS), neuron, keeps, None
        nn.init.uniform_(self.fc.weight, 0.2, 0.9)

    def training_step(self, batch: Tensor) -> None:
        state: Any = self.state if self.keeps != "nothing" else None
        if self.keeps == "zeroed" and state is not None:
            for each in (state,) if isinstance(state, Tensor) else state:
                each.zero_()
        if state is None and hasattr(self.lif, "reset_mem"):
            self.lif.reset_mem()
        with torch.inference_mode(self.keeps == "inference"):
            self.state = self.simulate(batch, state)

    def simulate(self, batch: Tensor, state: Any) -> Any:
        for step in batch.unbind(1):
            args = () if state is None else (state,)
            _, state = self.lif(self.fc(step), *args)
        if self.keeps == "detached":
            state = (
                state.detach()
                if isinstance(state, Tensor)
                else type(state)(*(each.detach() for each in state))
            )
        return state

    def configure_optimizers(self) -> None:
        return None


def told(make: Any, keeps: str, batches: int = 6, **options: bool) -> list[str]:
    torch.manual_seed(0)
    model = Stream(make(), keeps)
    model.requires_grad_(False)
    learner = CellTrainerCallback(STDP(1e-3, -1e-3), {"hidden": CellSpec("fc", "lif")}, **options)
    data = DataLoader((torch.rand(batches * BATCH, STEPS, INPUTS) < 0.5).float(), BATCH)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(None, learner).fit(model, data)
    return [str(w.message) for w in caught if "begin each batch at rest" in str(w.message)]


@pytest.mark.parametrize("make", [norse, snntorch])
@pytest.mark.parametrize("keeps", ["state", "detached"])
def test_a_state_that_lasts_over_batches_is_told_once(make: Any, keeps: str) -> None:
    (message,) = told(make, keeps)
    assert "cell `hidden`" in message
    assert "carry=True" in message


@pytest.mark.parametrize("make", [norse, snntorch])
def test_a_state_within_batches_is_not_told(make: Any) -> None:
    assert told(make, "nothing") == []


@pytest.mark.parametrize("make", [norse, snntorch])
def test_a_state_that_is_set_to_zero_in_place_is_not_told(make: Any) -> None:
    assert told(make, "zeroed") == []


@pytest.mark.parametrize("make", [norse, snntorch])
def test_what_inference_mode_writes_to_is_not_known_and_not_told(make: Any) -> None:
    assert told(make, "inference") == []


def test_a_stream_is_not_told() -> None:
    assert told(norse, "state", carry=True) == []


def test_a_fit_of_three_batches_is_not_told() -> None:
    assert told(norse, "state", batches=3) == []

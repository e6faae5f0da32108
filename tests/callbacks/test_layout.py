"""Time and batch in the wrong place are noticed where the loader says how large a batch is."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import BATCH, OUTPUTS, RULE, Net, callback, loader, trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum import STDP
from lightning_accum.nn import LIF


class Swapped(Net):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.lif.reset()
        self.lif(self.fc(batch[0]))


class Sequence(nn.Module):
    """A neuron of another library that takes whole sequences, and does not say so."""

    def forward(self, x: Tensor) -> Tensor:
        return (x > 0.5).to(x.dtype)


class Foreign(Net):
    def __init__(self) -> None:
        super().__init__()
        self.lif = Sequence()

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.lif(self.fc(batch[0].transpose(0, 1)))


class Stepwise(Net):
    def __init__(self) -> None:
        super().__init__()
        self.lif = LIF(OUTPUTS)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.lif.reset()
        for x in batch[0].transpose(0, 1):
            self.lif(self.fc(x))


class TimeFirst(Swapped):
    """Of a loader that puts time first."""


def said(tmp_path: Path, net: Net, data: Any, rule: STDP | None = None) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer(tmp_path, callback(rule), max_epochs=2).fit(net, data)
    return [str(each.message) for each in found if "The neuron of cell" in str(each.message)]


def test_the_batch_before_time(tmp_path: Path) -> None:
    (message,) = said(tmp_path, Swapped(), loader(3))
    assert "returned [5, 7, ...], which its rule takes as 5 steps of 7 samples" in message


def test_sequences_for_a_rule_on_steps(tmp_path: Path) -> None:
    (message,) = said(tmp_path, Foreign(), loader(3), STDP(**RULE))
    assert "returned [7, 5, ...]" in message
    assert "pass `time_dim=0` to the rule" in message


@pytest.mark.parametrize("net", [Net, Foreign, Stepwise])
def test_what_is_right_is_not_warned_of(tmp_path: Path, net: Any) -> None:
    rule = STDP(**RULE, time_dim=None if net is Stepwise else 0)
    assert said(tmp_path, net(), loader(3), rule) == []


def test_time_first_from_the_loader(tmp_path: Path) -> None:
    def together(samples: Any) -> Any:
        return [torch.stack([x for x, _ in samples], 1), torch.tensor([y for _, y in samples])]

    data = DataLoader(loader(3).dataset, batch_size=BATCH, collate_fn=together)
    assert said(tmp_path, TimeFirst(), data) == []


class Encoded(Net):
    """Makes sequences of what the loader gives, of as many steps as there are samples or more."""

    def __init__(self, steps: int, swap: bool) -> None:
        super().__init__()
        self.steps, self.swap = steps, swap

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.lif.reset()
        x = batch[0].expand(self.steps, -1, -1)
        self.lif(self.fc(x.transpose(0, 1) if self.swap else x))


@pytest.mark.parametrize(
    ("steps", "swap", "told"), [(7, True, True), (7, False, False), (BATCH, False, False)]
)
def test_the_batch_before_time_by_an_encoder(
    steps: int, swap: bool, told: bool, tmp_path: Path
) -> None:
    data = DataLoader(torch.utils.data.TensorDataset(torch.eye(6).double()[:BATCH]), BATCH)
    messages = said(tmp_path, Encoded(steps, swap), data)
    assert len(messages) == told
    assert all("returned [5, 7, ...]" in text for text in messages)

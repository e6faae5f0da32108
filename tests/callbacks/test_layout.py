"""Time and batch in the wrong place are noticed where the loader says how large a batch is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import BATCH, OUTPUTS, RULE, Net, callback, loader, trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum import STDP
from lightning_accum.nn import LIF

Parts = Callable[[Tensor], Any]


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


class Shown(Net):
    """Shows a batch in parts, ``[B, T, inputs]``."""

    def __init__(self, parts: Parts, neuron: nn.Module | None = None, resets: bool = False) -> None:
        super().__init__()
        self.lif, self.resets, self.parts = neuron or Sequence(), resets, parts

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for part in self.parts(batch[0]):
            if self.resets:
                self.lif.reset()
            self.lif(self.fc(part.transpose(0, 1)))


def one_by_one(batch: Tensor) -> Any:
    return batch.split(1)


def at_once(batch: Tensor) -> Any:
    return [batch]


def in_pieces(batch: Tensor) -> Any:
    return batch.split(2, 1)


def only_the_first_in_pieces(batch: Tensor) -> Any:
    return batch[:1].split(2, 1)


def warned(tmp_path: Path, net: Net, **options: bool) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer(tmp_path, callback(**options), max_epochs=2).fit(net, loader(3))
    texts = [str(each.message) for each in found]
    return [each for each in texts if "side by side" in each or "reset within one" in each]


def test_samples_that_come_one_after_another(tmp_path: Path) -> None:
    (message,) = warned(tmp_path, Shown(one_by_one))
    assert "Cell `enc` should see the samples of a batch side by side" in message
    assert "a `Sequence`, returned 5 sequences of one sample" in message
    assert "and the loader's batches have 5 samples" in message


def test_resets_between_samples_are_told_once(tmp_path: Path) -> None:
    (message,) = warned(tmp_path, Shown(one_by_one, LIF(OUTPUTS, time_dim=0), resets=True))
    assert "reset within one" in message


@pytest.mark.parametrize("parts", [at_once, in_pieces, only_the_first_in_pieces])
def test_samples_side_by_side_and_parts_of_one(parts: Parts, tmp_path: Path) -> None:
    assert warned(tmp_path, Shown(parts)) == []


def test_pieces_of_one_stream(tmp_path: Path) -> None:
    assert warned(tmp_path, Shown(one_by_one), carry=True) == []

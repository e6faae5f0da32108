"""A stream whose samples are shuffled has a line in the summary."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import BATCH, Net, callback, spikes, trainer
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler


class Stream(Net):
    """Passes its state on from batch to batch."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lif(self.fc(x.transpose(0, 1)))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self((batch["a"] if isinstance(batch, dict) else batch)[0])


DATA = TensorDataset(spikes(4 * BATCH))
ORDERED = DataLoader(DATA, batch_size=BATCH)
SHUFFLED = DataLoader(DATA, batch_size=BATCH, shuffle=True)
WEIGHTED = DataLoader(DATA, BATCH, sampler=WeightedRandomSampler([1.0] * len(DATA), len(DATA)))


@pytest.mark.parametrize(
    ("loader", "carry", "told"),
    [
        (ORDERED, True, 0),
        (SHUFFLED, True, 1),
        (WEIGHTED, True, 1),
        ({"a": ORDERED, "b": SHUFFLED}, True, 1),
        (SHUFFLED, False, 0),
    ],
)
def test_a_loader(
    loader: Any, carry: bool, told: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = Stream() if carry else Net()
    with caplog.at_level(logging.INFO, "lightning_accum.callbacks"):
        trainer(tmp_path, callback(carry=carry)).fit(net, loader)
    assert caplog.text.count("and the loader shuffles them") == told

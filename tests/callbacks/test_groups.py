"""Batches applied together, uneven batches, and batches in which little or nothing happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import (
    BATCH,
    RULE,
    Net,
    Noting,
    Probe,
    callback,
    clean,
    close,
    fit_by_hand,
    loader,
    parts_by_hand,
    spikes,
    trainer,
    weights_after_each_batch,
)
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, IterableDataset

from lightning_accum import STDP
from lightning_accum.functional import bound_multiplicative

# It is about users who want the weights of before the step; nobody can give it them here.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Using ModelCheckpoint with manual optimization:UserWarning"
)


class Streaming(Net):
    """Takes batches as pieces of one stream."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lif(self.fc(x.transpose(0, 1)))


def test_groups_and_the_partial_one_of_an_epoch(tmp_path: Path) -> None:
    net, data = Net(), loader(8)
    expected = fit_by_hand(net, list(data), every=3, epochs=2)
    found = weights_after_each_batch(net)
    steps = Probe("on_train_batch_end", lambda run, _: run.global_step)
    saver = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=2, save_top_k=-1)
    run = trainer(
        tmp_path,
        callback(apply_every_n_batches=3),
        found,
        steps,
        saver,
        max_epochs=2,
        enable_checkpointing=True,
    )
    run.fit(net, data)
    applied = [expected[i] for i in (0, 1, 2, 3, 4, 5)]
    at = [2, 5, 7, 10, 13, 15]  # the batches 3, 6 and 8 of each epoch
    assert all(close(found.found[i], weight) for i, weight in zip(at, applied, strict=True))
    for before, after in ((0, 1), (3, 4), (8, 9), (11, 12)):
        assert torch.equal(found.found[before], found.found[after])
    assert steps.found == [0, 0, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 6]
    assert {path.stem for path in tmp_path.glob("*.ckpt")} == {"step=2", "step=4", "step=6"}


def test_a_group_is_bounded_as_one_change(tmp_path: Path) -> None:
    """The parts of all its batches meet the bound together, at the weight of before."""
    net, data = Net(), loader(2)
    parts = [parts_by_hand(net, x) for x, _ in data]
    pos, neg = (sum(side) for side in zip(*parts, strict=True))
    weight = net.fc.weight.detach().clone()
    rule = STDP(**RULE, time_dim=0)

    def bound(_: Any, __: Any) -> None:
        cell, _state = rule.get_cell("enc")
        assert cell.updater is not None
        cell.updater.weight.fullbound(bound_multiplicative, 1.0, 0.0)

    trainer(tmp_path, callback(rule, apply_every_n_batches=2), Probe("on_fit_start", bound)).fit(
        net, data
    )
    assert close(net.fc.weight.detach(), weight + (1 - weight) * pos - weight * neg)


@pytest.mark.parametrize("every", [1, 2])
def test_an_epoch_of_unknown_length(every: int, tmp_path: Path) -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            yield from zip(spikes(3 * BATCH), range(3 * BATCH), strict=True)

    net, data = Net(), DataLoader(Stream(), batch_size=BATCH)
    expected = fit_by_hand(net, list(data), every=every)
    run = trainer(tmp_path, callback(apply_every_n_batches=every))
    run.fit(net, data)
    assert close(net.fc.weight, expected[-1])
    assert run.global_step == len(expected)


def test_limited_batches_end_an_epoch_too(tmp_path: Path) -> None:
    net, data = Net(), loader(6)
    expected = fit_by_hand(net, list(data)[:4], every=3)
    trainer(tmp_path, callback(apply_every_n_batches=3), limit_train_batches=4).fit(net, data)
    assert close(net.fc.weight, expected[-1])


@pytest.mark.parametrize("carry", [False, True])
def test_a_smaller_last_batch_and_one_of_one_sample(carry: bool, tmp_path: Path) -> None:
    rule, net, data = Noting(), Streaming() if carry else Net(), loader(3, last=1)
    expected = fit_by_hand(Net(), list(data))[-1]
    trainer(tmp_path, callback(rule, carry=carry)).fit(net, data)
    assert [window.shape[1] for window in rule.windows] == [BATCH, BATCH, 1]
    assert carry or close(net.fc.weight, expected)
    assert torch.isfinite(net.fc.weight).all()


def test_a_cell_that_does_not_run_in_a_batch(tmp_path: Path) -> None:
    class Sometimes(Net):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            if batch_idx != 1:
                self(batch[0])

    net, data = Sometimes(), loader(3)
    batches = list(data)
    expected = fit_by_hand(net, [batches[0], batches[2]])[-1]
    run = trainer(tmp_path, callback())
    run.fit(net, data)
    assert close(net.fc.weight, expected)
    assert run.global_step == 3
    assert clean(net)

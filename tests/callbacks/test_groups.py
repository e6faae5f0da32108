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
    close,
    fit_by_hand,
    loader,
    parts_by_hand,
    trainer,
    warning_of,
    weights_after_each_batch,
)
from lightning.pytorch.callbacks import ModelCheckpoint

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


def test_a_smaller_last_batch_of_a_stream(tmp_path: Path) -> None:
    rule, net = Noting(), Streaming()
    trainer(tmp_path, callback(rule, carry=True)).fit(net, loader(3, last=1))
    assert [window.shape[1] for window in rule.windows] == [BATCH, BATCH, 1]
    assert torch.isfinite(net.fc.weight).all()


def test_no_sample_at_all(tmp_path: Path) -> None:
    class Empty(Net):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            self(batch[0][:0])

    net = Empty()
    run = trainer(tmp_path, callback(), logger=True)
    with warning_of("or without samples"):
        run.fit(net, loader(2))
    assert close(net.fc.weight, Net().fc.weight)
    assert run.global_step == 2

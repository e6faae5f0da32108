"""Several learners in one trainer: each with a rate, a rhythm and pending changes of its own."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import (
    RULE,
    Net,
    Probe,
    callback,
    close,
    events_of,
    loader,
    parts_by_hand,
    trainer,
)
from lightning.pytorch.loggers import TensorBoardLogger
from torch.optim.lr_scheduler import StepLR

from lightning_accum import STDP, CellSpec, Clamp, attach_updater, get_updater
from lightning_accum.callbacks import CellTrainerCallback, UpdatePictures

# Lightning says so where a checkpoint holds the state of a callback that is not there.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*callbacks used to create the checkpoint:UserWarning"
)


def half(name: str, **options: Any) -> Any:
    """A learner whose rule has other rates than that of the others."""
    rule = STDP(**{**RULE, "lr_post": 0.5}, time_dim=0)
    return callback(rule, name=name, **options)


def test_each_has_its_own_rhythm_and_reduction(tmp_path: Path) -> None:
    net, data = Net(), loader(4)
    expected = Net()
    sums = STDP(**RULE, time_dim=0, batch_reduction="sum")
    pending = torch.zeros_like(expected.fc.weight)
    with torch.no_grad():
        for i, (x, _) in enumerate(data):
            pos, neg = parts_by_hand(expected, x)
            pending += 0.1 * (pos - neg)
            expected.fc.weight += 0.01 * len(x) * (pos - neg)
            if i % 2:
                expected.fc.weight += pending
                pending.zero_()
    one = callback(sums, name="sums", lr=0.01)
    two = callback(name="means", lr=0.1, apply_every_n_batches=2)
    trainer(tmp_path, one, two).fit(net, data)
    assert close(net.fc.weight, expected.fc.weight)


def test_constraints_and_bounds_of_the_connection_hold_for_all(tmp_path: Path) -> None:
    net, data = Net(), loader(2)
    attach_updater(net.fc, "weight").register_constraint(Clamp(0.1, 0.2))
    within = Probe("on_train_batch_end", lambda _, m: bool((m.fc.weight - 0.15).abs().max() < 0.06))
    trainer(tmp_path, callback(name="a"), within, half("b"), within).fit(net, data)
    assert within.found == [True] * 4


def test_the_updater_that_a_fit_attached_goes_with_it_and_that_of_the_user_stays(
    tmp_path: Path,
) -> None:
    net, use, other = Net(), callback(), half("b")
    there = Probe("on_train_start", lambda _, module: get_updater(module.fc))
    trainer(tmp_path, use, other, there).fit(net, loader(2))
    assert there.found[0] is not None
    assert get_updater(net.fc) is None
    assert use.host.updaters["enc"].weight.empty
    torch.save(net.fc, tmp_path / "fc.pt")
    assert b"lightning_accum" not in (tmp_path / "fc.pt").read_bytes()
    # the next fit goes on with it, and so with what was set on it
    trainer(tmp_path, use, there).fit(net, loader(2))
    assert there.found[1] is there.found[0]
    weight = net.fc.weight.detach().clone()
    trainer(tmp_path, other).fit(net, loader(2))  # as does one that had another beside it
    assert not torch.equal(net.fc.weight, weight)
    own = attach_updater(net.fc, "weight")
    trainer(tmp_path, use, other, there).fit(net, loader(2))
    assert there.found[2] is own is get_updater(net.fc)
    assert own.weight.empty


def test_cells_of_one_name_are_logged_apart(tmp_path: Path) -> None:
    up = callback(STDP(**{**RULE, "lr_pre": 0.0}, time_dim=0), name="up")
    down = callback(STDP(**{**RULE, "lr_post": 0.0}, time_dim=0), name="down")
    pictures = UpdatePictures(every_n_logs=1)
    run = trainer(tmp_path, up, down, pictures, logger=TensorBoardLogger(tmp_path))
    run.fit(Net(), loader(2))
    found = run.callback_metrics
    assert found["updates/up/enc/weight/pos_norm"] > 0 == found["updates/up/enc/weight/neg_norm"]
    assert (
        found["updates/down/enc/weight/neg_norm"] > 0 == found["updates/down/enc/weight/pos_norm"]
    )
    assert not any(name.startswith(("updates/enc", "activity/enc")) for name in found)
    tags = events_of(run).Tags()
    assert {"weights/up/enc/weight", "weights/down/enc/weight"} <= {*tags["histograms"]}
    assert {"spikes/up/enc", "spikes/down/enc"} <= {*tags["images"]}


def test_each_has_its_own_rate_in_any_order_on_resume(tmp_path: Path) -> None:
    class Two(Net):
        def __init__(self) -> None:
            super().__init__()
            self.fc2, self.lif2 = copy.deepcopy(self.fc), copy.deepcopy(self.lif)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            super().training_step(batch, batch_idx)
            self.lif2.reset()
            self.lif2(self.fc2(batch[0].transpose(0, 1)))

    def learners() -> list[CellTrainerCallback]:
        cells = {"two": CellSpec("fc2", "lif2")}
        schedule = functools.partial(StepLR, step_size=2, gamma=0.5)
        return [callback(lr_scheduler=schedule), callback(cells=cells, lr=0.1)]

    path = tmp_path / "net.ckpt"
    run = trainer(tmp_path, *learners())
    run.fit(Two(), loader(2))
    run.save_checkpoint(path)
    found = {}
    for name, order in {"same": [0, 1], "other": [1, 0], "one": [1]}.items():
        net = Two()
        use = [learners()[i] for i in order]
        run = trainer(tmp_path, *use, max_epochs=2)
        run.fit(net, loader(2), ckpt_path=path)
        found[name] = [net.fc.weight, net.fc2.weight]
        rates = {k: float(v) for k, v in run.callback_metrics.items() if k.endswith("/lr")}
        expected = {"updates/enc/weight/lr": 0.5, "updates/two/weight/lr": 0.1}
        if name == "one":
            del expected["updates/enc/weight/lr"]
        assert rates == pytest.approx(expected)
    assert all(torch.equal(a, b) for a, b in zip(found["same"], found["other"], strict=True))
    assert torch.equal(found["one"][1], found["same"][1])

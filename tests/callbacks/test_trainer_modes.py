"""The Trainer's other ways to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from callback_helpers import (
    Net,
    Validated,
    callback,
    clean,
    close,
    fit_by_hand,
    loader,
    trainer,
    warning_of,
)

OPTIONS: dict[str, tuple[dict[str, Any], int]] = {
    "barebones": ({"barebones": True}, 6),
    "fast_dev_run": ({"fast_dev_run": True}, 1),
    "fast_dev_run of three": ({"fast_dev_run": 3}, 3),
    "overfit_batches": ({"overfit_batches": 1, "max_epochs": 3}, 3),
    "limit_train_batches": ({"limit_train_batches": 2}, 2),
    "no batches": ({"limit_train_batches": 0}, 0),
    "detect_anomaly": ({"detect_anomaly": True}, 6),
    "no logging steps": ({"log_every_n_steps": 0, "logger": True}, 6),
    "float64": ({"precision": "64-true"}, 6),
    "profiler": ({"profiler": "simple"}, 6),
}


@pytest.mark.parametrize("case", OPTIONS)
# Lightning's own: barebones tells what it leaves out, overfitting wants a sampler without order.
@pytest.mark.filterwarnings("ignore:.*barebones:UserWarning", "ignore:You requested to overfit")
@pytest.mark.filterwarnings("ignore:Each fit should have training batches:RuntimeWarning")
def test_runs_and_learns(case: str, tmp_path: Path) -> None:
    options, batches = OPTIONS[case]
    if case == "barebones":
        run = pl.Trainer(barebones=True, accelerator="cpu", callbacks=[callback()], max_epochs=1)
    else:
        run = trainer(tmp_path, callback(), **options)
    net, data = Validated(), loader(6)
    given = list(data)[: options.get("limit_train_batches", batches)]
    if case == "overfit_batches":
        given = [given[0]] * 3
    expected = [net.fc.weight.detach().clone(), *fit_by_hand(net, given[:batches])]
    run.fit(net, data, loader(1, seed=9))
    assert run.global_step == batches
    assert close(net.fc.weight, expected[-1])
    assert clean(net)


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

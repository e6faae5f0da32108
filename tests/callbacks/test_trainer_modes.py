"""The Trainer's other ways to run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import (
    Net,
    Noting,
    Validated,
    callback,
    clean,
    close,
    fit_by_hand,
    loader,
    same_windows,
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


@pytest.mark.filterwarnings("ignore:You are trying to `self.log:UserWarning")
def test_bfloat16(tmp_path: Path) -> None:
    """Under autocast, spikes come in the narrow type and the weight stays wide."""

    class Single(Net):
        def __init__(self) -> None:
            super().__init__()
            self.float()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x.float())

    net, rule = Single(), Noting()
    before = net.fc.weight.clone()
    trainer(tmp_path, callback(rule), precision="bf16-mixed").fit(net, loader(3))
    assert same_windows(rule.windows, list(loader(3)))
    assert net.fc.weight.dtype == torch.float32
    assert not torch.equal(net.fc.weight, before)


@pytest.mark.parametrize(("given", "every"), [(None, 3), (1, 1), (2, 2)])
def test_gradients_are_accumulated_beside_it(given: int | None, every: int, tmp_path: Path) -> None:
    """Changes are accumulated as gradients are, unless it is said; Lightning counts the head's."""

    class Head(Net):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = True
            self.fc.requires_grad_(False)
            self.head = torch.nn.Linear(4, 4, dtype=torch.float64)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.head(self(batch[0]).mean(0)), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.head.parameters(), 0.1)

    net = Head()
    expected = fit_by_hand(net, list(loader(6)), every=every)[-1]
    learner = callback(apply_every_n_batches=given)
    run = trainer(tmp_path, learner, accumulate_grad_batches=3, gradient_clip_val=1.0)
    run.fit(net, loader(6))
    assert close(net.fc.weight, expected)
    assert run.global_step == 2


def test_an_epoch_that_the_module_cuts_short(tmp_path: Path) -> None:
    class Cut(Validated):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if batch_idx == 2 else None

        def on_validation_model_eval(self) -> None:
            """Stays in training mode."""

    rule, net, data = Noting(), Cut(), loader(4)
    run = trainer(tmp_path, callback(rule, apply_every_n_batches=3), max_epochs=2)
    run.fit(net, data, loader(1, seed=9))
    batches = list(data)[:2] * 2
    assert same_windows(rule.windows, batches)
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

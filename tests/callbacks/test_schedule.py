"""The rate of local learning follows a schedule of its own, beside any optimizer."""

from __future__ import annotations

import copy
import functools
import itertools
import re
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import Net, callback, loader, spikes, trainer
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from test_resume import Resumable, SaveAt
from test_three_ways import WithHead
from torch.optim.lr_scheduler import ExponentialLR, LinearLR, ReduceLROnPlateau, StepLR
from torch.utils.data import TensorDataset

from lightning_accum import CellSpec
from lightning_accum.optim import UpdateOptimizer

halve = functools.partial(ExponentialLR, gamma=0.5)


class Automatic(WithHead):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = True

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.losses(batch)[0]


def changes(folder: Path, model: Net, **options: Any) -> list[float]:
    """By how much each batch changes the weights of the layer that learns locally."""
    seen: list[torch.Tensor] = [model.fc.weight.detach().clone()]

    class Watch(pl.Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            seen.append(model.fc.weight.detach().clone())

    trainer(folder, callback(**options), Watch(), max_epochs=2).fit(model, loader(3))
    return [float((b - a).norm()) for a, b in itertools.pairwise(seen)]


def lrs(folder: Path, model: Net, **options: Any) -> list[float]:
    """The rate of each applied update, as the callback logs it."""
    seen: list[float] = []

    class Watch(pl.Callback):
        def on_train_batch_end(self, run: Any, *_: Any) -> None:
            if (rate := run.callback_metrics.get("updates/enc/weight/lr")) is not None:
                seen.append(float(rate))

    run = trainer(
        folder, callback(**options), Watch(), LearningRateMonitor("step"),
        max_epochs=2, logger=CSVLogger(folder), log_every_n_steps=1,
    )  # fmt: skip
    run.fit(model, loader(4))
    return seen


@pytest.mark.parametrize("model", [Net, Automatic])
def test_by_update_and_by_epoch(model: type[Net], tmp_path: Path):
    by_update = lrs(tmp_path, model(), lr_scheduler=halve)
    assert by_update == [0.5**i for i in range(8)]
    by_epoch = lrs(tmp_path, model(), lr_scheduler=halve, lr_interval="epoch")
    assert by_epoch == [1.0] * 4 + [0.5] * 4
    grouped = lrs(tmp_path, model(), lr_scheduler=halve, apply_every_n_batches=3)
    assert grouped == [1, 0.5, 0.5, 0.5, 0.25, 0.125]
    steps = functools.partial(StepLR, step_size=2, gamma=0.1)
    assert lrs(tmp_path, model(), lr_scheduler=steps, lr=3.0)[:3] == pytest.approx([3, 3, 0.3])


def test_a_rate_of_zero_changes_nothing_any_more(tmp_path: Path):
    off = functools.partial(ExponentialLR, gamma=0.0)
    first, *rest = changes(tmp_path, Automatic(), lr_scheduler=off)
    assert first > 0
    assert not any(rest)


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.parametrize("batches", [2, 5])
def test_it_resumes(batches: int, tmp_path: Path):
    data = functools.partial(Resumable, TensorDataset(spikes(20)), batch_size=5)
    options: dict[str, Any] = {"lr_scheduler": halve, "apply_every_n_batches": 2}
    whole, rest, path = Net(), Net(), tmp_path / "middle.ckpt"
    trainer(tmp_path, callback(**options), max_epochs=2).fit(whole, data())
    trainer(tmp_path, callback(**options), SaveAt(batches, path), max_epochs=2).fit(Net(), data())
    run = trainer(tmp_path, callback(**options), max_epochs=2)
    run.fit(rest, data(), ckpt_path=path)
    assert torch.equal(rest.fc.weight, whole.fc.weight)


def test_a_modules_own_optimizer_has_its_own_schedule(tmp_path: Path):
    model = Net()
    model.optimizers_given = UpdateOptimizer(model.parameters())
    with pytest.raises(ValueError, match="`lr_scheduler` should be None if the module has"):
        trainer(tmp_path, callback(lr_scheduler=halve)).fit(model, loader(2))


def test_a_schedule_that_needs_a_metric_is_refused(tmp_path: Path):
    model, plateau = Automatic(), ReduceLROnPlateau
    before = model.fc.weight.detach().clone()
    with pytest.raises(ValueError, match=r"takes no metric\. Found a `ReduceLROnPlateau`"):
        trainer(tmp_path, callback(lr_scheduler=plateau)).fit(model, loader(2))
    assert torch.equal(model.fc.weight, before)


def test_what_makes_no_sense():
    with pytest.raises(TypeError, match="`lr_scheduler` should be a callable"):
        callback(lr_scheduler=0.5)
    with pytest.raises(ValueError, match="`lr_interval` should be one of"):
        callback(lr_scheduler=halve, lr_interval="step")


@pytest.mark.parametrize(
    ("scheduler", "interval", "told"),
    [
        (functools.partial(LinearLR, start_factor=1.0, end_factor=0.0, total_iters=3), "update", 5),
        (functools.partial(LinearLR, start_factor=1.0, end_factor=0.0, total_iters=3), "epoch", 0),
        (functools.partial(LinearLR, start_factor=1.0, end_factor=0.0, total_iters=8), "update", 0),
        (halve, "update", 0),
        (None, "update", 0),
    ],
)
def test_a_rate_that_runs_out_early(
    scheduler: Any, interval: Any, told: int, caplog: Any, tmp_path: Path
) -> None:
    caplog.set_level("INFO")
    use = callback(lr_scheduler=scheduler, lr_interval=interval)
    trainer(tmp_path, use, max_epochs=2).fit(Net(), loader(4))
    found = [text for text in caplog.messages if "a hundredth of the optimizer's own" in text]
    assert len(found) == bool(told)
    assert all("`lr_scheduler` kept the `lr` of `enc.weight` below 0.01" in text for text in found)
    assert all(f"in {told} of 8 updates (from 1 to 0)" in text for text in found)
    assert all("pass `lr_interval='epoch'`" in text for text in found)


class Own(Net):
    """Applies updates by its own optimizer, with a scheduler."""

    def __init__(self, make: Any, interval: str = "step", manual: bool = False, lr: float = 1.0):
        super().__init__()
        self.automatic_optimization, self.manual = not manual, manual
        self.make, self.interval, self.lr = make, interval, lr

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self(batch[0])
        if self.manual:
            self.optimizers().step()

    def configure_optimizers(self) -> Any:
        optimizer = UpdateOptimizer(self.parameters(), lr=self.lr)
        schedule = {"scheduler": self.make(optimizer), "interval": self.interval}
        return {"optimizer": optimizer, "lr_scheduler": schedule}


warm_up = functools.partial(LinearLR, start_factor=1e-3, total_iters=4)
to_zero = functools.partial(LinearLR, start_factor=1.0, end_factor=0.0)
OWN = "The scheduler of the module's UpdateOptimizer kept the `lr` of `enc.weight` below "


@pytest.mark.filterwarnings("ignore:The lr scheduler dict contains the key:RuntimeWarning")
@pytest.mark.parametrize(
    ("model", "found", "how"),
    [
        (lambda: Own(warm_up, manual=True), "0.01, .*in 8 of 8 updates (0.001)", "`step()`"),
        (
            lambda: Own(functools.partial(to_zero, total_iters=3), lr=0.5),
            "0.005, .*in 5 of 8 updates (from 0.5 to 0)",
            'fall more slowly, or set `"interval": "epoch"`',
        ),
        (
            lambda: Own(functools.partial(StepLR, step_size=1, gamma=1e-5), "epoch"),
            "0.01, .*in 4 of 8 updates (from 1 to 1e-05)",
            "then: let it fall more slowly.",
        ),
        (
            lambda: Own(functools.partial(LinearLR, start_factor=1e-4, total_iters=500), "epoch"),
            "0.01, .*in 8 of 8 updates (from 0.0001 to 0.0021)",
            'warm up in fewer steps, or set `"interval": "step"`',
        ),
        (lambda: Own(warm_up), "", ""),
        (lambda: Own(warm_up, "epoch"), "0.01, .*in 4 of 8 updates", '"interval": "step"'),
        (lambda: Own(functools.partial(to_zero, total_iters=8)), "", ""),
        (lambda: Own(halve), "", ""),
        (lambda: Own(halve, lr=1e-3), "", ""),
    ],
)
@pytest.mark.parametrize("every", [1, 50])
def test_a_schedule_of_the_module_that_prevents_learning(
    model: Any, found: str, how: str, every: int, caplog: Any, tmp_path: Path
) -> None:
    caplog.set_level("INFO")
    run = trainer(tmp_path, callback(), max_epochs=2, log_every_n_steps=every)
    run.fit(model(), loader(4))
    lines = [line for text in caplog.messages for line in text.splitlines()]
    told = [line for line in lines if line.startswith(OWN)]
    assert len(told) == bool(found)
    if found:
        assert re.search(re.escape(OWN + found).replace(r"\.\*", ".*"), told[0])
        assert how in told[0]
        assert not any("was lost" in line or "raise `lr_post`" in line for line in lines)


def test_a_scheduler_that_notes_no_first_rate(caplog: Any, tmp_path: Path) -> None:
    class Plateau(Own):
        def configure_optimizers(self) -> Any:
            optimizer = UpdateOptimizer(self.parameters())
            scheduler = ReduceLROnPlateau(optimizer, factor=1e-9, patience=0)
            return {
                "optimizer": optimizer,
                "lr_scheduler": {"scheduler": scheduler, "monitor": "level"},
            }

        def on_train_epoch_end(self) -> None:
            self.log("level", 1.0)

    caplog.set_level("INFO")
    trainer(tmp_path, callback(), max_epochs=6).fit(Plateau(None), loader(2))
    (line,) = [x for text in caplog.messages for x in text.splitlines() if x.startswith(OWN)]
    assert "in 8 of 12 updates (from 1 to 1e-09)" in line
    assert "was lost" not in caplog.text


@pytest.mark.parametrize(
    ("lr", "said"), [(0.0, "with `lr = 0`"), (1e-9, "`lr = 1e-09` of the optimizer")]
)
def test_the_rate_of_a_group_is_named(lr: float, said: str, caplog: Any, tmp_path: Path) -> None:
    class Groups(Net):
        def __init__(self) -> None:
            super().__init__()
            self.fc2, self.lif2 = copy.deepcopy(self.fc), copy.deepcopy(self.lif)
            self.automatic_optimization = True

        def training_step(self, batch: Any, batch_idx: int) -> None:
            self(batch[0])
            self.lif2.reset()
            self.lif2(self.fc2(batch[0].transpose(0, 1)))

        def configure_optimizers(self) -> Any:
            groups = [
                {"params": self.fc.parameters()},
                {"params": self.fc2.parameters(), "lr": lr},
            ]
            return UpdateOptimizer(groups)

    cells = {"a": CellSpec("fc", "lif"), "b": CellSpec("fc2", "lif2")}
    caplog.set_level("INFO")
    trainer(tmp_path, callback(cells=cells)).fit(Groups(), loader(4))
    lines = [line for text in caplog.messages for line in text.splitlines() if "`b.weight`" in line]
    assert any(said in line for line in lines)


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.parametrize("scheduler", [None, halve])
@pytest.mark.parametrize("lr", [0.5, 0.25])
def test_another_rate_in_a_fit_that_resumes(lr: float, scheduler: Any, tmp_path: Path) -> None:
    path, options = tmp_path / "middle.ckpt", {"lr_scheduler": scheduler}
    first = trainer(tmp_path, callback(lr=0.5, **options), max_epochs=1)
    first.fit(Net(), loader(2))
    first.save_checkpoint(path)
    run = trainer(tmp_path, callback(lr=lr, **options), max_epochs=2)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run.fit(Net(), loader(2), ckpt_path=path)
    texts = [str(w.message) for w in found if "no effect" in str(w.message)]
    assert len(texts) == (lr != 0.5)
    assert all("that is resumed, 0.5" in text and "Found `lr = 0.25`" in text for text in texts)

"""An epoch without training batches is told once, with the reason."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from callback_helpers import Net, Validated, callback, clean, loader, trainer
from test_resume import SaveAt
from torch.utils.data import DataLoader, IterableDataset

from lightning_accum import STDP, CellSpec

USED_UP = "an iterator or a generator does that is used up"


def said(run: pl.Trainer, net: Net, data: Any, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run.fit(net, data, **options)
    return [str(each.message) for each in found if "training batches" in str(each.message)]


def used_up() -> Iterator[Any]:
    data = iter(list(loader(2)))
    list(data)
    return data


class Once(IterableDataset[Any]):
    """Gives its samples in one epoch only."""

    def __init__(self) -> None:
        self.samples = iter(loader(2).dataset)

    def __iter__(self) -> Iterator[Any]:
        return self.samples


class Ends(Net):
    """Ends an epoch before one of its batches."""

    def __init__(self, at: int, epoch: int = 0) -> None:
        super().__init__()
        self.at, self.epoch = at, epoch

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if batch_idx == self.at and self.current_epoch >= self.epoch else None


@pytest.mark.parametrize(
    ("net", "data", "where", "why"),
    [
        (Net, used_up, "the first one", USED_UP),
        (Net, lambda: iter(list(loader(2))), "epoch 1, after 2 batches in earlier ones", USED_UP),
        (Net, lambda: DataLoader(Once(), batch_size=5), "epoch 1, after 2 batches", USED_UP),
        (lambda: Ends(0), lambda: loader(2), "the first one", "returned -1"),
        (lambda: Ends(0, 2), lambda: loader(2), "epoch 2, after 4 batches", "returned -1"),
    ],
)
def test_an_epoch_without_batches(
    net: Any, data: Any, where: str, why: str, tmp_path: Path
) -> None:
    other = callback(name="other", cells={"other": CellSpec("fc", "lif")}, summary=False)
    (text,) = said(trainer(tmp_path, callback(), other, max_epochs=4), net(), data())
    assert f"Found none in {where}" in text
    assert why in text


def test_a_batch_that_ends_the_epoch(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level("INFO")
    assert not said(trainer(tmp_path, callback(), max_epochs=3), Ends(1), loader(4))
    assert "`on_train_batch_start` returned -1 in 3 epochs" in caplog.text
    assert "so that the fit had 3: to leave out a single batch" in caplog.text


class Stops(pl.Callback):
    """Stops the fit before the first batch of its second epoch."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        trainer.should_stop = trainer.current_epoch == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("options", "callbacks"),
    [
        ({"max_steps": 3}, []),
        ({"limit_train_batches": 1}, []),
        ({"fast_dev_run": True}, []),
        ({}, [Stops]),
    ],
)
def test_what_the_user_limits_is_no_mistake(
    options: dict[str, Any], callbacks: list[Any], tmp_path: Path
) -> None:
    options = {"max_epochs": 3, **options}
    run = trainer(tmp_path, callback(), *(make() for make in callbacks), **options)
    assert not said(run, Net(), loader(2))


@pytest.mark.parametrize("batches", [2, 4])
def test_a_fit_that_resumes_after_the_last_batch_of_an_epoch(batches: int, tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    trainer(tmp_path, callback(), SaveAt(batches, path), max_epochs=3).fit(Net(), loader(2))
    run = trainer(tmp_path, callback(STDP(0.02, -0.015, time_dim=0)), max_epochs=3)
    assert not said(run, Net(), loader(2), ckpt_path=path)


NONE = "Each fit should have training batches. Found none: "


@pytest.mark.filterwarnings("ignore:Total length of:UserWarning")
@pytest.mark.parametrize(
    ("options", "batches", "why"),
    [
        ({"limit_train_batches": 0}, 2, "`limit_train_batches` of the Trainer is 0"),
        ({"max_epochs": 0}, 2, "`max_epochs` of the Trainer is 0"),
        ({"max_steps": 0}, 2, "`max_steps` of the Trainer is 0"),
        ({}, 0, "the loader has no batches"),
    ],
)
def test_a_fit_without_batches(
    options: dict[str, Any], batches: int, why: str, tmp_path: Path
) -> None:
    other = callback(name="other", cells={"other": CellSpec("fc", "lif")}, summary=False)
    data = loader(2) if batches else DataLoader([])  # type: ignore[arg-type,var-annotated]
    net = Net()
    (text,) = said(trainer(tmp_path, callback(), other, **options), net, data)
    assert text.startswith(NONE + why)
    assert clean(net)


@pytest.mark.parametrize("limit", [{"max_epochs": 2}, {"max_steps": 3, "max_epochs": -1}])
def test_a_trainer_that_has_fitted_another_model(limit: dict[str, int], tmp_path: Path) -> None:
    run, (name, most) = trainer(tmp_path, callback(), **limit), next(iter(limit.items()))
    assert not said(run, Net(), loader(2))
    (text,) = said(run, Net(), loader(2))
    assert f"had reached `{name}={most}` in an earlier fit: make a new Trainer" in text
    if name == "max_epochs":
        run.fit_loop.max_epochs = 3
    else:
        run.fit_loop.epoch_loop.max_steps = 4
    assert not said(run, Net(), loader(2))


def test_no_batches_before_an_error_and_in_validation(tmp_path: Path) -> None:
    class Fails(Validated):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            raise ZeroDivisionError

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(ZeroDivisionError):  # in the sanity check, before training begins
            trainer(tmp_path, callback()).fit(Fails(), loader(2), loader(1))
        trainer(tmp_path, callback()).validate(Validated(), loader(1), verbose=False)


def test_a_checkpoint_of_a_finished_fit_is_no_mistake(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = tmp_path / "last.ckpt"
    run = trainer(tmp_path, callback())
    run.fit(Net(), loader(2))
    run.save_checkpoint(path)
    caplog.set_level("INFO")
    assert not said(trainer(tmp_path, callback()), Net(), loader(2), ckpt_path=path)
    assert NONE + "the Trainer had reached `max_epochs=1` in the checkpoint" in caplog.text

"""Several fits, several callbacks, copies, and weight averaging beside it."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import (
    Net,
    Noting,
    Probe,
    Validated,
    callback,
    clean,
    close,
    fit_by_hand,
    loader,
    same_windows,
    trainer,
)
from torch.optim.swa_utils import AveragedModel

from lightning_accum import CellSpec
from lightning_accum.callbacks import CellTrainerCallback


def test_one_trainer_validates_fits_and_goes_on(tmp_path: Path) -> None:
    rule, net, data, other = Noting(), Validated(), loader(4), loader(2, seed=9)
    expected = fit_by_hand(net, list(data), epochs=2)
    run = trainer(tmp_path, callback(rule))
    run.validate(net, other, verbose=False)  # in inference mode
    assert clean(net)
    run.fit(net, data, other)
    run.validate(net, other, verbose=False)
    assert clean(net)
    run.fit_loop.max_epochs = 2
    run.fit(net, data, other)
    assert run.global_step == 8
    assert close(net.fc.weight, expected[-1])
    assert same_windows(rule.windows, [*data, *data])


def test_another_model_in_the_second_fit(tmp_path: Path) -> None:
    use, first, second = callback(), Net(), Net(outputs=3)
    trainer(tmp_path, use).fit(first, loader(2))
    kept = first.fc.weight.clone()
    expected = fit_by_hand(second, list(loader(2)))[-1]
    trainer(tmp_path, use).fit(second, loader(2))
    assert torch.equal(first.fc.weight, kept)
    assert close(second.fc.weight, expected)


class TwoCells(Net):
    def __init__(self) -> None:
        super().__init__()
        self.fc2, self.lif2 = Net(outputs=3).fc, Net(outputs=3).lif

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.lif2.reset()
        self.lif2(self.fc2(x.transpose(0, 1)))
        return super().forward(x)


@pytest.mark.parametrize("every", [(1, 1), (2, 1), (2, 3)])
def test_two_callbacks_with_two_trainers(every: tuple[int, int], tmp_path: Path) -> None:
    net, data = TwoCells(), loader(6)
    first = fit_by_hand(Net(), list(data), every=every[0])[-1]
    second = fit_by_hand(Net(outputs=3), list(data), every=every[1])[-1]
    run = trainer(
        tmp_path,
        callback(apply_every_n_batches=every[0]),
        callback(cells={"two": CellSpec("fc2", "lif2")}, apply_every_n_batches=every[1]),
    )
    run.fit(net, data)
    assert close(net.fc.weight, first)
    assert close(net.fc2.weight, second)
    assert run.global_step == sum(i % every[0] == 0 or i % every[1] == 0 for i in range(1, 7))
    assert clean(net)


HOOKS = [
    "setup",
    "on_fit_start",
    "on_sanity_check_start",
    "on_train_start",
    "on_train_batch_start",
    "on_train_batch_end",
    "on_validation_start",
    "on_validation_end",
    "on_train_epoch_end",
    "on_train_end",
    "on_fit_end",
    "teardown",
]


def by_pickle(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def by_torch(thing: Any) -> Any:
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [copy.deepcopy, by_torch])
def test_copies_in_every_phase(copied: Any, tmp_path: Path) -> None:
    use, data = callback(apply_every_n_batches=2), loader(3)
    copies: dict[str, CellTrainerCallback] = {"new": copied(use)}

    def take(hook: str) -> Probe:
        return Probe(hook, lambda *_: copies.setdefault(hook, copied(use)))

    net = Validated()
    expected = fit_by_hand(net, list(data), every=2)[-1]
    trainer(tmp_path, use, *map(take, HOOKS), val_check_interval=2).fit(
        net, data, loader(2, seed=9)
    )
    assert close(net.fc.weight, expected)  # the original does not notice
    copies["after"] = copied(use)
    assert set(copies) == {"new", *HOOKS, "after"}
    for phase, other in copies.items():
        fresh = Net()
        trainer(tmp_path, other).fit(fresh, data)
        assert close(fresh.fc.weight, expected), phase
        assert clean(fresh)
    assert close(net.fc.weight, expected)  # nor do the copies change what it trained


class CopiedInStep(Net):
    def training_step(self, batch: Any, batch_idx: int) -> None:
        self(batch[0])
        self.copies = [copied(self.use) for copied in (copy.deepcopy, by_pickle, by_torch)]


def test_copies_in_a_step_leave_out_model_and_trainer(tmp_path: Path) -> None:
    net, use = CopiedInStep(), callback()
    net.__dict__["use"] = use
    trainer(tmp_path, use).fit(net, loader(2))
    for other in net.copies:
        held = [type(value) for value in vars(other).values()]
        assert not any(issubclass(kind, (pl.Trainer, pl.LightningModule)) for kind in held)
        assert len(pickle.dumps(other)) < 20_000
        fresh = Net()
        trainer(tmp_path, other).fit(fresh, loader(2))
        assert close(fresh.fc.weight, fit_by_hand(Net(), list(loader(2)))[-1])


def test_a_copied_model_is_recorded_by_nobody(tmp_path: Path) -> None:
    class Copied(Net):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            twin = copy.deepcopy(self)
            twin(batch[0])
            twin.eval()  # turns off nothing of the original's
            super().training_step(batch, batch_idx)
            self.__dict__["twin"] = twin

    rule, net, data = Noting(), Copied(), loader(3)
    trainer(tmp_path, callback(rule)).fit(net, data)
    assert same_windows(rule.windows, list(data))
    fresh = Noting()
    expected = fit_by_hand(net.twin, list(data))[-1]
    net.twin.train()
    trainer(tmp_path, callback(fresh)).fit(net.twin, data)
    assert same_windows(fresh.windows, list(data))
    assert close(net.twin.fc.weight, expected)


averaging = pytest.mark.skipif(
    not hasattr(pl.callbacks, "EMAWeightAveraging"), reason="came with Lightning 2.6"
)


@averaging
@pytest.mark.parametrize("first", [True, False])
def test_weight_averaging(first: bool, tmp_path: Path) -> None:
    net, data = Validated(), loader(6)
    steps = fit_by_hand(net, list(data))
    average = pl.callbacks.EMAWeightAveraging(decay=0.5)
    order = [average, callback()] if first else [callback(), average]
    run = trainer(tmp_path, *order, val_check_interval=2)
    run.fit(net, data, loader(1, seed=9))
    # Lightning's callbacks come in the order given: the one before sees a step one batch later.
    seen = steps[:-1] if first else steps
    mean = Net().fc.weight.detach().clone()
    for i, weight in enumerate(seen):
        mean = weight.clone() if i == 0 else 0.5 * mean + 0.5 * weight
    assert close(net.fc.weight, mean)
    assert clean(net)
    assert isinstance(average._average_model, AveragedModel)
    assert clean(average._average_model)

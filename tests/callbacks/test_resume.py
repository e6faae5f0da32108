"""A run that is stopped and resumed gives bit for bit what an uninterrupted one gives."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import (
    BATCH,
    RULE,
    Net,
    Probe,
    Resumable,
    Validated,
    callback,
    clean,
    close,
    fit_by_hand,
    loader,
    spikes,
    trainer,
)
from torch import Tensor
from torch.utils.data import TensorDataset

from lightning_accum import STDP, CellSpec

# Lightning's own advice: on weights from before the step, on callbacks that are in a checkpoint
# alone, and on resuming within an epoch.
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:Using ModelCheckpoint with manual optimization:UserWarning",
        "ignore:.*callbacks used to create the checkpoint:UserWarning",
        "ignore:You're resuming from a checkpoint that ended before the epoch ended:UserWarning",
    ),
]


def data(batches: int = 7) -> Resumable:
    return Resumable(TensorDataset(spikes(batches * BATCH)), batch_size=BATCH)


class Streaming(Net):
    """Its neurons go on where they stopped; their state is in the checkpoint."""

    def forward(self, x: Tensor) -> Tensor:
        return self.lif(self.fc(x.transpose(0, 1)))


class SaveAt(pl.Callback):
    """Saves when so many batches were trained on, in the middle of a group too."""

    def __init__(self, batches: int, path: Path) -> None:
        self.left, self.path = batches, path

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        self.left -= 1
        if self.left == 0:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True


@pytest.mark.parametrize("model", [Net, Streaming])
@pytest.mark.parametrize("batches", [1, 3, 4, 7, 8, 11])
def test_within_a_group_an_epoch_or_between(model: type[Net], batches: int, tmp_path: Path) -> None:
    options: dict[str, Any] = {"apply_every_n_batches": 3, "carry": model is Streaming}
    whole = model()
    straight = trainer(tmp_path, callback(**options), max_epochs=2)
    straight.fit(whole, data())

    path = tmp_path / "middle.ckpt"
    trainer(tmp_path, callback(**options), SaveAt(batches, path), max_epochs=2).fit(model(), data())
    rest = model()
    resumed = trainer(tmp_path, callback(**options), max_epochs=2)
    resumed.fit(rest, data(), ckpt_path=path)
    assert torch.equal(rest.fc.weight, whole.fc.weight)
    assert resumed.global_step == straight.global_step == 6
    assert clean(rest)


def test_it_does_matter_what_is_carried_and_pending(tmp_path: Path) -> None:
    """Without the callback's state the same resumption gives other weights."""
    path, bare = tmp_path / "middle.ckpt", tmp_path / "bare.ckpt"
    options: dict[str, Any] = {"apply_every_n_batches": 3, "carry": True}
    trainer(tmp_path, callback(**options), SaveAt(4, path)).fit(Streaming(), data())
    saved = torch.load(path, weights_only=True)
    assert list(saved["callbacks"]) == [callback().state_key]
    torch.save({**saved, "callbacks": {}}, bare)
    weights = []
    for ckpt in (path, bare):
        net = Streaming()
        trainer(tmp_path, callback(**options)).fit(net, data(), ckpt_path=ckpt)
        weights.append(net.fc.weight)
    assert not torch.equal(*weights)


def test_an_epoch_then_another(tmp_path: Path) -> None:
    whole = Net()
    trainer(tmp_path, callback(), max_epochs=2).fit(whole, loader(3))
    use, half = callback(), Net()
    run = trainer(tmp_path, use)
    run.fit(half, loader(3))
    run.save_checkpoint(tmp_path / "epoch.ckpt")
    for other in (callback(), use):  # a new callback, and the one that is trained already
        rest = Net()
        trainer(tmp_path, other, max_epochs=2).fit(
            rest, loader(3), ckpt_path=tmp_path / "epoch.ckpt"
        )
        assert torch.equal(rest.fc.weight, whole.fc.weight)


def test_a_checkpoint_for_validation_leaves_nothing_for_the_next_fit(tmp_path: Path) -> None:
    path = tmp_path / "middle.ckpt"
    trainer(tmp_path, callback(apply_every_n_batches=3), SaveAt(4, path)).fit(Net(), data())
    use, net = callback(apply_every_n_batches=3), Validated()
    run = trainer(tmp_path, use)
    run.validate(net, loader(1, seed=9), ckpt_path=path, verbose=False)
    expected = fit_by_hand(net, list(data()), every=3)[-1]
    trainer(tmp_path, use).fit(net, data(), loader(1, seed=9))
    assert close(net.fc.weight, expected)


def test_a_checkpoint_from_before_any_fit(tmp_path: Path) -> None:
    run = trainer(tmp_path, callback())
    run.validate(Validated(), loader(1), verbose=False)
    run.save_checkpoint(tmp_path / "new.ckpt")
    net = Validated()
    expected = fit_by_hand(net, list(loader(2)))[-1]
    trainer(tmp_path, callback()).fit(
        net, loader(2), loader(1, seed=9), ckpt_path=tmp_path / "new.ckpt"
    )
    assert close(net.fc.weight, expected)


def test_a_checkpoint_of_other_cells_says_which(tmp_path: Path) -> None:
    run = trainer(tmp_path, callback(name="rule"))
    run.fit(Net(), loader(1))
    run.save_checkpoint(tmp_path / "enc.ckpt")
    use = callback(STDP(**RULE, time_dim=0), name="rule", cells={"dec": CellSpec("fc", "lif")})
    net = Net()
    with pytest.raises(ValueError, match=r"Missing from it: \['dec'\]; not known here: \['enc'\]"):
        trainer(tmp_path, use, max_epochs=2).fit(net, loader(1), ckpt_path=tmp_path / "enc.ckpt")
    assert clean(net)
    expected = fit_by_hand(net, list(loader(2)))[-1]
    trainer(tmp_path, use).fit(net, loader(2))  # the state that did not fit is forgotten
    assert close(net.fc.weight, expected)


def test_several_learners_have_pending_what_they_had(tmp_path: Path) -> None:
    """Three batches of a group of four have passed for one learner, one of a pair for the other."""

    def learners() -> list[pl.Callback]:
        rule = STDP(**{**RULE, "lr_post": 0.5}, time_dim=0)
        return [
            callback(name="a", apply_every_n_batches=4),
            callback(rule, name="b", apply_every_n_batches=2, lr=0.5),
        ]

    def save(run: pl.Trainer, _: pl.LightningModule) -> None:
        if run.fit_loop.epoch_loop.batch_idx == 2:
            run.save_checkpoint(tmp_path / "3.ckpt")

    whole, resumed = Net(), Net()
    trainer(tmp_path, *learners(), Probe("on_train_batch_end", save)).fit(whole, data(6))
    run = trainer(tmp_path, *learners())
    run.fit(resumed, data(6), ckpt_path=tmp_path / "3.ckpt")
    assert torch.equal(resumed.fc.weight, whole.fc.weight)


@pytest.mark.parametrize("key", ["host", "batches", "schedule"])
def test_a_state_that_lacks_a_key_says_which(key: str, tmp_path: Path) -> None:
    run = trainer(tmp_path, callback())
    run.fit(Net(), loader(1))
    run.save_checkpoint(tmp_path / "whole.ckpt")
    saved = torch.load(tmp_path / "whole.ckpt", weights_only=True)
    del saved["callbacks"][callback().state_key][key]
    torch.save(saved, tmp_path / "part.ckpt")
    net = Net()
    with pytest.raises(RuntimeError, match=r"keys \['batches', 'host', 'schedule'\].*load_from"):
        trainer(tmp_path, callback(), max_epochs=2).fit(
            net, loader(1), ckpt_path=tmp_path / "part.ckpt"
        )
    assert clean(net)
    use = callback()
    with pytest.raises(RuntimeError, match=r"keys \['optimizer', 'scheduler'\]"):
        use.load_state_dict({**run.callbacks[0].state_dict(), "schedule": {}})
    run = trainer(tmp_path, use)
    use.load_state_dict({"host": {}, "batches": 0, "schedule": None})
    with pytest.raises(RuntimeError, match=r"keys \['rule', 'trainer', 'updaters'\]"):
        run.fit(Net(), loader(1))


def test_a_fit_that_does_not_resume_begins_with_its_own_rate(tmp_path: Path) -> None:
    halve = functools.partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)
    use, weights = callback(lr=0.5, lr_scheduler=halve), []
    for _ in range(2):
        net = Net()
        trainer(tmp_path, use).fit(net, loader(3))
        weights.append(net.fc.weight)
    assert torch.equal(*weights)

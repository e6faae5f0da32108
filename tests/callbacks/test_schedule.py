"""The rate of local learning follows a schedule of its own, beside any optimizer."""

import functools
import warnings

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import Net, Resumable, callback, loader, spikes, trainer
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from test_resume import SaveAt
from test_three_ways import AutomaticHead
from torch.optim.lr_scheduler import (
    CosineAnnealingLR,
    ExponentialLR,
    LinearLR,
    OneCycleLR,
    PolynomialLR,
    ReduceLROnPlateau,
    StepLR,
)
from torch.utils.data import TensorDataset

from lightning_accum import LocalLearningWarning
from lightning_accum.optim import UpdateOptimizer

halve = functools.partial(ExponentialLR, gamma=0.5)


def lrs(folder, model, **options):
    """The rate of each applied update, as the callback logs it."""
    seen = []

    class Watch(pl.Callback):
        def on_train_batch_end(self, run, *_):
            if (rate := run.callback_metrics.get("updates/enc/weight/lr")) is not None:
                seen.append(float(rate))

    run = trainer(
        folder, callback(**options), Watch(), LearningRateMonitor("step"),
        max_epochs=2, logger=CSVLogger(folder), log_every_n_steps=1,
    )  # fmt: skip
    run.fit(model, loader(4))
    return seen


@pytest.mark.parametrize("model", [Net, AutomaticHead])
def test_by_update_and_by_epoch(model, tmp_path):
    by_update = lrs(tmp_path, model(), lr_scheduler=halve)
    assert by_update == [0.5**i for i in range(8)]
    by_epoch = lrs(tmp_path, model(), lr_scheduler=halve, lr_interval="epoch")
    assert by_epoch == [1.0] * 4 + [0.5] * 4
    grouped = lrs(tmp_path, model(), lr_scheduler=halve, apply_every_n_batches=3)
    assert grouped == [1, 0.5, 0.5, 0.5, 0.25, 0.125]
    steps = functools.partial(StepLR, step_size=2, gamma=0.1)
    assert lrs(tmp_path, model(), lr_scheduler=steps, lr=3.0)[:3] == pytest.approx([3, 3, 0.3])


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.parametrize("batches", [2, 5])
def test_it_resumes(batches, tmp_path):
    data = functools.partial(Resumable, TensorDataset(spikes(20)), batch_size=5)
    options = {"lr_scheduler": halve, "apply_every_n_batches": 2}
    whole, rest, path = Net(), Net(), tmp_path / "middle.ckpt"
    trainer(tmp_path, callback(**options), max_epochs=2).fit(whole, data())
    trainer(tmp_path, callback(**options), SaveAt(batches, path), max_epochs=2).fit(Net(), data())
    run = trainer(tmp_path, callback(**options), max_epochs=2)
    run.fit(rest, data(), ckpt_path=path)
    assert torch.equal(rest.fc.weight, whole.fc.weight)


def test_a_modules_own_optimizer_has_its_own_schedule(tmp_path):
    model = Net()
    model.optimizers_given = UpdateOptimizer(model.parameters())
    with pytest.raises(ValueError, match="`lr_scheduler` should be None if the module has"):
        trainer(tmp_path, callback(lr_scheduler=halve)).fit(model, loader(2))


def test_a_schedule_that_needs_a_metric_is_refused(tmp_path):
    model, plateau = AutomaticHead(), ReduceLROnPlateau
    before = model.fc.weight.detach().clone()
    with pytest.raises(ValueError, match=r"takes no metric\. Found a `ReduceLROnPlateau`"):
        trainer(tmp_path, callback(lr_scheduler=plateau)).fit(model, loader(2))
    assert torch.equal(model.fc.weight, before)


def test_what_makes_no_sense():
    with pytest.raises(TypeError, match="`lr_scheduler` should be a callable"):
        callback(lr_scheduler=0.5)
    with pytest.raises(ValueError, match="`lr_interval` should be one of"):
        callback(lr_scheduler=halve, lr_interval="step")


cosine = functools.partial(functools.partial, CosineAnnealingLR)
one_cycle = functools.partial(OneCycleLR, max_lr=1.0, cycle_momentum=False)


def findings(folder, scheduler, interval, **options):
    """What is said of a schedule in a fit of 3 epochs of 4 batches, or so many updates."""
    learner = callback(lr_scheduler=scheduler, lr_interval=interval, apply_every_n_batches=2)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer(folder, learner, **{"max_epochs": 3, **options}).fit(Net(), loader(4))
    kinds = [w for w in found if issubclass(w.category, LocalLearningWarning)]
    return [str(w.message) for w in kinds if "`lr_interval" in str(w.message)]


@pytest.mark.parametrize(
    ("scheduler", "interval", "found", "remedy"),
    [
        (cosine(T_max=12), "epoch", "T_max = 12`, the number of its batches", "T_max=3`, or"),
        (cosine(T_max=6), "epoch", "T_max = 6`, the number of its updates", "T_max=6` and"),
        (
            functools.partial(one_cycle, total_steps=12), "epoch",
            "total_steps = 12`", "total_steps=3`",
        ),
        (
            functools.partial(LinearLR, total_iters=6), "epoch",
            "total_iters = 6`", "total_iters=3`",
        ),
        (cosine(T_max=3), "update", "T_max = 3`, the number of its epochs", "T_max=6`, or"),
    ],
)  # fmt: skip
def test_a_schedule_in_the_wrong_unit(scheduler, interval, found, remedy, tmp_path):
    (text,) = findings(tmp_path, scheduler, interval)
    assert found in text
    assert remedy in text
    assert text.endswith("[setup]")


@pytest.mark.parametrize(
    ("scheduler", "interval", "options"),
    [
        (cosine(T_max=3), "epoch", {}),
        (cosine(T_max=6), "update", {}),
        (cosine(T_max=100), "epoch", {}),  # the first epochs of a longer fit
        (cosine(T_max=24), "epoch", {}),
        (cosine(T_max=12), "epoch", {"limit_train_batches": 4}),  # a trial
        (cosine(T_max=12), "epoch", {"max_steps": 4}),
        (cosine(T_max=12), "epoch", {"max_epochs": -1, "max_steps": 4}),
        (cosine(T_max=1), "update", {"max_epochs": 1}),
        (functools.partial(one_cycle, total_steps=6), "update", {}),
        (functools.partial(LinearLR, total_iters=3), "update", {}),  # a warm-up
        (functools.partial(PolynomialLR, total_iters=3), "epoch", {}),
        (functools.partial(StepLR, step_size=12), "epoch", {}),
        (None, "epoch", {}),
    ],
)
def test_a_schedule_in_its_unit(scheduler, interval, options, tmp_path):
    assert not findings(tmp_path, scheduler, interval, **options)


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.parametrize("scheduler", [None, halve])
@pytest.mark.parametrize("lr", [0.5, 0.25])
def test_another_rate_in_a_fit_that_resumes(lr, scheduler, tmp_path):
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

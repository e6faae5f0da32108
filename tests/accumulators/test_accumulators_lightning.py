"""Accumulators and pipes in a real Trainer, read from the event file that it writes."""

import copy
import logging
import re
import warnings

import lightning.pytorch as pl
import pytest
import torch
from accumulator_cases import CASES, written
from callback_helpers import SaveAt, trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAccuracy

from lightning_accum import accumulators as acc
from lightning_accum.metrics import FiringStatistics

BATCH, EPOCHS = 4, 3
X = torch.rand(11, 2, generator=torch.Generator().manual_seed(0))
BATCHES = X.split(BATCH)


@pytest.fixture(autouse=True)
def _quiet():
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)


def loader():
    return DataLoader(TensorDataset(X), batch_size=BATCH)


def losses(epoch):
    """What every step of an epoch gives: no two epochs the same."""
    return torch.stack([batch.mean() + epoch for batch in BATCHES])


class Base(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 1)

    def loss(self, batch):
        # Depends on the weights, by nothing.
        return batch.mean() + self.current_epoch + 0.0 * self.fc(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


NAMES = [name for name in CASES if name != "List"]


class Logs(Base):
    def __init__(self):
        super().__init__()
        self.seen = nn.ModuleDict({name: CASES[name].make() for name in NAMES})
        self.weighed = acc.Mean()
        self.both = MetricCollection({"low": acc.Min(), "high": acc.Max()}, prefix="both_")

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch[0])
        for name, accumulator in self.seen.items():
            accumulator(loss)
            self.log(name, accumulator, on_step=True, on_epoch=True)
        self.weighed.update(loss, weight=len(batch[0]))
        self.log("weighed", self.weighed, on_step=False, on_epoch=True)
        self.both.update(loss)
        self.log_dict(self.both, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        acc.synchronize(self)


def logging_trainer(path, *callbacks, **options):
    logger = TensorBoardLogger(path, name="", version=0)
    return trainer(path, *callbacks, logger=logger, **{"max_epochs": EPOCHS, **options})


def events(path):
    return {tag: [value for _, value in found] for tag, found in written(path).items()}


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    path = tmp_path_factory.mktemp("logged")
    net = Logs()
    run = logging_trainer(path)
    run.fit(net, loader())
    return net, run, events(path / "version_0")


@pytest.mark.parametrize("name", NAMES)
def test_an_accumulator_is_logged_at_each_step_and_epoch_and_then_reset(logged, name):
    _, _, found = logged
    reference = CASES[name].reference
    assert_close(
        found[f"{name}_epoch"], [float(reference(losses(epoch))) for epoch in range(EPOCHS)]
    )
    so_far = [float(reference(losses(epoch)[: n + 1])) for epoch in range(EPOCHS) for n in range(3)]
    assert_close(found[f"{name}_step"], so_far, equal_nan=True)


def test_a_weighed_mean_and_a_collection_are_logged_under_their_names(logged):
    _, run, found = logged
    assert_close(found["weighed"], [float(X.mean()) + epoch for epoch in range(EPOCHS)])
    assert_close(float(run.callback_metrics["weighed"]), found["weighed"][-1])
    for name, reference in (("both_low", torch.min), ("both_high", torch.max)):
        assert_close(found[name], [float(reference(losses(epoch))) for epoch in range(EPOCHS)])


class Counts(Base):
    def __init__(self):
        super().__init__()
        self.updated, self.called, self.skipping = acc.Sum(), acc.Sum(), acc.Except(acc.Sum(), 9)
        self.firing = FiringStatistics()

    def training_step(self, batch, batch_idx):
        for accumulator in (self.updated, self.skipping):
            accumulator.update(1)
        self.called(1)
        self.firing(torch.ones(1, 1, 1))
        return self.loss(batch[0])

    def counts(self):
        return [*(int(a.compute()) for a in (self.updated, self.called, self.skipping)),
                int(self.firing.steps)]  # fmt: skip


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
def test_a_new_fit_counts_from_zero_and_a_resumed_one_goes_on(tmp_path):
    path = tmp_path / "middle.ckpt"
    trainer(tmp_path, SaveAt(2, path)).fit(Counts(), loader())
    resumed = Counts()
    trainer(tmp_path).fit(resumed, loader(), ckpt_path=path)
    assert resumed.counts() == [3] * 4
    new = Counts.load_from_checkpoint(path)
    assert new.counts() == [2] * 4
    by_hand = copy.deepcopy(new)
    trainer(tmp_path, limit_train_batches=1).fit(new, loader())
    assert new.counts() == [1] * 4
    by_hand.training_step([X], 0)  # a loop without a Trainer goes on
    assert by_hand.counts() == [3] * 4


class Pipes(Base):
    def __init__(self, folder):
        super().__init__()
        writer = SummaryWriter(str(folder))
        self.train_steps, self.val_steps = acc.Source(self), acc.Source(self)
        shares = self.train_steps ** acc.Select(pred=1, target=2) ** BinaryAccuracy() ** acc.Mean()
        shares ** acc.Split(
            acc.Log("acc", prog_bar=True), acc.Scalar(writer, "acc"), acc.Max() ** acc.Log("best")
        )
        self.train_steps ** acc.Select(value=0, size=3) ** acc.Mean() ** acc.Log("loss")
        self.train_steps ** acc.Select(value=0) ** acc.Log("each")
        self.val_steps ** acc.Max() ** acc.Log("val")

    def training_step(self, batch, batch_idx):
        pred = (batch[0][:, 0] > 0.5).float()
        target = (batch[0].sum(1) > 1 + 0.2 * self.current_epoch).long()
        loss = self.loss(batch[0])
        self.train_steps((loss, pred, target, len(pred)))
        return loss

    def on_train_epoch_end(self):
        self.train_steps.end()

    def validation_step(self, batch, batch_idx):
        self.val_steps(self.loss(batch[0]))

    def on_validation_epoch_end(self):
        self.val_steps.end()


def shares(epoch):
    right = (X[:, 0] > 0.5) == (X.sum(1) > 1 + 0.2 * epoch)
    return [float(part.float().mean()) for part in right.split(BATCH)]


def test_pipes_log_through_the_module_when_the_epoch_ends(tmp_path):
    net = Pipes(tmp_path / "own")
    checkpoint = ModelCheckpoint(tmp_path / "ckpt", monitor="best", mode="max")
    stop = EarlyStopping("val", mode="max", patience=EPOCHS)
    run = logging_trainer(tmp_path, checkpoint, stop, enable_checkpointing=True)
    run.fit(net, loader(), loader())
    found = events(tmp_path / "version_0")
    accuracies = [sum(shares(epoch)) / 3 for epoch in range(EPOCHS)]
    assert len({*accuracies}) > 1
    assert_close(found["acc"], accuracies)
    assert_close(found["best"], [max(accuracies[: n + 1]) for n in range(EPOCHS)])
    assert_close(found["loss"], [float(X.mean()) + epoch for epoch in range(EPOCHS)])
    assert_close(found["each"], torch.cat([losses(epoch) for epoch in range(EPOCHS)]).tolist())
    assert_close(found["val"], [float(losses(epoch).max()) for epoch in range(EPOCHS)])
    for scalar in net.modules():
        if isinstance(scalar, acc.Scalar):
            scalar.writer.close()
    assert_close(events(tmp_path / "own")["acc"], accuracies)
    assert_close(float(checkpoint.best_model_score), max(accuracies))


def test_training_of_copies_resumes_where_its_pipes_were(tmp_path):
    net = Pipes(tmp_path / "own")
    whole, part, resumed = (copy.deepcopy(net) for _ in range(3))
    logging_trainer(tmp_path / "a").fit(whole, loader(), loader())
    run = logging_trainer(tmp_path / "b", max_epochs=1)
    run.fit(part, loader(), loader())
    run.save_checkpoint(path := tmp_path / "part.ckpt")
    logging_trainer(tmp_path / "c").fit(resumed, loader(), loader(), ckpt_path=path)
    expected, found = (events(tmp_path / name / "version_0") for name in "ac")
    for tag in ("acc", "best", "loss", "val"):
        assert_close(found[tag], expected[tag][1:])
    assert net.train_steps._owner[0] is net


# ---------------------------------------------------------------------------- names
class Net(pl.LightningModule):
    """Logs losses of training and of validation, and computes the test's loss from a new pipe."""

    def __init__(self, train, largest, val, kept=True):
        super().__init__()
        self.automatic_optimization = False
        self.steps, val_steps = acc.Source(self), acc.Source(self)
        loss = self.steps ** acc.Select(loss=0)
        loss ** acc.Mean() ** acc.Log(train)
        loss ** acc.Max() ** acc.Log(largest)
        val_steps ** acc.Select(loss=0) ** acc.Mean() ** acc.Log(val)
        self.held = nn.ModuleList([val_steps]) if kept else (val_steps,)

    def training_step(self, batch):
        self.steps((batch.mean(),))

    def on_train_epoch_end(self):
        self.steps.end()

    def validation_step(self, batch):
        self.held[0]((batch.mean(),))

    def on_validation_epoch_end(self):
        self.held[0].end()

    def on_test_epoch_start(self):
        self.test_steps = (acc.Select(loss=0) ** acc.Mean() ** acc.Log("loss")).bind(self)

    def test_step(self, batch):
        self.test_steps((batch.mean(),))

    def on_test_epoch_end(self):
        self.test_steps.end()

    def configure_optimizers(self):
        return None


ONE = ("steps.stages.0.branches.0",) * 2
OUTSIDE = ("a pipe that is not an attribute of it", "steps.")


@pytest.mark.parametrize(("names", "kept", "places"), [
    (("loss", "loss/max", "val/loss"), True, ()),
    (("loss", "loss", "val"), True, ONE),
    (("loss", "max", "loss"), True, ("held.0.", "steps.stages.")),
    (("loss", "max", "loss"), False, OUTSIDE),
])  # fmt: skip
def test_two_stages_of_one_name_in_an_epoch_are_told_once(tmp_path, names, kept, places):
    run, net = trainer(tmp_path, max_epochs=3), Net(*names, kept=kept)
    data = DataLoader(torch.arange(6.0)[:, None], batch_size=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run.fit(net, data, data)
        for _ in range(2):
            run.test(net, data, verbose=False)
    told = [str(each.message) for each in caught if "by one `Log`" in str(each.message)]
    assert len(told) == bool(places)
    if places:
        found = re.search("`loss` logged in one epoch by (.*) and by (.*), so .*rename", told[0])
        assert len({*found.groups()}) == 2
        for path, place in zip(found.groups(), places, strict=True):
            assert path.strip("`").startswith(place)

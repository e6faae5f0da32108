"""Two `Log` stages of one name in a LightningModule, of which one would overwrite the other."""

import re
import warnings

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import trainer
from torch.utils.data import DataLoader

from lightning_accum.accumulators import Log, Max, Mean, Select, Source

X = torch.arange(6.0)[:, None]


class Net(pl.LightningModule):
    """Logs losses of training and of validation, and computes the test's loss from a new pipe."""

    def __init__(self, train, largest, val, kept=True):
        super().__init__()
        self.automatic_optimization = False
        self.steps, self.val_steps = Source(self), Source(self)
        loss = self.steps ** Select(loss=0)
        loss ** Mean() ** Log(train)
        loss ** Max() ** Log(largest)
        validated = self.val_steps ** Select(loss=0) ** Mean() ** Log(val)
        if not kept:
            held, self.val_steps = self.val_steps, None
            self.hidden = (held, validated)

    def training_step(self, batch):
        self.steps((batch.mean(),))

    def on_train_epoch_end(self):
        self.steps.end()

    def validation_step(self, batch):
        (self.val_steps or self.hidden[0])((batch.mean(),))

    def on_validation_epoch_end(self):
        (self.val_steps or self.hidden[0]).end()

    def on_test_epoch_start(self):
        self.test_steps = Select(loss=0) ** Mean() ** Log("loss")
        self.test_steps.bind(self)

    def test_step(self, batch):
        self.test_steps((batch.mean(),))

    def on_test_epoch_end(self):
        self.test_steps.end()

    def configure_optimizers(self):
        return None


def told(net, path):
    run = trainer(path, max_epochs=3)
    loader = DataLoader(X, batch_size=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run.fit(net, loader, loader)
        run.test(net, loader, verbose=False)
        run.test(net, loader, verbose=False)
    return [str(each.message) for each in caught if "by one `Log`" in str(each.message)]


def test_each_name_that_is_logged_once_in_an_epoch_is_fine(tmp_path):
    assert told(Net("loss", "loss/max", "val/loss"), tmp_path) == []


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (("loss", "loss", "val"), ("steps.stages.0.branches.0", "steps.stages.0.branches.0")),
        (("loss", "max", "loss"), ("val_steps.", "steps.stages.")),
    ],
)
def test_two_stages_of_one_name_are_told_once_with_both_places(tmp_path, names, places):
    (text,) = told(Net(*names), tmp_path)
    assert "Found `loss` logged in one epoch by `" in text
    found = re.findall(r"by `([\w.]+)`", text)
    assert len({*found}) == 2
    assert all(path.startswith(place) for path, place in zip(found, places, strict=True))
    assert "rename one of them" in text


def test_a_pipe_that_is_not_an_attribute_is_told_too(tmp_path):
    (text,) = told(Net("loss", "max", "loss", kept=False), tmp_path)
    assert "by a pipe that is not an attribute of it and by `steps." in text

"""A small spiking LightningModule, data without randomness, and learning written by hand."""

import copy
import math
import warnings
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from monitors import hooks
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import STDP, CellSpec, Rule
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LIF

INPUTS, OUTPUTS, STEPS, BATCH = 6, 4, 7, 5
RULE = {"lr_post": 0.02, "lr_pre": -0.015, "tc_post": 8.0, "tc_pre": 12.0}


# The hooks of a fit, in which a callback may fail or be copied.
HOOKS = [
    "setup", "on_fit_start", "on_sanity_check_start", "on_train_start", "on_train_batch_start",
    "on_train_batch_end", "on_validation_start", "on_validation_batch_end", "on_validation_end",
    "on_train_epoch_end", "on_train_end", "on_fit_end", "teardown",
]  # fmt: skip


def spikes(samples, seed=0):
    """Input spikes ``[N, T, inputs]``, as a loader gives them: the batch first."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(samples, STEPS, INPUTS, generator=generator) < 0.4).double()


def loader(batches=8, last=BATCH, seed=0):
    """Batches in one order, the last one of its own size, with labels."""
    x = spikes((batches - 1) * BATCH + last, seed)
    return DataLoader(TensorDataset(x, torch.arange(len(x)) % OUTPUTS), batch_size=BATCH)


class Resumable(DataLoader[Any]):
    """Goes on where it stopped, as Lightning asks for within an epoch."""

    done = 0

    def __iter__(self):
        start = self.done
        for i, batch in enumerate(super().__iter__()):
            if i >= start:
                self.done = (i + 1) % len(self)
                yield batch

    def state_dict(self):
        return {"done": self.done}

    def load_state_dict(self, state):
        self.done = state["done"]


class Local(pl.LightningModule):
    """Has no optimizer."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def configure_optimizers(self):
        return None


class Net(Local):
    """Learns by what the callback does alone."""

    def __init__(self, optimizers=None, outputs=OUTPUTS):
        super().__init__()
        self.optimizers_given = optimizers
        self.fc = nn.Linear(INPUTS, outputs, bias=False, dtype=torch.float64)
        self.lif = LIF(outputs, tc_mem=10.0, time_dim=0)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            self.fc.weight.copy_(torch.rand(outputs, INPUTS, generator=generator) * 0.45)

    def forward(self, x):
        self.lif.reset()
        return self.lif(self.fc(x.transpose(0, 1)))

    def training_step(self, batch, batch_idx):
        self(batch[0])

    def configure_optimizers(self):
        return self.optimizers_given


class Validated(Net):
    """Is validated too, on data that are not the training data."""

    def validation_step(self, batch, batch_idx):
        self(batch[0])


class Noting(STDP):
    """Keeps a copy of every window's input, as often as it is evaluated."""

    lr_post = RULE["lr_post"]
    lr_pre = RULE["lr_pre"]
    tc_post = RULE["tc_post"]
    tc_pre = RULE["tc_pre"]
    windows: list[torch.Tensor] = field(default_factory=list, compare=False, repr=False)

    def terms(self, window):
        self.windows.append(window.pre.activity.clone())
        return super().terms(window)


def callback(rule=None, **options):
    """Learns by a rule of sequences, or by a CellTrainer."""
    rule = STDP(**RULE) if rule is None else rule
    run = {"time_dim": 0} if isinstance(rule, Rule) else {}
    cells = {"enc": CellSpec("fc", "lif")}
    return CellTrainerCallback(rule, **{"cells": cells, **run, **options})


def in_order(first, one, other):
    """Two callbacks, and which stands first."""
    return [one, other] if first else [other, one]


def trainer(tmp_path, *callbacks, **options):
    quiet = {
        "accelerator": "cpu", "default_root_dir": tmp_path, "enable_progress_bar": False,
        "enable_model_summary": False, "enable_checkpointing": False, "logger": False,
        "max_epochs": 1, "log_every_n_steps": 1,
    }  # fmt: skip
    return pl.Trainer(callbacks=list(callbacks), **{**quiet, **options})


def same_windows(found, batches):
    """Whether what was recorded is these batches, each once and in this order."""
    expected = [batch[0].transpose(0, 1) for batch in batches]
    return len(found) == len(expected) and all(
        f.shape == e.shape and bool((f == e).all()) for f, e in zip(found, expected, strict=True)
    )


def stdp_by_hand(pre, post):
    """Both parts of pair STDP's change, spike by spike: ``[T, inputs]`` and ``[T, outputs]``."""
    pos = torch.zeros(post.shape[1], pre.shape[1], dtype=torch.float64)
    neg = torch.zeros_like(pos)
    x_pre = torch.zeros(pre.shape[1], dtype=torch.float64)
    x_post = torch.zeros(post.shape[1], dtype=torch.float64)
    for s_pre, s_post in zip(pre.double(), post.double(), strict=True):
        x_pre = x_pre * math.exp(-1 / RULE["tc_pre"]) + s_pre
        x_post = x_post * math.exp(-1 / RULE["tc_post"]) + s_post
        pos += RULE["lr_post"] * torch.outer(s_post, x_pre)
        neg += -RULE["lr_pre"] * torch.outer(x_post, s_pre)
    return pos, neg


@torch.no_grad()
def parts_by_hand(net, x):
    """Both parts of a batch's change, the mean over its samples."""
    post = copy.deepcopy(net)(x)
    pairs = [stdp_by_hand(x[b], post[:, b]) for b in range(len(x))]
    pos, neg = (torch.stack(side).mean(0) for side in zip(*pairs, strict=True))
    return pos, neg


@torch.no_grad()
def fit_by_hand(net, batches, every=1, epochs=1, lr=1.0):
    """The weight after every applied update, of a loop that is written out."""
    net, weights = copy.deepcopy(net), []
    for _ in range(epochs):
        pending = torch.zeros_like(net.fc.weight)
        for i, (x, *_) in enumerate(batches, 1):
            pos, neg = parts_by_hand(net, x)
            pending += pos - neg
            if i % every == 0 or i == len(batches):
                net.fc.weight += lr * pending
                weights.append(net.fc.weight.clone())
                pending.zero_()
    return weights


def fit_as_by_hand(run, net, data, *more, ckpt_path=None, **options):
    """Fits, and checks that the weight is that of a loop that is written out."""
    expected = fit_by_hand(net, list(data), **options)[-1]
    run.fit(net, data, *more, ckpt_path=ckpt_path)
    assert close(net.fc.weight, expected)
    assert clean(net)


def close(found, expected):
    return found.dtype == torch.float64 and bool((found - expected).abs().max() < 1e-10)


def clean(model):
    """Whether no hook is left in a model."""
    return hooks(model) == 0


class Probe(pl.Callback):
    """Calls ``fn(trainer, module)`` in one hook."""

    def __init__(self, hook, fn):
        self.found = []
        setattr(self, hook, self._call)
        self._fn = fn

    def _call(self, trainer, module, *args, **kw):
        self.found.append(self._fn(trainer, module))


class SaveAt(pl.Callback):
    """Saves when so many batches were trained on, in the middle of a group too, and may stop."""

    def __init__(self, batches, path, stop=True):
        self.left, self.path, self.stop = batches, path, stop

    def on_train_batch_end(self, trainer, *_):
        self.left -= 1
        if self.left == 0:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = self.stop


def events_of(run):
    """All that stands in a fit's event files."""
    (board,) = [each for each in run.loggers if isinstance(each, TensorBoardLogger)]
    every = dict.fromkeys(("images", "histograms", "scalars", "tensors"), 0)
    found = EventAccumulator(board.log_dir, size_guidance=every)
    found.Reload()
    return found


def scalars(run):
    """The numbers in a fit's event files, by tag and step."""
    found = events_of(run)
    tags = [tag for tag in found.Tags()["scalars"] if tag not in ("epoch", "hp_metric")]
    return {tag: {event.step: event.value for event in found.Scalars(tag)} for tag in tags}


@contextmanager
def warning_of(text):
    """One warning of this package, with this text, beside Lightning's own remarks."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield
    (only,) = [str(w.message) for w in found if issubclass(w.category, RuntimeWarning)]
    assert text in only

"""Each training step is learned once, as by a loop that is written out, whatever the options."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import callback_helpers as cb
import lightning.pytorch as pl
import pytest
import torch
from test_callback_errors import Rewarding
from test_compiled import StepByStep
from test_fabric import Stepping
from test_optimization_modes import Automatic, AutomaticHead, AutomaticOwnOptimizer, OwnOptimizer
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset

from lightning_accum import CellSpec, Term
from lightning_accum.optim import UpdateOptimizer

OTHER, NO_VALIDATION = cb.spikes(5, seed=7), pl.LightningModule.validation_step


class Fit(NamedTuple):
    """A fit of one epoch of six batches, unless it is said otherwise."""

    model: Callable[[], cb.Net] = cb.Validated
    rule: Callable[[], cb.Noting] = cb.Noting
    learner: dict[str, Any] = {}  # noqa: RUF012 - nobody changes it
    options: dict[str, Any] = {}  # noqa: RUF012 - of the Trainer
    before: Callable[[], list[pl.Callback]] = list  # the learner
    after: Callable[[], list[pl.Callback]] = list
    data: Callable[[], Any] = lambda: cb.loader(6)
    learned: Callable[[list[Any]], list[Any]] = list  # of the batches of an epoch
    by_hand: dict[str, Any] = {}  # noqa: RUF012 - options
    steps: int | None = None
    calls: int = 0  # of the neurons: there are more than so many


FITS = {}


def first(number):
    return lambda batches: batches[:number]


# ---------------------------------------------------------------------- options of the Trainer
FITS |= {
    "fast_dev_run": Fit(options={"fast_dev_run": 3}, learned=first(3), steps=3),
    "overfit_batches": Fit(
        options={"overfit_batches": 1, "max_epochs": 3}, learned=first(1), by_hand={"epochs": 3},
        steps=3,
    ),
    "no batches": Fit(options={"limit_train_batches": 0}, learned=first(0), steps=0),
    "few batches": Fit(
        learner={"apply_every_n_batches": 3}, options={"limit_train_batches": 4}, learned=first(4),
        by_hand={"every": 3}, steps=2,
    ),
    "detect_anomaly": Fit(options={"detect_anomaly": True}, steps=6),
    "no logging steps": Fit(options={"log_every_n_steps": 0, "logger": True}, steps=6),
    "float64": Fit(options={"precision": "64-true"}, steps=6),
    "profiler": Fit(options={"profiler": "simple"}, steps=6),
    "barebones": Fit(cb.Net, options={"barebones": True, "log_every_n_steps": None}, steps=6),
    "a rate": Fit(learner={"lr": 0.25}, by_hand={"lr": 0.25}),
    "a rate, and a head": Fit(AutomaticHead, learner={"lr": 0.25}, by_hand={"lr": 0.25}),
    "updates are accumulated as gradients are": Fit(
        Automatic, options={"accumulate_grad_batches": 3}, by_hand={"every": 3}, steps=2
    ),
    "updates are accumulated otherwise": Fit(
        Automatic, learner={"apply_every_n_batches": 2}, options={"accumulate_grad_batches": 3},
        by_hand={"every": 2}, steps=3,
    ),
}  # fmt: skip


# ---------------------------------------------------------------------- batches
class Stream(IterableDataset[Any]):
    def __iter__(self):
        yield from cb.loader(3).dataset


def stop_after_six(run, _):
    run.should_stop = run.fit_loop.epoch_loop.batch_idx == 5


class Sometimes(cb.Net):
    def training_step(self, batch, batch_idx):
        if batch_idx != 1:
            self(batch[0])


class CutShort(cb.Net):
    def on_train_batch_start(self, batch, batch_idx):
        return -1 if batch_idx == 4 else None

    def on_train_epoch_end(self):
        self(OTHER)


class Phased(cb.Noting):
    def terms(self, window):
        assert window.inputs["phase"] == 1.0
        return super().terms(window)


class Chooses(cb.Net):
    """Leaves out some batches before any module runs, and returns no inputs of the rule then."""

    def __init__(self, automatic):
        parameter = torch.nn.Parameter(torch.ones(1))
        super().__init__(torch.optim.SGD([parameter]) if automatic else None)
        self.automatic_optimization = automatic

    def training_step(self, batch, batch_idx):
        if batch_idx % 2:
            return None
        self(batch[0])
        return {"phase": 1.0, "loss": torch.ones(1, requires_grad=True).sum()}


FITS |= {
    "an epoch of unknown length": Fit(data=lambda: DataLoader(Stream(), cb.BATCH), steps=3),
    "groups of an epoch of unknown length": Fit(
        learner={"apply_every_n_batches": 2}, data=lambda: DataLoader(Stream(), cb.BATCH),
        by_hand={"every": 2}, steps=2,
    ),
    "a smaller last batch": Fit(data=lambda: cb.loader(3, last=2)),
    "a last batch of one sample": Fit(data=lambda: cb.loader(3, last=1)),
    "a group that a stop cuts short": Fit(
        cb.Net, learner={"apply_every_n_batches": 4},
        after=lambda: [cb.Probe("on_train_batch_end", stop_after_six)],
        data=lambda: cb.loader(8), learned=first(6), by_hand={"every": 4},
    ),
    "a batch without a call": Fit(Sometimes, learned=lambda b: [b[0], *b[2:]], steps=6),
    "an epoch that is cut short": Fit(
        CutShort, learner={"apply_every_n_batches": 3}, options={"max_epochs": 2}, learned=first(4),
        by_hand={"every": 3, "epochs": 2},
    ),
} | {
    f"batches that are left out, {automatic}": Fit(
        functools.partial(Chooses, automatic), Phased, {"input_keys": ("phase",)},
        learned=lambda b: b[::2],
    )
    for automatic in (True, False)
}  # fmt: skip


# ---------------------------------------------------------------------- modes and other calls
class EvalInStep(cb.Validated):
    def training_step(self, batch, batch_idx):
        self.eval()(batch[0] * 0)
        self.train()
        super().training_step(batch, batch_idx)


class StaysInTraining(cb.Validated):
    """Keeps Lightning from putting it into evaluation mode."""

    def on_validation_model_eval(self):
        assert self.training


class Rests(cb.Validated):
    """Its second layer is left in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.other, self.relu = nn.Linear(4, 4, dtype=torch.float64), nn.ReLU()
        self.before = self.other.weight.detach().clone()

    def forward(self, x):
        spikes = super().forward(x)
        self.relu(self.other(spikes))
        return spikes

    def on_train_start(self):
        self.other.eval(), self.relu.eval()

    def on_train_end(self):
        assert torch.equal(self.other.weight, self.before)


def draws(hook):
    return type("Draws", (AutomaticHead,), {hook: lambda module, *_: module(OTHER)})


def drawing(hook):
    return lambda: [cb.Probe(hook, lambda _, module: module(OTHER))]


CELLS = {"enc": CellSpec("fc", "lif"), "rests": CellSpec("other", "relu")}
FITS["a layer that rests"] = Fit(Rests, learner={"cells": CELLS}, options={"val_check_interval": 2})
FITS |= {
    f"{model.__name__}, {sanity} sanity steps": Fit(
        model, options={"max_epochs": 2, "val_check_interval": 3, "num_sanity_val_steps": sanity},
        by_hand={"epochs": 2},
    )
    for model in (cb.Validated, EvalInStep, StaysInTraining)
    for sanity in (0, 2)
} | {
    f"a module that runs in `{hook}`": Fit(draws(hook))
    for hook in (
        "on_train_epoch_start", "on_before_zero_grad", "on_before_backward", "on_after_backward",
        "on_before_optimizer_step", "on_train_batch_end",
    )
}  # fmt: skip
for hook in ("on_train_batch_start", "on_train_batch_end"):
    FITS[f"a callback before runs it in `{hook}`"] = Fit(before=drawing(hook))
    FITS[f"a callback behind runs it in `{hook}`"] = Fit(after=drawing(hook))


# ---------------------------------------------------------------------- once a batch
class ByLBFGS(AutomaticHead):
    def configure_optimizers(self):
        return torch.optim.LBFGS(self.readouts.parameters(), lr=0.1, max_iter=3)


class ManualByLBFGS(ByLBFGS):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        def closure():
            optimizer.zero_grad()
            loss = self.losses(batch)[0]
            self.manual_backward(loss)
            return loss

        optimizer = self.optimizers()
        optimizer.step(closure)


class Twice(AutomaticHead):
    """Looks where it would get, as SAM does."""

    def optimizer_step(self, epoch, idx, optimizer, closure):
        closure()
        optimizer.step(closure)


class Checkpointed(AutomaticHead):
    """Forgets what it computed, and computes it again in the backward pass."""

    def __init__(self, reentrant, manual):
        super().__init__()
        self.automatic_optimization = not manual
        self.reentrant = reentrant
        self.other = nn.Linear(cb.INPUTS, cb.OUTPUTS, dtype=torch.float64)

    def forward(self, x):
        def run(x):
            self.lif.reset()
            spiking = self.lif(self.fc(x))
            return spiking + 0.0 * torch.tanh(self.other(x))

        x = x.transpose(0, 1).clone().requires_grad_()
        return checkpoint(run, x, use_reentrant=self.reentrant)

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        if not self.automatic_optimization:
            self.manual_backward(loss)
        return loss


class Rewarded(cb.Noting):
    def terms(self, window):
        reward = float(window.inputs["reward"])
        return [Term(t.rate * reward, t.post, t.pre) for t in super().terms(window)]


FITS |= {
    "a reward from the step": Fit(
        Rewarding, Rewarded, {"input_keys": {"reward": "score"}}, by_hand={"lr": 0.5}
    ),
    "updates as gradients of another optimizer": Fit(
        Stepping, data=lambda: cb.loader(4, last=3), by_hand={"lr": 0.5}, steps=4
    ),
    "a compiled layer step by step": Fit(StepByStep, learner={"time_dim": None}),
}
FITS |= {f"{kind.__name__}": Fit(kind, calls=6) for kind in (ByLBFGS, ManualByLBFGS, Twice)}
FITS |= {
    f"activation checkpointing, {how}": Fit(functools.partial(Checkpointed, *how), calls=6)
    for how in itertools.product((True, False), (True, False))
}
FITS |= {
    f"{model.__name__}, with optimizers that are set up anew": Fit(
        model, options={"max_epochs": 2}, by_hand={"epochs": 2}, steps=6, data=lambda: cb.loader(3),
        after=lambda: [
            cb.Probe("on_train_epoch_start", lambda run, _: run.strategy.setup_optimizers(run))
        ],
    )
    for model in (OwnOptimizer, AutomaticOwnOptimizer, AutomaticHead, cb.Net)
}  # fmt: skip


# ---------------------------------------------------------------------- a weight that is replaced
def assigned(net):
    net.fc.weight = nn.Parameter(net.fc.weight.detach().clone())


def loaded(net):
    net.load_state_dict(copy.deepcopy(net.state_dict()), assign=True)


class Replaced(cb.Net):
    """Replaces its weight by an equal one, before an epoch or within a step."""

    def __init__(self, how, within=False, **options):
        super().__init__(**options)
        self.how, self.within, self.first = how, within, self.fc.weight

    def on_train_epoch_start(self):
        if self.current_epoch == 1 and not self.within:
            self.how(self)

    def training_step(self, batch, batch_idx):
        super().training_step(batch, batch_idx)
        if self.within and batch_idx == 1:
            self.how(self)

    def on_train_end(self):
        assert self.fc.weight is not self.first
        assert self.trainer.callback_metrics["updates/enc/weight/update_norm"] > 0


class ReplacedOwn(Replaced):
    def configure_optimizers(self):
        return UpdateOptimizer(self.fc.parameters(), lr=0.5)

    def training_step(self, batch, batch_idx):
        super().training_step(batch, batch_idx)
        self.optimizers().step()

    def on_train_end(self):
        super().on_train_end()
        (group,) = self.trainer.optimizers[0].param_groups
        assert [id(param) for param in group["params"]] == [id(self.fc.weight)]


FITS |= {
    f"{model.__name__}, {how.__name__}, {within}": Fit(
        functools.partial(model, how, within), options={"max_epochs": 2},
        by_hand={"epochs": 2, "lr": 1.0 if model is Replaced else 0.5},
    )
    for model, how, within in itertools.product(
        (Replaced, ReplacedOwn), (assigned, loaded), (True, False)
    )
}  # fmt: skip


# Lightning's own: overfitting wants a sampler without order.
@pytest.mark.filterwarnings("ignore:You requested to overfit")
@pytest.mark.filterwarnings("ignore:.*training_step. returned .None.")
@pytest.mark.filterwarnings("ignore:.*barebones:UserWarning")  # it tells what it leaves out
@pytest.mark.filterwarnings("ignore:Each fit should have training batches:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # torch.compile
@pytest.mark.parametrize("name", FITS)
def test_learns_the_training_steps_as_a_loop_by_hand(name, tmp_path):
    case, called = FITS[name], list[int]()
    rule = case.rule()
    net, data = case.model(), case.data()
    batches = case.learned(list(data))
    options = {"epochs": 1, **case.by_hand}
    expected = [net.fc.weight.detach().clone(), *cb.fit_by_hand(net, batches, **options)]
    run = cb.trainer(
        tmp_path, *case.before(), cb.callback(rule, **case.learner), *case.after(), **case.options
    )
    counter = net.lif.register_forward_hook(lambda *_: called.append(1))
    run.fit(net, data, None if type(net).validation_step is NO_VALIDATION else cb.loader(3, seed=9))
    counter.remove()
    assert cb.same_windows(rule.windows, batches * options["epochs"])
    assert cb.close(net.fc.weight, expected[-1])
    assert case.steps in (None, run.global_step)
    assert len(called) > case.calls
    assert cb.clean(net)

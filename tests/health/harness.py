"""A program is described once, and run by hand, under the callback and under Fabric."""

from __future__ import annotations

import copy
import gc
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import trainer
from rule_trainers import trainer_of
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lightning_accum as la
from lightning_accum import MSTDP, STDP, Cell, CellSpec, Clamp, RuleTrainer, attach_updater
from lightning_accum.callbacks import CellTrainerCallback, FabricCellTrainer
from lightning_accum.nn import LIF, DelayedLinear, LeakyIntegrator, SurrogateLIF
from lightning_accum.optim import UpdateOptimizer, updates_as_gradients
from lightning_accum.rules import SymmetricFeedback

INPUTS, OUTPUTS, STEPS, BATCH = 8, 4, 15, 4
HAND, CALLBACK, FABRIC = "by hand", "callback", "fabric"
EVERYWHERE, HOSTED = (HAND, CALLBACK, FABRIC), (CALLBACK, FABRIC)


# ---------------------------------------------------------------------- networks, data, steps
def uniform(connection, low=0.0, high=0.35):
    """Returns the connection with weights of one seed."""
    weight = connection.weight
    nn.init.uniform_(weight, low, high, generator=torch.Generator().manual_seed(1))
    return connection


def dense(low=0.0, high=0.35, kind=nn.Linear):
    return uniform(kind(INPUTS, OUTPUTS, bias=False), low, high)


class Net(nn.Module):
    """A layer of neurons, which is called once per sequence."""

    def __init__(self, lif=None, fc=None, **more):
        super().__init__()
        self.fc = dense(kind=la.nn.Linear) if fc is None else fc
        self.lif = LIF(OUTPUTS, time_dim=0) if lif is None else lif
        for name, module in more.items():
            self.add_module(name, module)

    def rest(self):
        """Resets what keeps a state."""
        for module in self.modules():
            if module is not self and hasattr(module, "reset"):
                module.reset()

    def forward(self, x):
        """Takes ``[B, T, inputs]``, returns ``[T, B, outputs]``."""
        return self.lif(self.fc(x.transpose(0, 1)))


def lif(kind=LIF, **options):
    return lambda: Net(kind(OUTPUTS, **{"time_dim": 0, **options}))


def weights(value):
    """Returns a preparation that sets all weights to a value."""
    return lambda net, rule: nn.init.constant_(net.fc.weight, value)


def spikes(batches=8, rate=0.2, steps=STEPS, batch=BATCH):
    """Batches of spikes ``[B, T, inputs]``."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(batches, batch, steps, INPUTS, generator=generator) < rate
    return list(x.float())


def whole(net, x, i):
    """Runs a batch from rest."""
    net.rest()
    net(x)


def flow(net, x, i):
    """Runs a batch from the state of the batch before."""
    net(x)


def by_steps(net, x, i):
    for each in x.transpose(0, 1):
        net.lif(net.fc(each))


def stepwise(net, x, i):
    net.rest()
    by_steps(net, x, i)


def of(kind, *args, **options):
    """Makes a rule of sequences."""
    return lambda net: trainer_of(kind, *args, **{"time_dim": 0, **options})


def stdp(net=None):
    return RuleTrainer(STDP(0.01, -0.008), time_dim=0)


pairs = partial(of, STDP)
mstdp = of(MSTDP, 0.01, -0.008)


def rewarded(value, rule=mstdp, run=whole):
    """A rule that runs a batch, and gets a reward."""

    def step(net, x, i):
        run(net, x, i)
        return {"reward": value(i)}

    return {"rule": rule, "step": step, "inputs": ("reward",)}


def rates(batches=12, batch=BATCH):
    """Batches of rates ``[B, inputs]``."""
    return lambda: list(torch.rand(batches, batch, INPUTS))


def of_rates(kind, *args, data=None):
    """A rule of rates, which needs no time."""

    def step(net, x, i):
        net.lif(net.fc(x))

    return {"rule": of(kind, *args, time_dim=None), "step": step, "data": data or rates()}


class Errors(Net):
    def __init__(self, threshold=1.0, **lif):
        neurons = SurrogateLIF(OUTPUTS, v_threshold=threshold, time_dim=0, **lif)
        readout, leak = nn.Linear(OUTPUTS, 2, bias=False), LeakyIntegrator(2, time_dim=0)
        super().__init__(neurons, dense(), readout=readout, leak=leak)

    def forward(self, x):
        return self.leak(self.readout(super().forward(x)))


def erring(net, x, i):
    net.rest()
    y = net(x).mean(0)
    label = (x.sum((1, 2)) > x.sum((1, 2)).median()).long()
    error = (y.softmax(-1) - nn.functional.one_hot(label, 2)).detach()
    return {"error": error, "loss": nn.functional.cross_entropy(y, label)}


def eprop(net, **options):
    feedback = options.pop("feedback", None) or SymmetricFeedback(net.readout)
    return trainer_of(la.EProp, 0.05, feedback, tc_readout=20.0, time_dim=0, **options)


FROZEN = {"prepare": lambda net, rule: net.readout.requires_grad_(False)}
ERRING = {"net": Errors, "rule": eprop, "step": erring, "inputs": ("error",)}


def nothing(*_):
    """Prepares and returns nothing."""


# ---------------------------------------------------------------------- a program
At = Callable[[Any, Any, int], object]


@dataclass(frozen=True, kw_only=True)
class Program:
    """A network, a rule, and what happens in each batch."""

    name: str  # what the program is or does
    link: str | tuple[str, ...] = ()  # that breaks, or several names of it; none if it is correct
    words: tuple[str, ...] = ()  # parts of the message, in any case
    advice: tuple[str, ...] | None = None  # parts of a line of the summary; empty if there is none
    error: type[Exception] | None = None  # that ends the program
    hosts: tuple[str, ...] = EVERYWHERE  # which of them run it
    alone: Callable[[], object] | None = None  # the whole program, of one host only
    net: Callable[[], Any] = Net
    rule: Callable[[Any], Any] = stdp
    cells: Mapping[str, CellSpec] = field(default_factory=lambda: {"enc": CellSpec("fc", "lif")})
    data: Callable[[], Sequence[Tensor]] = spikes
    epochs: int = 2
    step: Callable[[Any, Tensor, int], Any] = whole  # runs a batch, returns inputs and `loss`
    prepare: Callable[[Any, Any], object] = nothing  # network and rule, before cells are there
    # What else happens: "batch" (before it), "ran" (after it, before the rule), "updated",
    # "epoch" (at its end), "end".
    on: Mapping[str, At] = field(default_factory=dict)
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None  # of the loss, for all hosts
    carry: bool = False  # whether batches are a stream
    every: int = 1  # batches between updates
    scale: float | Callable[[int], float] = 1.0  # of updates, or of the one after a batch
    call: bool = True  # the rule
    update: bool = True  # apply, but in a fit
    inputs: tuple[str, ...] = ()  # names of the rule's inputs
    callback: Mapping[str, Any] = field(default_factory=dict)  # more options of the callback
    learners: Callable[[], list[pl.Callback]] = list  # more callbacks
    health: bool = True  # whether it is watched

    def at(self, event, net, rule, i):
        if event in self.on:
            self.on[event](net, rule, i)


# ---------------------------------------------------------------------- hosts
def loop(p, net, rule, batch, evaluate, update):
    optimizer = p.optimizer(net) if p.optimizer else None
    i = 0
    for _ in range(p.epochs):
        for x in p.data():
            p.at("batch", net, rule, i)
            with batch():
                given = dict(p.step(net, x, i) or {})
                p.at("ran", net, rule, i)
            loss = given.pop("loss", None)
            if optimizer is not None and loss is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            if p.call:
                evaluate(**given)
            i += 1
            if p.update and i % p.every == 0:
                update(scale=p.scale(i) if callable(p.scale) else p.scale)
            p.at("updated", net, rule, i - 1)
        p.at("epoch", net, rule, i)
    p.at("end", net, rule, i)
    return copy.deepcopy([net.state_dict(), rule.state_dict(), torch.get_rng_state()])


def by_hand(p):
    net = p.net()
    rule = p.rule(net)
    p.prepare(net, rule)
    for name, spec in p.cells.items():
        params = {} if spec.params is None else {"params": spec.params}
        rule.register_cell(name, spec.find(net), **params, **spec.overrides)
    return loop(p, net, rule, nullcontext, partial(rule, carry=p.carry), rule.update)


def fabric(p):
    net = p.net()
    rule = p.rule(net)
    p.prepare(net, rule)
    learner = FabricCellTrainer(rule, dict(p.cells) or None, carry=p.carry, health=p.health)
    learner.setup(net)
    left = loop(p, net, rule, learner.batch, learner.accumulate, learner.step)
    learner.release()
    return left


class Module(pl.LightningModule):
    def __init__(self, p):
        super().__init__()
        self.net, self.p = p.net(), p
        self.rule = [p.rule(self.net)]  # not a submodule
        self.automatic_optimization = p.optimizer is not None or p.every > 1
        self.i, self.outputs = 0, []

    def on_train_batch_start(self, batch, batch_idx):
        self.p.at("batch", self.net, self.rule[0], self.i)

    def training_step(self, batch, batch_idx):
        given = self.p.step(self.net, batch, self.i)
        self.p.at("ran", self.net, self.rule[0], self.i)
        self.i += 1
        if self.p.optimizer is None and self.automatic_optimization:
            return None
        return given

    def configure_optimizers(self):
        return self.p.optimizer(self.net) if self.p.optimizer else None


class After(pl.Callback):
    """Does what happens after updates; it stands behind the learner."""

    def on_train_batch_end(self, trainer, module, outputs, *_):
        module.outputs.append(copy.deepcopy(outputs))
        module.p.at("updated", module.net, module.rule[0], module.i - 1)

    def on_train_epoch_end(self, trainer, module):
        module.p.at("epoch", module.net, module.rule[0], module.i)


def callback(p):
    module = Module(p)
    rule = module.rule[0]
    p.prepare(module.net, rule)
    cells = {
        name: CellSpec(f"net.{s.connection}", f"net.{s.neuron}", s.params, s.overrides)
        for name, s in p.cells.items()
    }
    options = {"input_keys": p.inputs, "carry": p.carry, "lr": p.scale, "health": p.health}
    if p.every > 1:
        options["apply_every_n_batches"] = p.every
    use = CellTrainerCallback(rule, cells or None, **{**options, **p.callback})
    run = trainer(None, use, *p.learners(), After(), max_epochs=p.epochs)
    run.fit(module, loader(p.data()))
    p.at("end", module.net, rule, module.i)
    states = [each.state_dict() for each in (module, use, *run.optimizers)]
    return copy.deepcopy([run.global_step, *states, torch.get_rng_state(), module.outputs])


RUN = {HAND: by_hand, CALLBACK: callback, FABRIC: fabric}


# ---------------------------------------------------------------------- programs of one host
ENC = {"enc": CellSpec("fc", "lif")}


def alone(add):
    """Makes decorators that add a program, one for each host."""

    def of(host):
        return lambda *told, **more: lambda run: add(*told, alone=run, hosts=(host,), **more)

    return map(of, EVERYWHERE)


class Lit(Net, pl.LightningModule):
    """The layer; ``step`` is what a training step does besides, ``more`` are other modules."""

    def __init__(self, step=nothing, optimizers=nothing, automatic=False, **more):
        super().__init__(**more)
        self.automatic_optimization = automatic
        self.step, self.made = step, optimizers

    def forward(self, x):
        self.lif.reset()
        return super().forward(x)

    def training_step(self, batch, batch_idx):
        self(batch)
        return self.step(self, batch, batch_idx)

    def configure_optimizers(self):
        return self.made(self)


def local(module):
    """Returns the layer's own UpdateOptimizer."""
    return UpdateOptimizer(module.fc.parameters())


def second(inputs=INPUTS, low=0.0, high=0.35):
    fc = uniform(nn.Linear(inputs, 4, bias=False), low, high)
    return {"fc2": fc, "lif2": LIF(4, time_dim=0)}


def run_second(module, x):
    """Runs the other layer, from rest."""
    module.lif2.reset()
    module.lif2(module.fc2(x))


def step_exported(module, x, i):
    """Hands changes over to an optimizer of a fit, which steps."""
    module.optimizers().zero_grad()
    module.trainer.callbacks[0].updates_as_gradients()
    module.optimizers().step()


def constrained(*constraints):
    """Returns a preparation that registers constraints."""

    def prepare(net, rule):
        for each in constraints:
            attach_updater(net.fc, "weight").register_constraint(each)

    return prepare


BOXED = {"prepare": constrained(Clamp(0.0, 1.0))}


class Deep(Net):
    def __init__(self):
        super().__init__(**second(OUTPUTS, 0.2, 0.9))

    def forward(self, x):
        return self.lif2(self.fc2(super().forward(x)))


def delayed(**options):
    net = Net(fc=DelayedLinear(INPUTS, OUTPUTS, 5.0, time_dim=0, **options))
    net.fc.weight.requires_grad_(False).fill_(0.3)
    return net


def restores(event):
    """Loads the first weights again at an event."""
    first = {}

    def keep(net, rule):
        first.update(copy.deepcopy(net.fc.state_dict()))

    def load(net, rule, i):
        net.fc.load_state_dict(first)

    return {"prepare": keep, "on": {event: load}}


def fit(module, *callbacks, data=None):
    trainer(None, *callbacks, max_epochs=2).fit(module, loader(data))


def loader(data=None):
    """Returns batches as a loader, which knows their size if they are of one shape."""
    data = list(spikes() if data is None else data)
    if len({each.shape for each in data}) > 1:
        return DataLoader(data, batch_size=None)
    return DataLoader(torch.cat(data), batch_size=len(data[0]))


def learner(rule=None, cells=None, **options):
    return CellTrainerCallback(rule or stdp(), ENC if cells is None else cells, **options)


# ---------------------------------------------------------------------- loops
def registered():
    """Returns the layer, and a rule that has its cell."""
    net, rule = Net(), stdp()
    rule.register_cell("enc", Cell(net.fc, net.lif))
    return net, rule


def windows(net, rule, batches=24):
    """Runs batches, and calls the rule after each."""
    for i, x in enumerate(spikes(batches)):
        whole(net, x, i)
        rule(carry=False)
        yield i


def exported(kind=torch.optim.SGD, lr=1.0, step=True, zero=True, early=False):
    """Hands changes over to an optimizer, or forgets a part of it."""
    net, rule = registered()
    optimizer = kind(net.fc.parameters(), lr=lr)
    for _i in windows(net, rule):
        if zero:
            optimizer.zero_grad()
        updates_as_gradients(rule.updater_of("enc"))
        if early:
            optimizer.zero_grad()
        if step:
            optimizer.step()


def set_up():
    """Returns the layer, and a learner that is set up."""
    net, use = Net(), FabricCellTrainer(stdp(), ENC)
    use.setup(net)
    return net, use


def recorded(net, use, batches=24):
    """Runs batches, each of which the learner records."""
    for i, x in enumerate(spikes(batches)):
        with use.batch():
            whole(net, x, i)
        yield i


# ---------------------------------------------------------------------- what is said
class Said(NamedTuple):
    """What a program of one host or several has said and left."""

    warnings: list[warnings.WarningMessage]
    lines: list[str]
    error: Exception | None
    left: Any  # the states, outputs and random numbers in the end

    @property
    def texts(self):
        return [str(each.message) for each in self.warnings]


class Lines(logging.Handler):
    def __init__(self):
        super().__init__(logging.INFO)
        self.lines = []

    def emit(self, record):
        text = record.getMessage()
        if text.startswith("Local learning"):
            rows = [each for each in text.splitlines()[1:] if each.endswith(".")]
            self.lines += [each for each in rows if not each.startswith("Sums over spikes ran")]


def ours(found):
    """Whether a warning is this package's, and not a remark of Lightning or torch."""
    text = str(found.message)
    return issubclass(found.category, RuntimeWarning) or " should " in text


def run(p, host):
    """Runs a program to its end, and until everything of it is deleted."""
    torch.manual_seed(0)
    logger, handler = logging.getLogger("lightning_accum"), Lines()
    level, error, left = logger.level, None, None
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings(record=True) as found, pytest.MonkeyPatch.context() as patch:
            warnings.simplefilter("always")
            if not p.health:
                patch.setattr(RuleTrainer, "default_events", None)
            try:
                left = RUN[host](p) if p.alone is None else p.alone()
            except Exception as raised:
                if p.error is None:
                    raise
                error = raised.with_traceback(None)
                with suppress(AttributeError):
                    error.__context__ = None
            gc.collect()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return Said([each for each in found if ours(each)], handler.lines, error, left)

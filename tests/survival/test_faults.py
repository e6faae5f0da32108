"""Whatever fails in a fit, and wherever: nothing stays behind, and the next fit goes as if new."""

import copy
import gc
import sys
import tracemalloc
import weakref

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import Probe, hooks, trainer
from interrupts import PACKAGE, Interrupts, ends
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import STDP, CellSpec, Clamp, RuleTrainer, Updater, attach_updater
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.callbacks._cell_host import CellHost
from lightning_accum.nn import LIF
from lightning_accum.observe import Monitor
from lightning_accum.optim import UpdateOptimizer, updates_as_gradients

BROKEN = set()
REFERENCES = {}  # by the weights at the beginning


def stage(name):
    if name in BROKEN:
        raise OSError(f"on purpose: {name}")


@pytest.fixture(autouse=True)
def _whole():
    yield
    BROKEN.clear()
    sys.settrace(None)


# ---------------------------------------------------------------------------- every stage
class Neurons(nn.Module):
    def __init__(self):
        super().__init__()
        self.lif = LIF(4, tc_mem=10.0, time_dim=0)
        self.time_dim = 0

    def forward(self, x):
        stage("inside forward")
        self.lif.reset()
        return (self.lif(x),)  # in a tuple, for a picker to find


class Net(pl.LightningModule):
    """Learns weight and bias by a rule, and a head by backpropagation."""

    def __init__(self):
        super().__init__()
        self.save_hyperparameters()
        generator = torch.Generator().manual_seed(1)
        self.fc, self.neurons, self.head = nn.Linear(6, 4), Neurons(), nn.Linear(4, 2)
        for param in self.parameters():
            param.data = torch.rand(param.shape, generator=generator) * 0.4
        self.fc.requires_grad_(False)
        updater = attach_updater(self.fc)
        updater.weight.fullbound(bounded, 1.0, 0.0)
        updater.register_constraint(constrained, "weight")

    def training_step(self, batch, batch_idx):
        stage("step")
        (spikes,) = self.neurons(self.fc(batch[0].transpose(0, 1)))
        loss = nn.functional.cross_entropy(self.head(spikes.mean(0)), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.neurons(self.fc(batch[0].transpose(0, 1)))

    def configure_optimizers(self):
        return torch.optim.SGD(self.head.parameters(), lr=0.01)


def bounded(param, pos, neg, max, min):
    stage("bound")
    return (max - param) * pos - (param - min) * neg


def constrained(param):
    stage("constraint")


def reduced(values, dim):
    stage("reduce")
    return values.mean(dim)


def picked(value):
    stage("pick")
    return value[0]


class Failing(STDP):
    def terms(self, window):
        if window.total:  # which makes it a rule that is asked in every window
            stage("rule")
        return super().terms(window)


class Host(CellHost):
    def exchange(self, ids=None):
        stage("exchange")
        super().exchange(ids)

    def state_dict(self):
        stage("state")
        return super().state_dict()


class Logger(DummyLogger):
    def log_metrics(self, *args, **kwargs):
        stage("log")


class Disk(TorchCheckpointIO):
    def save_checkpoint(self, *args, **kwargs):
        stage("save")
        super().save_checkpoint(*args, **kwargs)


def parameters(net):
    return net.fc.weight.detach().clone(), net.fc.bias.detach().clone()


def loader(batch_size=4):
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(12, 5, 6, generator=generator) < 0.4).float()
    return DataLoader(TensorDataset(x, torch.arange(12) % 2), batch_size=batch_size)


def callback(**options):
    how = {"time_dim": 0, "batch_reduction": reduced, "picker": picked}
    rule = RuleTrainer(Failing(0.02, -0.015), **how)
    cells = {"enc": CellSpec("fc", "neurons", ("weight", "bias"))}
    use = CellTrainerCallback(rule, cells, summary=False, **options)
    use.host = Host(rule, cells, use.host.carry, use.host.nonfinite)
    return use


def fit(run, net):
    run.fit(net, loader(), loader(6))


def breaks(name, run, net):
    BROKEN.add(name)
    with pytest.raises(OSError, match=f"on purpose: {name}"):
        fit(run, net)
    BROKEN.clear()


def is_clean(net, use):
    """Whether no hook or reference of ours is left."""
    return hooks(net) == 0 and use._fit is None


def same(one, other):
    pairs = zip(one, other, strict=True)
    return all(torch.equal(a, b) if isinstance(a, Tensor) else a is b for a, b in pairs)


def reference(folder, net):
    """The weights before and after every batch of a fit that nothing disturbs."""
    begun = torch.cat([each.flatten() for each in parameters(net)]).numpy().tobytes()
    if begun not in REFERENCES:
        notes = Probe("on_train_batch_end", lambda _, module: parameters(module))
        fit(trainer(folder, callback(), notes), copy.deepcopy(net))
        REFERENCES[begun] = [parameters(net), *notes.found]
    return REFERENCES[begun]


def fits_again(folder, net, use):
    """What has been through a failure learns as what has not."""
    net.train()
    expected = reference(folder, net)
    assert not same(expected[0], expected[-1])
    fit(trainer(folder, use), net)
    assert same(parameters(net), expected[-1])
    assert is_clean(net, use)


STAGES = ["before forward", "inside forward", "after forward", "pick", "step", "reduce", "rule"]
STAGES += ["exchange", "bound", "constraint", "log", "save", "state"]


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("at", [0, 1])
def test_a_stage_that_fails(name, at, tmp_path):
    net, use = Net(), callback()
    states = reference(tmp_path, net)

    class Breaks(pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, i):
            if i == at:
                BROKEN.add(name)

    saves = pl.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=1, save_top_k=-1)
    before = net.neurons.register_forward_pre_hook(lambda *_: stage("before forward"))
    after = net.neurons.register_forward_hook(lambda *_: stage("after forward"))
    options = {"logger": Logger(), "plugins": [Disk()], "enable_checkpointing": True}
    run = trainer(tmp_path, Breaks(), use, saves, **options)
    with pytest.raises(OSError, match=f"on purpose: {name}"):
        fit(run, net)
    before.remove(), after.remove(), BROKEN.clear()
    assert is_clean(net, use)
    assert any(same(parameters(net), state) for state in states[at : at + 2])
    applied = name in ("constraint", "log", "save", "state")
    assert same(parameters(net), states[at + applied])
    fits_again(tmp_path, net, use)


@pytest.fixture
def _no_collector():
    """Keeps the garbage collector, whose exceptions nobody sees, from running lines of ours."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


ERRORS = (MemoryError, KeyboardInterrupt)
# Each line of those that register hooks, check a connection, and count what was applied.
FILES = ["health/probes", "health/watch", "cells/trainer", "engine/vjp", "updates/updater"]


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("lines", [*range(4), *FILES])
def test_a_fit_that_is_interrupted_at_any_line(lines, tmp_path, caplog):
    states, counter = reference(tmp_path, Net()), Interrupts()
    net, use = Net(), callback()
    ends(lambda: fit(trainer(tmp_path, use), net), counter)
    if isinstance(lines, int):
        total = sys.maxsize - counter.left
        end = total - total // 50  # a second fit may run a few lines less than the first one
        points = [(n,) for n in range(1 + lines * total // 40, end, total // 10)]
    else:
        places = [place for place in counter.seen if place[0] == f"{PACKAGE}/{lines}.py"]
        if lines == "health/watch":  # which fails as a whole: a first and a last line is enough
            both = ({place[:2]: place for place in turned} for turned in (places, places[::-1]))
            places = [place for of_functions in both for place in of_functions.values()]
        points = [(1, place) for place in places]
    assert points
    for i, (n, *at) in enumerate(points):
        tracer = Interrupts(n, ERRORS[i % 2], *at)
        caplog.clear()
        net, use = Net(), callback()
        run = trainer(tmp_path, use)
        ended = ends(lambda: fit(run, net), tracer)  # noqa: B023
        where = tracer.where
        assert where, at
        assert is_clean(net, use), where
        if ended:
            assert any(same(parameters(net), state) for state in states), where
        else:  # where a check of local learning fails, the fit goes on without it
            assert tracer.error is MemoryError, where
            assert "A check of local learning failed" in caplog.text, where
            assert same(parameters(net), states[-1]), where
        if not at:
            fits_again(tmp_path, net, use)


def by_sum(updater):
    updater.weight, updater.bias = torch.full((2, 3), 0.25), torch.full((2,), 0.25)


def by_product(updater):
    sides = torch.full((1, 2), 0.5), torch.full((1, 3), 0.5)
    updater.weight.pending.add_products([(*sides, 1.0)])


def in_parts(updater):
    updater(scale={"weight": 0.5, "bias": 2.0})


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("pend", [by_sum, by_product])
@pytest.mark.parametrize("apply", [Updater.__call__, in_parts, updates_as_gradients])
@pytest.mark.parametrize("error", ERRORS)
def test_an_apply_that_is_interrupted_at_any_line(pend, apply, error):
    """All parameters of an updater change and nothing is pending, or all is and none changes."""

    def fresh():
        fc = nn.Linear(3, 2)
        for param in fc.parameters():
            nn.init.constant_(param, 0.5)
        updater = attach_updater(fc)
        pend(updater)
        if apply is not updates_as_gradients:  # which runs no constraint
            updater.register_constraint(Clamp(0.0, 10.0))
        return fc

    def state(fc):
        updater = attach_updater(fc)
        found = [None if x is None else x.clone() for p in fc.parameters() for x in (p, p.grad)]
        return [updater.weight.empty, updater.bias.empty, *found]

    known, whole, counter = fresh(), fresh(), Interrupts()
    apply(attach_updater(known))  # what is found out once is known
    before = state(whole)
    ends(lambda: apply(attach_updater(whole)), counter)
    after = state(whole)
    assert after[:2] == [True, True]
    outcomes = set()
    for n in range(1, sys.maxsize - counter.left + 1):
        fc, tracer = fresh(), Interrupts(n, error)
        assert ends(lambda: apply(attach_updater(fc)), tracer), tracer.where  # noqa: B023
        found = [same(state(fc), before), same(state(fc), after)]
        assert any(found), tracer.where
        outcomes.add(found.index(True))
    assert outcomes == {0, 1}


# ---------------------------------------------------------------------------- lives of other things
def test_the_same_trainer_goes_on_after_a_failure_and_a_model_that_is_dropped_is_gone(tmp_path):
    net, use = Net(), callback()
    run = trainer(tmp_path, use, max_epochs=2)
    breaks("rule", run, net)
    net.train()
    expected = reference(tmp_path, net)
    run.fit_loop.max_epochs = run.current_epoch + 1
    fit(run, net)
    assert any(same(parameters(net), state) for state in expected[1:])
    assert is_clean(net, use)
    breaks("bound", run := trainer(tmp_path, use), net)
    gone = weakref.ref(net.fc)
    del net, run
    gc.collect()
    assert gone() is None
    fits_again(tmp_path, Net(), use)


@pytest.mark.filterwarnings("ignore:Cell `enc` is dropped:RuntimeWarning")
def test_a_connection_that_is_deleted_in_the_middle_of_a_batch(tmp_path):
    class Replaces(Net):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            if batch_idx == 1:
                self.fc = nn.Linear(6, 4).requires_grad_(False)
            return loss

    net, use = Replaces(), callback()
    with pytest.raises(RuntimeError, match="no longer exists"):
        fit(trainer(tmp_path, use), net)
    assert is_clean(net, use)
    fits_again(tmp_path, Net(), use)


def test_thirty_fits_in_one_process_hold_no_more_memory_than_nine(tmp_path):
    """Of one model and one callback, of new models, and of new callbacks too."""

    def held():
        gc.collect()
        kinds = [type(thing) for thing in gc.get_objects()]
        bases = Monitor, Tensor, pl.LightningModule, UpdateOptimizer
        return hooks(net), *(sum(issubclass(kind, base) for kind in kinds) for base in bases)

    def allocated():
        gc.collect()
        ours = tracemalloc.Filter(True, f"{PACKAGE}/*")
        statistics = tracemalloc.take_snapshot().filter_traces([ours]).statistics("filename")
        return sum(statistic.size for statistic in statistics)

    net, use = Net(), callback()
    tracemalloc.start()
    try:
        for i in range(11):
            for model, learner in ((net, use), (Net(), use), (Net(), callback())):
                fit(trainer(tmp_path, learner), model)
            if i == 2:
                before, size = held(), allocated()
        assert held() == before
        assert allocated() <= size + 20_000  # less than an object and its dictionary for each fit
    finally:
        tracemalloc.stop()

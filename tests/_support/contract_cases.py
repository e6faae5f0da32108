"""One factory for every public class: a line in `CASES`, or for a rule in `RULES`, adds a class."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from accumulator_cases import CASES as STREAMS
from accumulator_cases import Product
from torch import nn

import lightning_accum as la
from lightning_accum import accumulators, functional, metrics, observe, rules
from lightning_accum import nn as lann
from lightning_accum.observe.reducer import Latest
from lightning_accum.optim import UpdateOptimizer


def nothing(obj):
    pass


class Case(NamedTuple):
    """How an object is made, what it does in step ``i``, and how a copy is bound to its modules."""

    make: Callable[[], Any]
    run: Callable[[Any, int], Any]
    rebind: Callable[[Any], None] = nothing


def rand(i, *shape):
    generator = torch.Generator("cpu").manual_seed(i)
    return torch.rand(shape, generator=generator, device="cpu").to(torch.get_default_device())


def raster(i, *shape):
    return (rand(i, *shape) < 0.5).float()


class Gate(la.Updatable, nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((2, 2), 0.5))

    def forward(self, x):
        return x @ self.weight


class Spike(nn.Module):
    def forward(self, x):
        return (x > 0.4).to(x.dtype)


class World(nn.Module):
    """Things that are copied and saved together, as in a model and its callbacks."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


class Optimized(World):
    optimizer: UpdateOptimizer

    def get_extra_state(self):
        return self.optimizer.state_dict()

    def set_extra_state(self, state):
        self.optimizer.load_state_dict(state)


class Plain(la.CellTrainer):
    """Accumulates a rate wherever a neuron fired."""

    def forward(self):
        for name, (cell, _) in self.named_cells:
            post = self.get_monitor(name, "post").peek()
            cell.updater.weight = 0.1 * post.float().mean(0)[:, None]


# ---------------------------------------------------------------------------- updates
def middle(stacked, dim):
    return stacked.median(dim).values


def accumulator(reduction="mean"):
    acc = la.Accumulator()
    acc.reduction(reduction)
    acc.fullbound("power", 1.0, 0.0, power=2.0)
    return acc


def accumulate(acc, i):
    acc.accumulate(rand(i, 2, 2), rand(i + 1, 2, 2))
    return acc(torch.full((2, 2), 0.5))


def gate(**parts):
    model = Gate()
    return World(model=model, updater=la.attach_updater(model, nonfinite="skip"), **parts)


def constrained(constraint):
    world = gate()
    world.updater.register_constraint(constraint)
    return world


def update(world, i):
    """Adds twice, and applies what was left pending by the step before with the first."""
    updater = la.get_updater(world.model)
    updater.weight = rand(i, 2, 2), rand(i + 1, 2, 2)
    updater()
    updater.weight = torch.full((2, 2), torch.nan) if i % 2 else rand(i + 2, 2, 2)
    return torch.stack((world.model.weight.detach(), updater.weight.pos.to(world.model.weight)))


def optimized():
    model = Gate()
    world = Optimized(model=model, updater=la.attach_updater(model))
    world.optimizer = UpdateOptimizer(model.parameters(), lr=0.5, updaters=[world.updater])
    return world


def step(world, i):
    la.get_updater(world.model).weight = rand(i, 2, 2)
    world.optimizer.param_groups[0]["lr"] *= 0.9
    world.optimizer.step()
    la.get_updater(world.model).weight = rand(i + 1, 2, 2)
    return world.model.weight.detach()


# ---------------------------------------------------------------------------- observing
def monitored(kind, attr, **options):
    norm = nn.BatchNorm1d(2)
    return World(model=norm, monitor=kind(norm, attr, observe.WindowRecorder(), **options))


def watch(world, i):
    world.model(rand(i, 3, 2).to(world.model.weight.dtype))
    return world.monitor.dump()


def backward(module, x):
    """Runs a module with a backward pass; no mode of the caller keeps it from a graph."""
    with torch.inference_mode(False), torch.enable_grad():
        y = module(x.clone())
        y.square().sum().backward()
    return y.detach()


def watch_gradient(world, i):
    backward(world.model, rand(i, 3, 2).to(world.model.weight.dtype))
    return world.monitor.dump()


def watch_anew(world):
    world.monitor.bind(world.model)
    world.monitor.register()


def observe_(reducer, i):
    reducer(rand(i, 3, 2))
    return reducer.dump()


# ---------------------------------------------------------------------------- learning
def learner(what, post=False, delays=False, neuron=None, **parts):
    trainer = la.RuleTrainer(what) if isinstance(what, la.Rule) else what
    model = la.Serial(nn.Linear(3, 2, bias=False), Spike() if neuron is None else neuron)
    nn.init.constant_(model.connection.weight, 0.3)
    if delays:
        model.connection.register_buffer("delay", torch.tensor([[0.0, 1.0, 2.0]] * 2))
    updater = la.attach_updater(model.connection)
    world = World(model=model, trainer=trainer, updater=updater, **parts)
    learn_anew(world)
    if post:
        trainer.add_monitor("cell", "post", "neuron", observe.OutputMonitor.partialconstructor())
    return world


def readout():
    return nn.Linear(2, 2, bias=False)


def by_eprop(feedback, **options):
    def make():
        out, neuron = readout(), lann.SurrogateLIF(2, beta=0.5)
        return learner(la.EProp(0.3, feedback(out), **options), neuron=neuron, readout=out)

    return make


def learn_anew(world):
    if hasattr(world, "readout") and hasattr(world.trainer.rule.feedback, "bind"):
        world.trainer.rule.feedback.bind(world.readout)
    name = "register_cell" if isinstance(world.trainer, la.RuleTrainer) else "add_cell"
    getattr(world.trainer, name)("cell", world.model.cell)


def learn(world, i, **options):
    """Leaves a window half recorded, traces carried, and a change pending."""
    dtype = world.model.connection.weight.dtype
    rule = getattr(world.trainer, "rule", None)
    run = backward if isinstance(rule, (la.OTTT, la.STLLR)) else nn.Module.__call__
    for t in range(2):
        run(world.model, raster(2 * i + t, 4, 3).to(dtype))
    if type(world.trainer) is not la.CellTrainer:
        world.trainer(**inputs_of(world.trainer, i), **options)
    if i:
        world.trainer.update()
    run(world.model, raster(i, 4, 3).to(dtype))
    return world.model.connection.weight.detach()


def inputs_of(trainer, i):
    rule = getattr(trainer, "rule", None)
    if isinstance(rule, (la.MSTDP, la.MSTDPET)):
        return {"reward": 0.5}
    return {"error": rand(i, 4, 2)} if isinstance(rule, (la.EProp, la.DeltaRule)) else {}


def fed_back(make):
    def both():
        out = readout()
        return World(readout=out, feedback=make(out))

    return both


def feed_back(world, i):
    """Feeds an error back, and follows a readout that learns."""
    signal = world.feedback(rand(i, 4, 2).to(world.readout.weight.dtype))
    with torch.no_grad():
        world.readout.weight.mul_(0.9).add_(rand(i, 2, 2).to(world.readout.weight))
    world.feedback.follow()
    return signal


def bind_anew(world):
    world.feedback.bind(world.readout)


# ---------------------------------------------------------------------------- modules
def forward(shape, most=2.0):
    def run(module, i):
        state = module.state_dict().items()
        dtype = next((each.dtype for key, each in state if "_extra_state" not in key), None)
        return module(most * rand(i, *shape).to(dtype))

    return run


def inhibited(inhibition):
    return lann.LIF(3, time_dim=0, inhibition=inhibition)


def measure(metric, i):
    metric.update(rand(i, 3), rand(i + 1, 3), pos=rand(i, 3))
    return metric.compute()


def count(metric, i):
    metric.update(raster(i, 5, 2, 3))
    return metric.compute()


def classify(metric, i):
    metric.update(rand(i, 4, 6), torch.tensor([0, 1, 2, 0]))
    return metric.predict(rand(i + 1, 5, 6))


class Writer:
    """Writes nowhere."""

    def add_scalar(self, name, value, step):
        pass


def piped():
    """Pipes whose accumulators count steps, or iterations."""
    source = accumulators.Source()
    loss = source ** accumulators.Select(value=0)
    mean = loss ** accumulators.Mean() ** accumulators.Scalar(Writer(), "mean")
    mean ** accumulators.Max() ** float
    loss ** accumulators.Except(accumulators.Mean(), begin=1) ** float
    return source


def send(source, i):
    """Sends three items, and ends every other iteration."""
    for value in rand(i, 3):
        source((value,))
    if i % 2:
        source.end()
    streams = [m for m in source.modules() if isinstance(m, accumulators.StreamAccumulator)]
    steps = [m.step for m in source.modules() if isinstance(m, accumulators.Scalar)]
    return [*(each.result_so_far() for each in streams), *steps]


RATES = la.Hebb, la.AntiHebb, la.Covariance, la.BCM, la.Oja, la.Sanger, la.WTAHebb, la.SoftHebb
PAIRS = la.STDP, la.MSTDP, la.MSTDPET, la.WeightDependentSTDP
GAUSSIAN = functional.GaussianKernel(0.3)
ALONE = (
    *(rule(0.3) for rule in (*RATES, la.InhibitorySTDP)), *(rule(0.3, -0.1) for rule in PAIRS),
    la.Homeostasis(0.3, 100.0), la.KernelSTDP(GAUSSIAN), la.TripletSTDP(0.3, 0.2, -0.1, -0.2),
)  # fmt: skip
RELEASED = la.MSTDPET(0.3, -0.1, reward=la.Neuromodulator(9.0, -0.1, 2.0))
CLOPATH = la.Clopath(0.3, -0.1, -0.1, 0.2, u_ref=0.5)
RULES = {
    **{type(rule).__name__: partial(learner, rule) for rule in ALONE},
    "DelayAdjustedSTDP": partial(learner, la.DelayAdjustedSTDP(0.3, -0.1), delays=True),
    "DelayAdjustedKernelSTDP": partial(learner, la.DelayAdjustedKernelSTDP(GAUSSIAN), delays=True),
    "Neuromodulator": partial(learner, RELEASED),
    "Clopath": lambda: learner(CLOPATH, neuron=lann.SurrogateLIF(2, beta=0.5)),
    "DeltaRule": lambda: learner(la.DeltaRule(0.3), neuron=lann.LeakyIntegrator(2)),
    "EProp": by_eprop(
        lambda out: rules.LearnedFeedback(out, 2, 2), tc_readout=9.0, regularization=0.1
    ),
    "OTTT": lambda: learner(la.OTTT(0.3), neuron=lann.SurrogateLIF(2, gradient="step")),
    "STLLR": lambda: learner(la.STLLR(0.3, 0.2), neuron=lann.SurrogateLIF(2, gradient="step")),
}
SEQUENCE = (5, 2, 3)
CASES = {
    "Accumulator": Case(accumulator, accumulate),
    **{
        f"Accumulator, {name}": Case(partial(accumulator, fn), accumulate)
        for name, fn in {"sum": "sum", "amax": "amax", "own": middle}.items()
    },
    "Updater": Case(gate, update), "Updatable": Case(Gate, forward((2, 2))),
    "Clamp": Case(lambda: constrained(la.Clamp(0.2, 0.8)), update),
    "Normalize": Case(lambda: constrained(la.Normalize(1.0)), update),
    "Latest": Case(Latest, observe_), "WindowRecorder": Case(observe.WindowRecorder, observe_),
    **{kind.__name__: Case(partial(monitored, kind, attr), run, watch_anew) for kind, attr, run in (
        (observe.InputMonitor, "", watch), (observe.OutputMonitor, "", watch),
        (observe.StateMonitor, "running_var", watch), (observe.GradientMonitor, "", watch_gradient),
    )},
    "Cell": Case(
        lambda: la.Cell(Gate(), Spike()), lambda c, i: c.neuron(c.connection(rand(i, 2, 2)))
    ),
    "CellSpec": Case(
        lambda: la.CellSpec("0", "1", overrides={"lr_post": 0.1}),
        lambda spec, i: len(repr(spec.find(nn.Sequential(Gate(), Spike())))),
    ),
    "Layer": Case(
        lambda: la.Layer({"a": Gate()}, {"n": Spike()}),
        lambda layer, i: layer(a=rand(i, 2, 2).to(layer.connections["a"].weight))["n"],
    ),
    "Populations": Case(
        lambda: la.Populations({"E": lann.LIF(3)}, {("E", "E"): lann.Linear(3, 3)}, delay=2),
        forward((4, 3)),
    ),
    "Serial": Case(lambda: la.Serial(Gate(), Spike()), forward((2, 2))),
    "CellTrainer": Case(lambda: learner(la.CellTrainer(), post=True), learn, learn_anew),
    "CellTrainer, own": Case(lambda: learner(Plain(), post=True), learn, learn_anew),
    "RuleTrainer": Case(
        lambda: learner(la.RuleTrainer(la.STDP(0.3, -0.1), dt=2.0)), learn, learn_anew
    ),
    **{name: Case(make, learn, learn_anew) for name, make in RULES.items()},
    "DirectFeedback": Case(fed_back(lambda out: rules.DirectFeedback()), feed_back),
    "SymmetricFeedback": Case(fed_back(rules.SymmetricFeedback), feed_back, bind_anew),
    "RandomFeedback": Case(fed_back(lambda out: rules.RandomFeedback(2, 2)), feed_back),
    "LearnedFeedback": Case(
        fed_back(lambda out: rules.LearnedFeedback(out, 2, 2, decay=0.1)), feed_back, bind_anew
    ),
    "UpdateOptimizer": Case(
        optimized, step, lambda world: world.optimizer.attach([la.get_updater(world.model)])
    ),
    "FastWeights": Case(
        lambda: la.FastWeights(nn.Linear(3, 2), la.STDP(0.2, -0.1), nn.Tanh(), time_dim=0),
        forward((4, 2, 3)),
    ),
    "Linear": Case(lambda: lann.Linear(3, 2), forward((4, 3))),
    "Conv1d": Case(lambda: lann.Conv1d(3, 2, 2), forward((4, 3, 5))),
    "Conv2d": Case(lambda: lann.Conv2d(3, 2, 2), forward((4, 3, 3, 3))),
    "Conv3d": Case(lambda: lann.Conv3d(3, 2, 2), forward((4, 3, 2, 2, 2))),
    "LIF": Case(lambda: lann.LIF(3, refractory=1.0, time_dim=0), forward(SEQUENCE)),
    "AdaptiveLIF": Case(lambda: lann.AdaptiveLIF(3, theta_plus=0.5, time_dim=0), forward(SEQUENCE)),
    "SurrogateLIF": Case(
        lambda: lann.SurrogateLIF(3, beta=0.5, recurrent=True, time_dim=0), forward(SEQUENCE)
    ),
    "DelayedLinear": Case(lambda: lann.DelayedLinear(3, 2, 4.0, time_dim=0), forward(SEQUENCE)),
    "SparseLinear": Case(lambda: lann.SparseLinear(3, 2, 0.6), forward((4, 3))),
    "Rewire": Case(
        lambda: World(rewire=lann.Rewire(0.5, start=0.1), model=lann.SparseLinear(3, 2, 0.6)),
        lambda world, i: (world.rewire(world.model), world.model.dense().detach())[1],
    ),
    "RecurrentLinear": Case(lambda: lann.RecurrentLinear(3), forward((4, 3))),
    "ShortTermPlasticity": Case(
        lambda: lann.ShortTermPlasticity(3, 0.3, 30.0, 50.0, time_dim=0),
        forward(SEQUENCE, most=1.0),
    ),
    "LeakyIntegrator": Case(lambda: lann.LeakyIntegrator(3, time_dim=0), forward(SEQUENCE)),
    **{
        kind.__name__: Case(kind, lambda surrogate, i: surrogate.derivative(2 * rand(i, 5)))
        for kind in (functional.ArcTan, functional.FastSigmoid, functional.Triangular)
    },
    "WinnerTakeAll": Case(lambda: inhibited(lann.WinnerTakeAll(1)), forward(SEQUENCE)),
    "Competition": Case(
        lambda: lann.Competition(Spike(), 3, theta_plus=0.5, time_dim=0), forward(SEQUENCE)
    ),
    "ActorCriticError": Case(
        lambda: rules.ActorCriticError(0.9, decay=0.8),
        lambda error_of, i: error_of(rand(i, 4, 2, 3), torch.tensor([[0, 1]] * 4), rand(i, 4, 2)),
    ),
    "RewardBaseline": Case(
        lambda: lann.RewardBaseline(0.8, contexts=2),
        lambda baseline, i: baseline(rand(i, 3), torch.tensor([0, 1, i % 2])),
    ),
    "LateralInhibition": Case(lambda: inhibited(lann.LateralInhibition(0.3)), forward(SEQUENCE)),
    "PoissonEncoder": Case(
        lambda: lann.PoissonEncoder(5, 500.0, seed=1), lambda encoder, i: encoder(rand(i, 2, 3))
    ),
    "PoissonEncoder, norm": Case(
        lambda: lann.PoissonEncoder(5, 500.0, seed=1, norm=2.0),
        lambda encoder, i: encoder(rand(i, 2, 3, 4)),
    ),
    "UpdateStatistics": Case(metrics.UpdateStatistics, measure),
    "FiringStatistics": Case(metrics.FiringStatistics, count),
    "MaxRateClassifier": Case(lambda: metrics.MaxRateClassifier(6, 3), classify),
    **{
        name: Case(make, lambda accumulator, i: accumulator(rand(i, 2)))
        for name, make in {n: c.make for n, c in STREAMS.items()}.items()
    },
    "CustomAccumulator": Case(Product, lambda accumulator, i: accumulator(rand(i, 2))),
    "Source": Case(piped, send),
}  # fmt: skip

# Why a case is not compared with the CPU on any other device, and on those of a kind.
APART = {
    "PoissonEncoder": "each device draws its own spikes, if it has a generator",
    "PoissonEncoder, norm": "each device draws its own spikes, if it has a generator",
}
APART_ON = {
    "xla": {
        "StateMonitor": "the BatchNorm of PyTorch/XLA averages biased variances",
        "Rewire": "PyTorch/XLA 2.9 aborts in `index_select` by indices that `sort` returned",
    }
}


def why_apart(name, kind):
    return None if kind == "cpu" else {**APART, **APART_ON.get(kind, {})}.get(name)


# Public names that are no classes to make objects of: bases, protocols, values, functions, errors.
EXEMPT = {"LocalLearningWarning", "show_versions", "init_from_data_",
    "Feedback", "Inhibition", "Monitor", "NonFiniteUpdateError", "RateFit", "Reducer",
    "Rule", "Term", "attach_updater", "change_of", "fit_rates", "get_updater", "learn_online",
    "reward_modulated", "why_step_by_step",
    "Log", "Pipe", "Scalar", "Select", "Split", "StreamAccumulator", "synchronize",
}  # fmt: skip
PUBLIC = {
    name
    for package in (la, lann, metrics, rules, accumulators)
    for name in package.__all__
} | {
    "GradientMonitor", "UpdateOptimizer",
}  # fmt: skip

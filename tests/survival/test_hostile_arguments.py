"""Wrong arguments, to everything public: it works, or it says which argument is wrong.

Targets are those of ``__all__``. ``LIGHTNING_ACCUM_FUZZ=1000`` looks further.
"""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
import os
import random
import re
import signal
from collections import deque
from contextlib import nullcontext
from math import inf, nan
from typing import Any, NamedTuple

import pytest
import torch
from contract_cases import CASES, Spike, Writer, inputs_of
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn

import lightning_accum as la
from lightning_accum import accumulators, callbacks, functional, metrics, observe, optim
from lightning_accum import nn as lann

EXAMPLES = int(os.environ.get("LIGHTNING_ACCUM_FUZZ", "40"))
fuzz = settings(
    derandomize=True, max_examples=EXAMPLES, database=None, suppress_health_check=list(HealthCheck)
)
PACKAGES = (la, observe, functional, lann, optim, accumulators, metrics, callbacks)

# Made anew for every call, for what is called may write to them.
HOSTILE = [
    functools.partial(copy.copy, value)
    for value in [
        *(None, True, False, 0, 1, 2, -1, 0.5, -0.5, 1e-320, nan, inf, -inf, 1e308, 2**63),
        *(10**400, 1j, "", "weight", "__class__", "reducer.__dict__", "a\nb", b"weight", ()),
        *((1, -2), ["weight", "nothing"], {"weight": 1.0}, object(), nn.Linear, len, torch.int8),
    ]
]
SHAPES = [(0,), (0, 3), (2, 0), (3,), (2, 2), (5, 2, 3), (1, 2, 1, 2, 1, 2)]
HOSTILE += [
    lambda: lambda *args, **kwargs: None,
    nn.ReLU,
    *(functools.partial(torch.ones, shape) for shape in SHAPES),
    lambda: torch.tensor(0.5),
    lambda: torch.full((2, 2), nan),
    lambda: torch.full((2, 3), inf),
    lambda: -torch.ones(2, 2),
    lambda: torch.full((2, 2), -3, dtype=torch.int8),
    *(
        functools.partial(torch.ones, 2, 2, dtype=dtype)
        for dtype in (torch.bool, torch.complex64, torch.float16, torch.float64)
    ),
    lambda: torch.eye(2).to_sparse(),
    lambda: torch.ones(2, 2, device="meta"),
    lambda: torch.ones(2, 2, requires_grad=True) * 2,
    lambda: torch.ones(1).expand(2, 2),
]


# What is told by a warning is told.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*should be at least a step", "ignore:The weight decay of .* should multiply",
    "ignore:Argument `lr` of `Noam` should be a factor", "ignore:A source should have a pipe",
    "ignore:Argument `winners` should be less than the number of neurons",
    "ignore:.*should be called with what its terms read",
    "ignore:Initializing zero-element tensors", "ignore:.Variance.*should have more than",
)  # fmt: skip


KEPT = deque(maxlen=9)


def kept(module):
    """What is held weakly has to be held by someone."""
    KEPT.append(module)
    return module


def weight():
    return nn.Parameter(torch.full((2, 2), 0.5))


ONLINE = []


def online():
    """A trainer; the layer that it learns is the last of ``ONLINE``."""
    layer = la.Serial(nn.Linear(3, 2, bias=False), lann.LIF(2))
    trainer = la.RuleTrainer(la.STDP(0.1, -0.1))
    trainer.register_cell("cell", layer.cell)
    ONLINE[:] = [layer]
    return trainer


# What to begin from where there is no default: by class and argument, or by argument alone.
GOOD = {
    key: make
    for make, keys in [
        *((functools.partial(copy.copy, value), keys) for value, keys in [
            ("running_var", "StateMonitor.attr"), (1, "Except.begin"), (5, "steps"),
            (5, "SparseLinear.draw.seed"),
            (0.5, "LateralInhibition.strength SparseLinear.density decay"),
            ("E", "Populations.source Populations.target"), ("0", "CellSpec.connection"),
            ("1", "CellSpec.neuron"), ("loss", "Log.name name"), (0.0, "Clamp.min Accumulator.min"),
            (0.1, "lr_post lr_pre theta_pos theta_neg lr_post_pair lr_post_triplet lr_pre_pair "
             "lr_pre_triplet lr rate"),
            ("lif", "OnlineProbe.layers"), ({}, "defaults incoming_state"), ((0.9, 0.99), "betas"),
            (1e-8, "eps"), (20.0, "target target_rate tc"), (("running_mean",), "names"),
            (3, "size num_classes DelayedLinear.in_features DelayedLinear.out_features length "
             "SparseLinear.in_features SparseLinear.out_features"),
            (100.0, "max_rate"), (6, "num_neurons"), ("sharp", "Accumulator.bound"),
            (1.0, "Accumulator.max item value"), (4.0, "DelayedLinear.max_delay"),
            ("power", "Accumulator.upperbound.bound Accumulator.lowerbound.bound"),
            (("weight",), "Updater.params Updatable.params"), ("weight", "Updater.name"),
            (None, "Accumulator.keep_parts Updatable.updater Cell.updater"),
            ("skip", "Updater.nonfinite"),
            ("a", "Layer.connection"), ("n", "Layer.neuron"), ("neuron", "CellTrainer.attr"),
            ("cell", "CellTrainer.name CellTrainer.cell RuleTrainer.name"),
            ("new", "CellTrainer.add_cell.name RuleTrainer.register_cell.name"),
            (True, "CellTrainer.recording Monitor.recording"), ({0: 1.0}, "data"),
            ((1.0,), "StreamAccumulator.args Except.args Source.item"), ([1.0, 2.0], "items"),
            ("post", "CellTrainer.del_monitor.name"), ("Something should be.", "text"),
            (torch.sum, "fn"), (torch.clone, "move"),
            (la.STDP(0.1, -0.1), "RuleTrainer.rule FastWeights.rule change_of.rule"),
        ]),
        *((functools.partial(torch.ones, shape), keys) for shape, keys in [
            ((1, 3), "Populations.x"), ((2,), "RewardBaseline.reward"),
            ((4, 3, 5), "SequenceConv.x"),
            ((5, 2, 3), "learn_online.inputs Competition.x DelayedLinear.x Neurons.x "
             "SurrogateLIF.x LeakyIntegrator.x ShortTermPlasticity.x "
             "activity values spikes post pre FastWeights.x"),
            ((2, 3), "PoissonEncoder.x poisson_encode.x RecurrentLinear.spikes"),
            ((3, 3), "change_of.weight init_from_data_.weight init_from_data_.samples"),
            ((5, 2),
             "Accumulator.post Accumulator.pre ActorCriticError.reward ActorCriticError.value"),
            ((2, 2), "UpdateStatistics.before UpdateStatistics.after before after "
             "update_statistics.pos update_statistics.neg"),
            ((4, 3), "Linear.x SparseLinear.x"), ((4, 2), "Feedback.error inputs"),
            ((5,), "Surrogate.x ArcTan.x FastSigmoid.x Triangular.x"),
            ((4, 6), "MaxRateClassifier.rates"),
        ]),
        (lambda: {"a": nn.Linear(3, 2)}, "Layer.connections"),
        (lambda: {"n": Spike()}, "Layer.neurons"),
        (lambda: {"E": lann.LIF(3)}, "Populations.neurons"),
        (lambda: {("E", "E"): lann.Linear(3, 3)}, "Populations.connections"),
        (online, "learn_online.trainer"),
        (lambda: ONLINE[0], "learn_online.layer"),
        (lambda: functional.GaussianKernel(0.3), "kernel"),
        (lambda: kept(nn.BatchNorm1d(2)), "module Monitor.module"),
        (lambda: nn.Linear(3, 2), "connection"),
        (lambda: lann.SparseLinear(3, 2, 0.5), "Rewire.connection"),
        (lambda: torch.tensor([True, False, False, False]), "removed"),
        (Spike, "neuron"),
        (lambda: [weight()], "params"),
        (accumulators.Mean, "accumulator accumulators"),
        (lambda: la.Clamp(0.0), "Updater.fn"),
        (lambda: torch.empty(5, 2, 3), "trace.out reverse_trace.out"),
        (lambda: kept(nn.Linear(2, 2)), "readout"),
        (lambda: kept(nn.Sequential(nn.Linear(2, 2))), "model"),
        (lambda: nn.Sequential(nn.Linear(3, 2), Spike()), "CellSpec.model"),
        (observe.OutputMonitor.partialconstructor, "CellTrainer.monitor"),
        (lambda: torch.tensor([0, 1, 2, 0]), "MaxRateClassifier.labels"),
        (lambda: True, "CellTrainer.recording Monitor.keep_hook"),
        (lambda: torch.tensor(0.0), "StreamAccumulator.default"),
        (lambda: (torch.ones(2, 2), torch.zeros(2, 2)), "PersistentMetric.args"),
        (lambda: la.Cell(kept(nn.Linear(3, 2)), kept(Spike())), "CellTrainer.add_cell.cell"),
        (lambda: {"params": [weight()]}, "param_group"),
        (lambda: [kept(nn.Linear(2, 2, bias=False)).weight], "UpdateOptimizer.params"),
        (lambda: [la.attach_updater(KEPT[-1], "weight")], "UpdateOptimizer.updaters"),
        (lambda: torch.full((2, 2), 0.5), "param"),
        (lambda: torch.full((2, 2), 0.1), "pos neg"),
        (lambda: torch.eye(2), "observation"),
        (lambda: la.Cell(nn.Linear(3, 2), Spike()), "cell"),
        (Writer, "writer"),
        (lambda: la.RuleTrainer(la.STDP(0.1, -0.1)), "cell_trainer trainer"),
    ]
    for key in keys.split()
}  # fmt: skip

# Keywords of any name.
OTHERS = {"Select": {"value": 0}}


class Argument(NamedTuple):
    name: str
    many: bool  # `*args`, given as a tuple
    required: bool
    place: Any = inspect.Parameter.empty  # where it comes only by place: its default


def arguments(function):
    """Those of a signature; a class's ``**options`` are the keywords of its bases."""
    found = {}
    bases = [function]
    if inspect.isclass(function):
        bases = [base for base in function.__mro__ if "__init__" in vars(base) and ours(base)]
    for base in bases:
        every = inspect.signature(base).parameters.values()
        for p in every:
            if p.kind is p.VAR_KEYWORD or (base is not bases[0] and p.kind is not p.KEYWORD_ONLY):
                continue
            many = p.kind is p.VAR_POSITIONAL
            required = p.default is p.empty and not many
            place = ... if required else p.default
            by_place = {"place": place} if p.kind is p.POSITIONAL_ONLY else {}
            found.setdefault(p.name, Argument(p.name, many, required, **by_place))
        if not any(p.kind is p.VAR_KEYWORD for p in every):
            break
    return found


def ours(thing):
    return str(getattr(thing, "__module__", "")).startswith("lightning_accum")


def good(owner, argument):
    """What to begin from: nothing, where there is a default."""
    name, owners = argument.name, (owner, owner.split(".")[0], owner.split(".")[-1])
    for key in (*(f"{each}.{name}" for each in owners), name if argument.required else ""):
        if key in GOOD:
            return {argument.name: GOOD[key]()}
    assert not argument.required, f"`GOOD` should have an entry for `{argument.name}` of {owner}"
    return {}


def start(owner, found):
    given = {k: v for argument in found.values() for k, v in good(owner, argument).items()}
    return {**given, **OTHERS.get(owner, {})}


def make_good(target):
    found = arguments(target)
    return invoke(target, found, start(target.__name__, found))


def invoke(function, found, given):
    """Calls with arguments by name, but for those that are only by place."""
    places = []
    names = dict(given)
    for name in (name for name, argument in found.items() if argument.many and name in given):
        values = names.pop(name)
        places = [names.pop(n) for n in list(found)[: list(found).index(name)] if n in names]
        places += values
    by_place = [a for a in found.values() if a.place is not inspect.Parameter.empty]
    last = max((i for i, a in enumerate(by_place) if a.name in names), default=-1)
    places += [names.pop(a.name, a.place) for a in by_place[: last + 1]]
    return function(*places, **names)


# Torch's own words for what it has no room or no kernel for: they name size, layout, dtype, device.
TORCHS = (
    "alloc|memory|[Oo]verflow|too large|Storage size"
    "|[Ss]parse|not implemented for|not supported for|is not supported|(?i:meta)"
)


def refused(call, names, strict, thin=False):
    """Whether a call is refused by an argument's name, or what it gives; or raises another error.

    Python may say that a type is wrong unless it is ``strict``, and torch where that is ``thin``.
    """
    try:
        return False, call()
    except la.NonFiniteUpdateError:
        return True, None
    except (TypeError, ValueError, AttributeError, KeyError, RuntimeError) as error:
        text, kind = str(error), type(error)
        named = any(re.search(rf"\b{re.escape(name)}\b", text) for name in names)
        house = "should" in text and ("Found" in text or kind is NotImplementedError)
        ok = named or house or re.search(TORCHS, text) or (thin and kind is RuntimeError)
        if kind is not RuntimeError and not issubclass(kind, RuntimeError) and not strict:
            ok = True  # Python says which type is in the wrong place
        if text.startswith("Boolean value of Tensor"):
            ok = True  # a flag is anything that is true or false, which these are not
        if not ok:
            raise AssertionError(f"should name one of {names}: {kind.__name__}: {text}") from error
        return True, None


@pytest.fixture(autouse=True)
def _no_hang():
    """Nothing may take longer than all of it should; every warning is seen each time."""

    def stop(*_):
        raise AssertionError("hangs")

    before, always = signal.signal(signal.SIGALRM, stop), torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    torch.set_warn_always(always)


# ---------------------------------------------------------------------------- constructors
PUBLIC = {
    f"{each.__name__}.{name}".split("lightning_accum.")[-1]: getattr(each, name)
    for each in PACKAGES for name in each.__all__
}  # fmt: skip
MADE = {
    name: thing
    for name, thing in PUBLIC.items()
    if inspect.isclass(thing) and ours(thing.__init__) and not inspect.isabstract(thing)
    and not getattr(thing, "_is_protocol", False)
}  # fmt: skip


def run_reducer(reducer):
    for _ in range(3):
        reducer(torch.eye(2))
    assert reducer.peek() is not None
    reducer.dump()
    reducer.clear()
    assert reducer.peek() is None


def run_monitor(monitor):
    module = monitor.module
    module(torch.rand(3, 2))
    monitor.peek()
    monitor.deregister()


def run_rule(rule):
    run_trainer(la.RuleTrainer(rule))


def run_trainer(trainer):
    neuron, rule, time_dim = Spike(), trainer.rule, trainer.options.time_dim
    if isinstance(rule, (la.Clopath, la.EProp, la.OTTT, la.STLLR)):
        neuron = lann.SurrogateLIF(2, gradient="step", time_dim=time_dim)
    layer = la.Serial(nn.Linear(3, 2, bias=False), neuron)
    layer.connection.register_buffer("delay", torch.ones(2, 3))
    before = layer.connection.weight.detach().clone()
    try:
        trainer.register_cell("cell", layer.cell)
        lead = (4,) if time_dim is None else (5, 4)
        out = layer((torch.rand(*lead, 3) < 0.5).float())
        if isinstance(rule, (la.OTTT, la.STLLR)):
            out.sum().backward()
        trainer(**inputs_of(trainer, 0))
    except Exception:
        assert torch.equal(layer.connection.weight, before)
        raise
    assert torch.equal(layer.connection.weight, before)
    trainer.update()
    assert torch.isfinite(layer.connection.weight).all()


def run_optimizer(optimizer):
    if type(optimizer) is optim.GenericAdaptiveOptimizer:
        return  # whose step a subclass defines
    for group in optimizer.param_groups:
        if group.get("differentiable", False) is not False:
            return  # such a step is of no leaves
        for param in group["params"]:
            param.grad = torch.ones_like(param)
    for _ in range(2):
        optimizer.step()


def run_neurons(neurons):
    spikes = neurons(torch.full((2, *((2,) if neurons.time_dim == 0 else ()), 3), 0.7))
    assert ((spikes == 0) | (spikes == 1)).all()


def run_stream(stream):
    stream.update(2.0)
    stream.compute()


# How an object is used, by its class: what is accepted has to work.
USES = [
    (observe.Reducer, run_reducer),
    (observe.Monitor, run_monitor),
    (la.Rule, run_rule),
    (la.RuleTrainer, run_trainer),
    (torch.optim.Optimizer, run_optimizer),
    ((lann.LIF, lann.AdaptiveLIF, lann.SurrogateLIF), run_neurons),
    (la.FastWeights,
     lambda f: f(torch.ones(*((5, 2) if f.time_dim == 0 else (2,)), f.connection.in_features))),
    (lann.PoissonEncoder, lambda encoder: encoder(torch.rand(2, 3))),
    (lann.DelayedLinear,
     lambda x: x(torch.ones(*((5, 2) if x.time_dim == 0 else (2,)), x.weight.shape[1]))),
    (accumulators.StreamAccumulator, run_stream),
    ((la.Clamp, la.Normalize), lambda constraint: constraint(torch.rand(2, 2))),
    (la.Updater, lambda updater: (repr(updater), updater.clear(), updater())),
    (la.CellSpec, lambda spec: spec.find(nn.Sequential(nn.Linear(3, 2), Spike()))),
    (metrics.MaxRateClassifier, lambda m: m.update(torch.rand(2, 6), torch.tensor([0, 1]))),
    ((functional.ExponentialKernel, functional.GaussianKernel),
     lambda kernel: kernel(torch.linspace(-9, 9, 5))),
]  # fmt: skip


def use(thing):
    for kind, run in USES:
        if isinstance(thing, kind):
            run(thing)


@pytest.mark.parametrize("name", MADE)
def test_what_is_good_is_accepted(name):
    use(make_good(MADE[name]))


def wrong(name, found):
    """Arguments, and something hostile for each; the same in every run."""
    every = [*itertools.product(sorted(found), HOSTILE)]
    for which, make in random.Random(name).sample(every, min(EXAMPLES, len(every))):
        print(which, make)  # which a failure shows
        yield which, (make(),) if found[which].many else make()


@pytest.mark.parametrize("name", [name for name, t in MADE.items() if arguments(t)])
def test_constructors(name):
    target = MADE[name]
    found = arguments(target)
    for which, hostile in wrong(name, found):
        given = {**start(target.__name__, found), which: hostile}
        # what an optimizer may be given is torch's to say
        strict = not (issubclass(target, torch.optim.Optimizer) and which == "params")
        failed, thing = refused(functools.partial(invoke, target, found, given), [which], strict)
        if not failed:
            refused(functools.partial(use, thing), [which], False)


# ---------------------------------------------------------------------------- calls
# What only torch, torchmetrics and rules themselves call, with what they have.
INNER = {
    *("add_sum", "begin_loop", "check", "check_cell", "check_extra_state"),
    *("check_params", "check_state_dict", "complete"),
    *("end_loop", "finish_batch", "held_rate", "hold", "in_steps", "init_state"),
    *("load_state_dict", "loop_constants", "observe", "pairs", "past", "plot", "prepare", "rate"),
    *("reads", "ready_state", "receive", "required"),
    *("set_extra_state", "set_past", "states", "step_groups", "step_param", "steps_since_reset"),
    *("sync", "takes", "terms", "train", "unsync", "updater_of", "updates"),
    *("validate", "weight_range"),
}


# The table of the contract has objects in the middle of what they do; others are made here.
MAKERS = {
    name.split(".")[-1]: functools.partial(make_good, target)
    for name, target in MADE.items()
    if name.startswith(("accumulators.", "optim."))
} | {name: case.make for name, case in CASES.items()}


# Whose inputs go to modules that may be any, or to torch's own layers.
LAYERS = ("Serial", "Layer", "Linear", "SequenceConv", "RecurrentLinear", "DelayedLinear")
THIN = {f"{name}.forward" for name in LAYERS}


class Method(NamedTuple):
    case: str
    part: str
    name: str


def part_of(root, part):
    for name in part.split(".") if part else ():
        root = la.get_updater(root) if name == "()" else getattr(root, name)
    return root


def methods():
    """Every public method and property of what the table of the contract makes."""
    known = {}
    for case, make in MAKERS.items():
        root = make()
        children = [n for n, _ in root.named_children()] if isinstance(root, nn.Module) else []
        paths = ["", *children, *[f"{n}.()" for n in children if la.get_updater(part_of(root, n))]]
        for path in paths:
            seen = set(INNER)
            for base in type(part_of(root, path)).__mro__:
                for name, value in vars(base).items():
                    settable = isinstance(value, property) and value.fset is not None
                    takes = inspect.isfunction(value) and len(arguments(value)) > 1
                    if ours(base) and not name.startswith("_") and name not in seen:
                        seen.add(name)
                        if settable or takes:
                            known.setdefault(f"{base.__name__}.{name}", Method(case, path, name))
    return known


# What a CustomAccumulator takes is up to its own `forward`.
METHODS = {n: method for n, method in methods().items() if method.case != "CustomAccumulator"}
FUNCTIONS = {n: f for n, f in PUBLIC.items() if inspect.isfunction(f) and ours(f) and arguments(f)}


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
def test_calls(name):
    thin = name in FUNCTIONS or name in THIN
    for which, hostile in wrong(name, prepared(name)[2]):
        root, call, found = prepared(name)
        given, before = {**start(name, found), which: hostile}, weights(root)
        if refused(functools.partial(invoke, call, found, given), [which], False, thin)[0]:
            assert all(map(torch.equal, before, weights(root)))


# What refuses whatever it is given, good arguments too: it needs more than those alone.
REFUSES = {
    "CellTrainer.forward": "should process a training step",  # a subclass does
    "StreamAccumulator.merge_state": "should be of class `EMA`, or a dictionary of",  # its own
    "PersistentMetric.merge_state": "state",
    "Except.merge_state": "should be of class `Sum`, or a dictionary of",
    "EProp.bind_model": "should be a module of the model",  # the readout is in no model
    "_OfReadout.bind_model": "should be a module of the model",
    "MaxRateClassifier.predict": "called before the ``update``",
    "RewardBaseline.forward": "should be passed if and only if the baseline has contexts",
}


# Who hands what it is given to torch, or to a module that may be any.
HANDS_ON = {"StreamAccumulator.add_state", "Surrogate.spike"}
HANDS_ON |= {"Serial.forward", "RecurrentLinear.forward"}


@pytest.mark.parametrize("name", [*FUNCTIONS, *METHODS])
def test_calls_take_good_arguments_and_no_number_or_list_for_a_tensor(name):
    """Where even good ones do not get in, hostile ones never would."""
    _, call, found = prepared(name)
    context = pytest.raises(Exception, match=REFUSES[name]) if name in REFUSES else nullcontext()
    given = start(name, found)
    with context:
        invoke(call, found, given)
    tensors = {which for which, value in given.items() if isinstance(value, torch.Tensor)}
    for which, bad in itertools.product(tensors if name not in HANDS_ON else (), ([1.0, 2.0], 1.5)):
        _, call, found = prepared(name)
        with pytest.raises(TypeError, match=rf"`(parameter\.)?{which}` should be a tensor"):
            invoke(call, found, {**start(name, found), which: bad})


def prepared(name):
    if name in FUNCTIONS:
        return None, FUNCTIONS[name], arguments(FUNCTIONS[name])
    case, path, attribute = METHODS[name]
    root = MAKERS[case]()
    part = part_of(root, path)
    if isinstance(getattr(type(part), attribute), property):
        found = {attribute: Argument(attribute, False, True)}
        return root, lambda **given: setattr(part, attribute, given[attribute]), found
    method = getattr(part, attribute)
    return root, method, arguments(method)


def weights(root):
    found = root.parameters() if isinstance(root, nn.Module) else ()
    return [param.detach().nan_to_num(7.0).clone() for param in found]


# ---------------------------------------------------------------------------- paths and activity
WORDS = ["fc", "lif", "weight", "__class__", "__dict__", "__init__", "forward", "training", "", "0"]
paths = st.lists(st.sampled_from(WORDS), max_size=4).map(".".join) | st.text(max_size=12)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.lif = nn.Linear(3, 2, bias=False), Spike()

    def forward(self, x):
        return self.lif(self.fc(x))


@fuzz
@given(connection=paths, neuron=paths, param=paths)
@example("fc.__dict__", "lif", "weight")
@example("__class__", "lif", "weight")
@example("fc", "lif.__class__.__init__", "weight")
@example("fc", "lif", "__class__")
@example("fc", "lif", "forward")
@example("fc", "lif", "training")
def test_a_spec_leads_to_modules_and_parameters_alone(connection, neuron, param):
    net = Net()
    known = {path for path, _ in net.named_modules()}
    spec = la.CellSpec(connection, neuron, params=(param,))
    rule = la.RuleTrainer(la.STDP(0.1, -0.1))

    def once():
        cell = spec.find(net)
        rule.register_cell("cell", cell, params=spec.params)
        return cell

    failed, cell = refused(once, ["connection", "neuron", "params"], True)
    if failed:
        assert not list(rule.cells)
        assert la.get_updater(net.fc) is None
    else:
        assert {connection, neuron} <= known
        assert param in dict(cell.connection.named_parameters(recurse=False))


@fuzz
@given(attr=paths)
@example(attr="__class__")
@example(attr="__dict__")
@example(attr="lif.forward.__globals__")
def test_what_is_watched_is_a_module(attr):
    net = Net()
    refused(lambda: observe.OutputMonitor(net, attr), ["attr"], True)
    assert sum(len(m._forward_hooks) for m in net.modules()) == 0  # the monitor is gone again


class Exchange(nn.Module):
    """A connection that takes any dtype, as its own."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((3, 3), 0.5))

    def forward(self, x):
        return x @ self.weight.to(x.dtype) if x.dtype != torch.bool else x.flip(-1)


ACTIVITY = [0.0, 1.0, -1.0, 0.5, 1e30, float("nan"), float("inf")]
DTYPES = [torch.float32, torch.float64, torch.bool, torch.complex64]


@fuzz
@given(
    values=st.lists(st.sampled_from(ACTIVITY), min_size=6, max_size=6),
    dtype=st.sampled_from(DTYPES),
    spikes=st.booleans(),
    kind=st.sampled_from([la.STDP, la.Hebb, la.Oja, la.BCM, la.MSTDP]),
    reward=st.one_of(st.floats(), st.none(), st.sampled_from(["good", torch.ones(7)])),
)
def test_activity_of_any_kind(values, dtype, spikes, kind, reward):
    layer = la.Serial(Exchange(), Spike() if spikes else nn.Identity())
    rule = la.RuleTrainer(make_good(kind))
    rule.register_cell("cell", layer.cell)
    before = layer.connection.weight.detach().clone()

    def once():
        layer(torch.tensor(values, dtype=torch.float64).reshape(2, 3).to(dtype))
        rule(reward=reward)
        rule.update()

    failed, _ = refused(once, ["reward"], False)
    after = layer.connection.weight.detach()
    assert torch.isfinite(after).all()
    assert not failed or torch.equal(after, before)

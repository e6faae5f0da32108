"""What is rejected says what should be, what was found and how to mend it, and nothing changes."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import fields
from functools import partial
from typing import Any

import pytest
import torch
from rule_trainers import trainer_of
from subtests import turns
from test_defaults import rules
from torch import nn

import lightning_accum as la
from lightning_accum import Cell, CellSpec, RuleTrainer, Serial, Term, get_updater
from lightning_accum.callbacks._cell_host import CellHost
from lightning_accum.engine import CustomChange
from lightning_accum.functional import ExponentialKernel, GaussianKernel
from lightning_accum.nn import LIF, AdaptiveLIF, DelayedLinear, SparseLinear, SurrogateLIF
from lightning_accum.rules import ActorCriticError, RandomFeedback, SymmetricFeedback

ERRORS = (TypeError, ValueError, AttributeError, KeyError, RuntimeError)
STEPS, BATCH, INPUTS, NEURONS, CLASSES = 7, 3, 4, 5, 2
READOUT = nn.Linear(NEURONS + 1, CLASSES)


class Own(la.Rule):
    """Returns what a test gives it."""

    make: Any = None
    lr: float = 0.1

    def terms(self, window):
        return self.make(window)


class Verdict(Own):
    def check(self):
        super().check()
        return self.lr < 1


class Complex(nn.Module):
    """Neurons whose potential is complex."""

    membrane = None

    def forward(self, x):
        self.membrane = torch.complex(x, x)
        return (x > 0.5).to(x.dtype)


class Late(nn.Module):
    """Neurons that have a potential only once they were called."""

    def forward(self, x):
        self.membrane = x.cumsum(0)
        return (self.membrane > 1.0).float()


def fold(x):
    return x.mean(0)


def eprop(feedback=None, **options):
    return trainer_of(la.EProp, 0.1, feedback, **options, time_dim=0)


def stdp(**options):
    return trainer_of(la.STDP, 0.1, -0.1, **options)


def voltage(**options):
    return trainer_of(la.Clopath, 1e-3, -1e-3, 0.1, 0.6, **{"time_dim": 0, **options})


# ---------------------------------------------------------------- what is made of arguments
class _Online:
    """Arguments of ``learn_online`` that suit each other."""

    def __init__(self):
        self.layer = Serial(nn.Linear(5, 3), LIF(3))
        self.rule = stdp()
        self.rule.register_cell("cell", self.layer.cell)
        self.x = torch.ones(4, 2, 5)

    def __call__(self, rule=None, inputs=None, **options):
        x = self.x if inputs is None else inputs
        la.learn_online(rule or self.rule, self.layer, x, **options)


OUT, NO_ACTION = torch.zeros(4, 2, 3), torch.zeros(4, 2).long()
REDUCE = r"should be a callable `fn\(stacked, dim\)`. Found `"
MADE = [
    (lambda: stdp(tc_pst=1.0), "`tc_pst`: did you mean `tc_post`"),
    (lambda: stdp(tau_pre=20.0), r"Found `tau_pre`: did you mean `tc_pre`\?"),
    (lambda: la.STDP(lr=0.1), r"Found `lr`: did you mean `lr_post` and `lr_pre`\?"),
    (lambda: la.Oja(learning_rate=0.1), r"Found `learning_rate`: did you mean `lr`\?"),
    (lambda: stdp(tau=20.0), r"did you mean `tc_post` and `tc_pre`\?"),
    (lambda: stdp(pairing="reduced"), "`trace_mode` should be 'nearest' for `pairing = 'reduced'`"),
    *((lambda f=f: stdp(batch_reduction=f), REDUCE) for f in (fold, lambda: 0, lambda a, b, c: a)),
    (lambda: la.Homeostasis(0.1, target_rate=-1.0), "in Hz, at least 0"),
    (lambda: once(RuleTrainer(la.Homeostasis(0.1, target_rate=600.0), dt=2.0)),
     "between 0 and 500 Hz"),
    (lambda: la.WeightDependentSTDP(0.1, 0.1, w_min=2.0), "`w_min` should be below"),
    (lambda: once(stdp(trace_mode="nearest", pairing="reduced"),
                  Cell(SparseLinear(2, 2, 1.0), nn.Identity())), r"a matrix \[out, in\]"),
    *(
        (lambda n=name: la.DelayAdjustedSTDP(0.1, -0.1, **{n: 0.1}),
         f"`{name}`, which does not say .* last: .*Inferno")
        for name in ("lr_pos", "lr_neg", "tc_pos", "tc_neg")
    ),
    (Verdict, r"`Verdict.check` should raise .* it returns True"),
    (lambda: SymmetricFeedback(nn.ReLU()), r"`readout`.*`ReLU`"),
    (lambda: SymmetricFeedback("head")(torch.ones(2)), "at `head`"),
    (lambda: SymmetricFeedback("readouts").bind_model(nn.Sequential(nn.ReLU())),
     r"`readout` should be the dotted path of .* Found `readout = 'readouts'`"),
    (lambda: la.rules.LearnedFeedback("readouts", 2, 3).bind_model(nn.Sequential(nn.ReLU())),
     r"`readout` should be the dotted path of .* Found `readout = 'readouts'`"),
    (lambda: SymmetricFeedback("0").bind_model(nn.Sequential(nn.ReLU())),
     "`readout` should be an `nn.Linear`.* Found `ReLU`"),
    (lambda: SymmetricFeedback(READOUT).bind_model(nn.Sequential(nn.ReLU())),
     "`readout` of `SymmetricFeedback` should be a module of the model"),
    (lambda: RandomFeedback(5, 3)(torch.ones(2, 2)), r"\[\.\.\., 5\].*Found .*\(2, 2\)"),
    *(
        (lambda o=outputs, a=actions: ActorCriticError()(o, a, torch.zeros(4, 2)), words)
        for outputs, actions, words in (
            (OUT[..., 0], NO_ACTION, r"actions \+ 1"),
            (OUT[..., :1], NO_ACTION, r"actions \+ 1"),
            (OUT, NO_ACTION.T, r"actions \+ 1"),
            (OUT, NO_ACTION.float(), "integers"),
            (OUT, NO_ACTION.bool(), "integers"),
            (OUT, NO_ACTION + 2, "from 0 to 1"),
            (OUT, NO_ACTION - 2, "or -1 in steps without"),
            (OUT.long(), NO_ACTION, "outputs"),
        )
    ),
    (lambda: ActorCriticError()(OUT, NO_ACTION, torch.zeros(2)), r"one shape \[T, B\]"),
    (lambda: ActorCriticError()(OUT, NO_ACTION, OUT[..., 0], torch.zeros(3)), "`following`"),
    (lambda: _Online()(update_every=0), "update_every"),
    (lambda: _Online()(inputs=[1.0]), "inputs"),
    (lambda: _Online()(inputs=torch.ones(5)), "inputs"),
    (lambda: _Online()(rule=stdp()), r"trainer.*register_cell"),
    (lambda: stdp().register_cell("c", Cell(nn.Linear(2, 2), nn.ReLU()), lr_prae=0.0),
     r"Found `lr_prae`: did you mean `lr_pre`\?"),
    (lambda: stdp().register_cell("c", Cell(nn.Linear(2, 2), nn.ReLU()), batch_reduction=fold),
     r"lambda x, dim: x.mean"),
    (lambda: CellSpec("1", "0", params=("weight",)).find(nn.Sequential(nn.Linear(2, 1), nn.ReLU())),
     r"in its neuron, a Linear, and not in its .* swap"),
    *(
        (lambda wrong=wrong: CellHost(RuleTrainer(la.Hebb(0.1)), {"c": wrong}), words)
        for wrong, words in (
            ({"connection": "0"}, r"Found \['connection'\] for `c`\."),
            ({"connection": "0", "neuron": "1", "param": ()}, "for `c`: did you mean `params`"),
            ({"connection": "0", "neuron": "1", "connexion": "0"}, "did you mean `connection`"),
            (("0", "1"), r'such as `{"c": CellSpec\("fc", "lif"\)}`. Found `tuple` for `c`'),
            ({}, r"Found \[\] for `c`"),
        )
    ),
]  # fmt: skip


# What is made, and values of its arguments that are refused by their names.
NAN, INF = float("nan"), float("inf")
TIMES = "tc_post", "tc_pre", "width"
KERNELS = {ExponentialKernel: {"lr_post": 1.0, "lr_pre": 1.0}, GaussianKernel: {"lr": 1.0}}
VALUES = [
    (stdp, {"dt": [-1.0], "tc_pre": [0.0], "backend": ["fast"], "pairing": ["all"],
            "picker": [3], "params": [()], "batch_reduction": [3]}),
    (partial(la.STDP, lr_pre=0.1), {"lr_post": [NAN]}),
    (partial(la.InhibitorySTDP, 0.1), {"tc": [0.0], "target_rate": [-1.0]}),
    (eprop, {"regularization": [NAN], "surrogate": [3], "feedback": [3]}),
    (partial(la.WTAHebb, 0.1), {"winners": [0]}),
    (partial(la.SoftHebb, 0.1), {"temperature": [0.0]}),
    (partial(la.BCM, 0.1), {"tc_threshold": [0.0]}),
    (partial(la.WeightDependentSTDP, 0.1, 0.1), {"power_pos": [-1.0]}),
    (voltage, {"u_ref": [0.0]}),
    (partial(la.Clopath, 0.1, -0.1, theta_pos=0.6), {"theta_neg": [INF]}),
    *((each, {"kernel": [0.1]}) for each in (la.KernelSTDP, la.DelayAdjustedKernelSTDP)),
    (partial(trainer_of, la.DelayAdjustedKernelSTDP, GaussianKernel(0.1)), {"dt": [-1.0]}),
    (partial(trainer_of, la.DelayAdjustedSTDP, 0.1, 0.1), {"batch_reduction": [3]}),
    (partial(RandomFeedback, neurons=3), {"classes": [0]}),
    (partial(RandomFeedback, 2, 3), {"scale": [-1.0]}),
    (partial(la.rules.LearnedFeedback, "readout", 2, 3), {"decay": [1.0]}),
    (ActorCriticError, {"gamma": [1.1, NAN], "decay": [-0.1]}),
    (partial(la.MSTDP, 0.1, 0.1), {"reward": [5.0]}),
    *(
        (partial(kind, **good), {f.name: [NAN, INF, -INF, *[0.0, -1.0] * (f.name in TIMES)]})
        for kind, good in KERNELS.items()
        for f in fields(kind)
    ),
    (la.Neuromodulator, {"tc": [0.0, INF]}), (partial(la.Neuromodulator, 5.0), {"gain": [NAN]}),
]  # fmt: skip


@turns("make, values", VALUES)
def test_values(make, values):
    for name, value in [(name, value) for name, every in values.items() for value in every]:
        with pytest.raises(ERRORS, match=rf"`{name}` should .*Found ") as caught:
            make(**{name: value})
        found = str(caught.value).partition("Found ")[2]
        assert str(value) in found or f"`{type(value).__name__}`" in found, found


@pytest.mark.parametrize(("call", "words"), MADE, ids=[words[:40] for _, words in MADE])
def test_arguments(call, words):
    with pytest.raises(ERRORS, match=words):
        call()


# --------------------------------------------------------------------- what is registered
def delayed(delay):
    fc = nn.Linear(3, 2, bias=False)
    fc.delay = delay
    return fc


def foreign(library, base):
    kind = type(base, (nn.Identity,), {"__module__": f"{library}.neurons"})
    return type("Own", (kind,), {})()


def adjusted():
    return RuleTrainer(la.DelayAdjustedSTDP(0.1, -0.1))


NATIVE = r"keeps none under `membrane`: take a `lightning_accum.nn.Surrog"
KEEPS = r"take a `.*SurrogateLIF` with `keep_states=True`"
LIKE = "`delay` should name delays of the shape of .*`delay = 'delay'`, "


def unsuited():
    """Rules and neurons, in some rows also connections, and what registering them says."""
    native = partial(SurrogateLIF, 5, time_dim=0)
    ottt = partial(trainer_of, la.OTTT, 0.1, time_dim=0)
    by_hand = RuleTrainer(la.OTTT(0.1, membrane=lambda out: out, threshold=1.0))
    sequences, linear, same = LIF(5, time_dim=0), nn.Linear(3, 2, bias=False), nn.Identity()
    forgets = native(gradient="step", keep_states=False)
    yield from [
        (stdp(), sequences, "give the trainer `time_dim=0`"),
        (stdp(), LIF(5, dt=2.0), r"cell `c`, 2.0 ms. Found `dt = 1.0`: give"),
        (stdp(time_dim=0), foreign("snntorch", "SpikingNeuron"), "once per step"),
        (stdp(time_dim=0), foreign("norse", "SNNCell"), "`time_dim=None`"),
        (stdp(), foreign("norse", "SNN"), "`time_dim=0`, .* once per sequence"),
        (by_hand, nn.ReLU(), "`tc_mem` should be given for cell `c`, in ms"),
        (eprop(tc_mem=3.0), native(), "Argument `tc_mem` should be `tc_mem` of the neuron"),
        (eprop(threshold=0.3), native(), r"`threshold` should be that of the neuron.*1\.0"),
        (eprop(), sequences, f"a `LIF` {NATIVE}"), (ottt(), AdaptiveLIF(5, time_dim=0), NATIVE),
        *((rule, forgets, KEEPS) for rule in (eprop(), ottt(), voltage())),
        (voltage(), sequences, "a membrane for `Clopath` to record.*take a `.*Surrog"),
        (eprop(tc_mem=20.0, threshold=1.0), Late(),
         "if `forward` sets `self.membrane`, begin with `self.membrane = None` in its `__init"),
        *(
            (ottt(), native(gradient=each),
             rf"Found `gradient = '{each}'`: make it as `SurrogateLIF\(\.\.\., gradient=\"step")
            for each in ("none", "time")
        ),
        (RuleTrainer(la.Hebb(0.1)), linear, r"in its neuron, a Linear, and not in its .* swap",
         nn.ReLU()),
        (RuleTrainer(la.Sanger(0.1)), same, r"the weight of a torch\.nn\.Linear",
         nn.Conv1d(1, 2, 2)),
        (adjusted(), same, r"`delay` should name delays .*\[2, 3\]. Found `delay", linear),
        (stdp(), LIF(2), "should have no delays, .* a DelayedLinear", DelayedLinear(3, 2, 5.0)),
        (adjusted(), same, r"`dt` should be the step of the connection .* 0.5 ms",
         DelayedLinear(3, 2, 5.0, dt=0.5)),
        (adjusted(), same, LIKE + r"\[3, 2\]:", delayed(torch.ones(3, 2))),
        (adjusted(), same, LIKE + r"\[2, 1\]:", delayed(torch.ones(2, 1))),
        (adjusted(), same, LIKE + r"\[\]:", delayed(torch.ones(()))),
        (adjusted(), same, LIKE + "float:", delayed(3.0)),
        (adjusted(), same, LIKE + "NoneType:", delayed(None)),
    ]  # fmt: skip


def test_cells_that_do_not_suit():
    for rule, neuron, words, *own in unsuited():
        (connection,) = own or [nn.Linear(INPUTS, NEURONS)]
        with pytest.raises((ValueError, AttributeError), match=words):
            rule.register_cell("c", Cell(connection, neuron))
        assert not list(rule.cells)
        assert get_updater(connection) is get_updater(neuron) is None


def test_cells_that_suit_are_registered():
    for neuron, options in (
        (LIF(1, dt=0.1), {"dt": 0.1}),
        (type("Foreign", (nn.Identity,), {"dt": 0.001})(), {}),  # in seconds
        (foreign("norse", "SNN"), {"time_dim": 0}),
        (foreign("snntorch", "SpikingNeuron"), {}),
    ):
        stdp(**options).register_cell("enc", Cell(nn.Linear(2, 1), neuron))
    stdp().register_cell("enc", Cell(nn.Linear(2, 1), LIF(1, dt=2.0)), dt=2.0)
    voltage(membrane="voltage", time_dim=None).register_cell("c", Cell(nn.Linear(2, 1), LIF(1)))
    eprop(threshold=1.0).register_cell("c", Cell(nn.Linear(2, 1), SurrogateLIF(1, time_dim=0)))
    spec = {"connection": "0", "neuron": "1", "params": ["weight"]}
    host = CellHost(RuleTrainer(la.Hebb(0.1)), {"c": spec})
    assert host.cells == {"c": CellSpec("0", "1", params="weight")}
    for fn in (torch.mean, torch.prod, lambda x, dim=0: x.mean(dim), nn.ReLU()):
        stdp(batch_reduction=fn)


def test_time_constants_below_a_step():
    def enc(rule):
        RuleTrainer(rule).register_cell("enc", Cell(nn.Linear(2, 1), nn.Identity()))

    dopamine, wide = la.Neuromodulator(0.5), ExponentialKernel(0.1, -0.1, 0.02)
    for words, make in [
        ("`tc_pre` of cell `enc`", lambda: enc(la.STDP(0.1, -0.1, tc_pre=0.02))),
        ("`reward.tc` of cell `enc`", lambda: enc(la.MSTDP(0.1, -0.1, reward=dopamine))),
        ("`tc_post` of the kernel", lambda: enc(la.KernelSTDP(wide))),
        ("`width` of the kernel", lambda: enc(la.KernelSTDP(GaussianKernel(0.1, 0.01)))),
        ("`tc_mem` of LIF", lambda: LIF(1, tc_mem=0.5)),
        ("`refractory` of LIF", lambda: LIF(2, refractory=0.4)),
        ("`tc_theta` of AdaptiveLIF", lambda: AdaptiveLIF(2, tc_theta=0.1)),
    ]:
        with pytest.warns(UserWarning, match=f"{words}.* should be at least a step"):
            make()
    LIF(1, tc_mem=1.0)  # what is as long as a step is not warned of
    enc(la.STDP(0.1, -0.1, tc_pre=1.0, tc_post=1.0))
    for kernel in (ExponentialKernel(0.1, -0.1, 1.0, 1.0), torch.sign):
        enc(la.KernelSTDP(kernel))


# -------------------------------------------------------------------------- what is called
def shown(rule, neuron=None):
    """A cell that has been shown a sequence."""
    torch.manual_seed(0)
    cell = Cell(nn.Linear(INPUTS, NEURONS), neuron or SurrogateLIF(NEURONS, time_dim=0))
    nn.init.uniform_(cell.connection.weight)
    rule.register_cell("hidden", cell)
    cell.neuron(cell.connection(torch.ones(STEPS, BATCH, INPUTS)))
    return cell


error = torch.ones


def fed(neurons=NEURONS):
    return eprop(RandomFeedback(CLASSES, neurons))


WRONG = {
    "none": (fed, None, r"Found NoneType: call the trainer as `trainer\("),
    "nothing for neurons": (eprop, None, r"\[T, B, 5\] or \[B, 5\].* Found NoneType"),
    "a number": (eprop, 0.5, "Found float: call the trainer"),
    "swapped": (fed, error(BATCH, STEPS, CLASSES),
                r"\[3, 7, 2\]: time is its first dimension, so call `error.transpose\(0, 1\)`"),
    "too few": (eprop, error(STEPS - 1, BATCH, NEURONS), r"with 7 steps .*\[6, 3, 5\]"),
    "another batch": (eprop, error(BATCH + 1, NEURONS), r"a batch of 3\. Found \[4, 5\]"),
    "an error less": (lambda: RuleTrainer(la.DeltaRule(0.1), time_dim=0), error(BATCH, 1),
                      "`DeltaRule` should .* give each output its own error"),
    "reduced": (eprop, torch.ones(()), r"Found \[\]"),
    "complex": (eprop, error(BATCH, NEURONS) * 1j, r"real\. Found torch.complex"),
    "other classes": (fed, error(BATCH, CLASSES + 1),
                      r"should have shape \[\.\.\., 2\].* of `RandomFeedback`\. Found .*\(1, 3\)"),
    "another layer": (lambda: fed(6), error(BATCH, CLASSES),
                      r"`feedback` of `EProp` should .* each of the 5 neurons\. Found 6: make it"),
    "another readout": (lambda: eprop(SymmetricFeedback(READOUT)), error(BATCH, CLASSES),
                        r"to each of the 5 neurons\. Found 6: make it for this"),
    "no readout": (lambda: eprop(SymmetricFeedback("readout")), error(BATCH, CLASSES),
                   "should have a readout at `readout`"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_an_error_that_does_not_fit_changes_nothing(name):
    make, wrong, words = WRONG[name]
    rule = make()
    cell = shown(rule)
    with pytest.raises(ERRORS, match=words):
        rule(**({} if wrong is None else {"error": wrong}))
    assert get_updater(cell.connection).weight.empty
    if "readout" in name or name == "another layer":
        return
    rule(error=error(BATCH, CLASSES if make is fed else NEURONS))
    assert not get_updater(cell.connection).weight.empty  # the window was still there


def test_complex_potentials():
    cases = [
        ("membrane", voltage()),
        ("membrane", eprop(tc_mem=10.0, threshold=0.5)),
        ("threshold", eprop(tc_mem=10.0, membrane=lambda x: x, threshold="membrane")),
    ]
    for name, rule in cases:
        cell = shown(rule, Complex())
        words = rf"The {name} of a neuron should be real\. Found torch.complex64: .*`{name}="
        with pytest.raises(TypeError, match=words):
            rule(**({"error": error(BATCH, NEURONS)} if isinstance(rule.rule, la.EProp) else {}))
        assert get_updater(cell.connection).weight.empty


def test_ottt_names_the_gradient_that_it_did_not_get():
    never = r"no backward pass has reached .*: call `backward\(\)` on"
    not_in = r"of the SurrogateLIF did not require grad in 1 of {} calls\. Let the"
    for trained, calls, words in ((True, 0, never), (False, 0, not_in), (False, 1, not_in)):
        neuron = SurrogateLIF(NEURONS, gradient="step", time_dim=0)
        rule = RuleTrainer(la.OTTT(0.1), time_dim=0)
        cell = Cell(nn.Linear(INPUTS, NEURONS).requires_grad_(trained), neuron)
        rule.register_cell("hidden", cell)
        for call in range(1 + calls):
            x = torch.ones(STEPS, BATCH, INPUTS, requires_grad=call > 0)
            spikes = neuron(cell.connection(x))
        if calls:
            spikes.sum().backward()
        with pytest.raises(ValueError, match=words.format(1 + calls)):
            rule()
        assert get_updater(cell.connection).weight.empty


# ----------------------------------------------------------------- what an own rule returns
def learn(make, outputs=4):
    """Returns the change in one window of a rule with these terms."""
    torch.manual_seed(0)
    layer = Serial(nn.Linear(4, outputs, bias=False), nn.Identity())
    rule = RuleTrainer(Own(make), time_dim=0)
    unit = rule.register_cell("enc", layer.cell)
    unit.monitors["pre"](torch.rand(6, 2, 4) < 0.5)
    unit.monitors["post"](torch.rand(6, 2, outputs) < 0.5)
    pending = rule.updater_of("enc").weight
    try:
        rule()
    except BaseException:
        assert pending.empty
        rule.clear()
        raise
    return pending.update(layer.connection.weight)


def product(window):
    return window.post.values()[0].T @ window.pre.values()[0]


NO_TERM, MATRIX = r"`Own.terms` should return Terms.*Found ", r"a tensor of shape \(4, 4\):"
TERMS = [
    (product, NO_TERM + MATRIX),
    (lambda w: [product(w)], NO_TERM + MATRIX),
    (lambda w: [Term(0.5, w.post, w.pre), None], NO_TERM + "NoneType:"),
    (lambda w: None, NO_TERM + "NoneType:"),
    (lambda w: 0.1, NO_TERM + "float:"),
    (lambda w: {"pos": Term(0.5, w.post, w.pre)}, NO_TERM + "str:"),
    (lambda w: Term(0.1, w.post, 1.0), r"`pre` of a Term.*Found `1.0`.*give `window.one`"),
    (lambda w: Term(0.1, [1.0], w.pre), r"`post` of a Term.*Found `list`.*`window.post.ones"),
    (lambda w: Term(torch.ones(2), w.post, w.pre), r"`rate` .*shape \[2\]: for .*reward_mod"),
    (lambda w: Term([1.0], w.post, w.pre), r"Argument `rate` should be a number\. Found `list`"),
    (lambda w: Term(1.0, w.pre, w.post), "`window.pre` and `window.post` exchanged"),
    (lambda w: Term(1.0, w.pre.trace(20.0), w.post), "`window.pre` and `window.post` exchanged"),
    (lambda w: Term(1.0, w.post, w.pre.trace(20.0) - 0.5), "A sum with a signal .* several Terms"),
    (lambda w: Term(1.0, w.post, 1.0 - w.pre), "A sum with a signal should be several Terms"),
    (lambda w: Term(1.0, w.post.values().mean(0), w.pre), r"\(2, 4\) for `post` and \(6, 2, 4\)"),
    (lambda w: Term(1.0, w.post, w.pre.trace(20.0, "added")), "`mode` should be .* = 'added'"),
    (lambda w: Term(w.inputs["new"], w.post, w.pre), r"with `new`.* Found \[\]: call `trainer\(n"),
    *(
        (lambda w, f=factor, s=side: Term(1.0, **{"post": w.post, "pre": w.pre.trace(20.0),
                                                  s: {"post": w.post, "pre": w.pre}[s] * f}), words)
        for side in ("post", "pre")
        for factor, words in (
            (torch.ones(2), r"Found \(2,\): give it one value per sample, `x.view"),
            (torch.ones(4), r"any dimension may be 1. Found \(4,\)"),
            (torch.ones(6, 2), r"Found \(6, 2\): give it all dimensions"),
            (torch.ones(2, 4), r"Found \(2, 4\): give it all dimensions, as `x\[None\]`"),
            (torch.ones(2, 6, 4), r"Found \(2, 6, 4\)"),
        )
    ),
]  # fmt: skip


def test_terms():
    for make, words in TERMS:
        with pytest.raises(ERRORS, match=words):
            learn(make)
    with pytest.raises(ValueError, match="exchanged"):
        learn(lambda w: Term(1.0, w.pre, w.post), outputs=3)
    with pytest.raises(ValueError, match=r"its own side\. Found \[6, 2, 3\] times \[6, 2, 4\]"):
        learn(lambda w: Term(1.0, w.post * w.pre.trace(20.0), w.pre), outputs=3)


def test_terms_that_fit():
    plain = learn(lambda w: Term(0.5, w.post, w.pre))
    for make in (
        lambda w: [Term(0.5, w.post, w.pre)],
        lambda w: (Term(0.5, w.post.values(), w.pre.values()) for _ in range(1)),
    ):
        torch.testing.assert_close(learn(make), plain)
    assert learn(lambda w: []) is None

    class Constant(CustomChange):
        def parts(self, samples, vjp):
            return torch.full((4, 4), 0.5), None

    assert learn(lambda w: Constant(2)).eq(0.25).all()  # of two samples
    assert learn(lambda w: Term(1.0, w.post, w.post.values())).any()
    whole = learn(lambda w: Term(1.0, w.post * torch.full((6, 2, 4), 3.0), w.pre.trace(20.0)))
    for factor in (3.0, torch.tensor(3.0), torch.full((1, 2, 1), 3.0), torch.full((6, 1, 4), 3.0)):
        for scaled in (lambda w, f=factor: w.post * f, lambda w, f=factor: f * w.post):
            part = learn(lambda w, s=scaled: Term(1.0, s(w), w.pre.trace(20.0)))
            torch.testing.assert_close(part, whole)


# ------------------------------------------------------------------------- who is told what
def test_a_rule_lists_its_arguments():
    for rule in rules().values():
        every = inspect.signature(rule).parameters.values()
        given = {p.name: 0.1 for p in every if p.default is p.empty}
        own = [p.name for p in every]
        near = f"{own[0]}e", f": did you mean `{own[0]}`?"
        for name, hint in (near, ("time_dim", ", an option")):
            with pytest.raises(TypeError) as caught:
                rule(**given, **{name: 0})
            text = str(caught.value)
            assert text.startswith(f"Arguments of `{rule.__name__}` should be among {own}")
            assert f"Found `{name}`{hint}" in text


def test_a_bound_that_does_not_fit_is_rejected_when_set():
    weight = la.attach_updater(nn.Linear(1, 1), "weight").weight
    one, both = lambda w, u, limit: u, lambda w, pos, neg, max, min: pos - neg
    for kind, fn, options, words in (
        ("upperbound", both, {}, r"should be callable as `bound\(param, update, limit"),
        ("fullbound", one, {}, r"callable as `bound\(param, pos, neg, max, min"),
        ("fullbound", both, {"pwer": 2.0}, "pwer"),
        ("fullbound", "power", {"pwer": 2.0}, "pwer"),
    ):
        limits = (1.0,) if kind == "upperbound" else (1.0, 0.0)
        with pytest.raises(TypeError, match=words):
            getattr(weight, kind)(fn, *limits, **options)
    assert not weight.pending.bounds
    weight.upperbound(torch.minimum.__call__, 1.0)  # a builtin cannot be looked at


def test_indices_and_integers_of_a_connection():
    for kind in (la.Oja, la.SoftHebb, la.WTAHebb):
        table, neuron, rule = nn.Embedding(4, 3), nn.ReLU(), RuleTrainer(kind(0.1))
        rule.register_cell("c", Cell(table, neuron))
        neuron(table(torch.tensor([0, 2])))
        with pytest.raises(ValueError, match="should have a rule without a constant input"):
            rule()

    class Converts(nn.Linear):
        def forward(self, x):
            return super().forward(x.to(self.weight.dtype))

    found = []
    for kind in (torch.float32, torch.uint8, torch.int64):
        fc, neuron, oja = Converts(4, 3, bias=False), nn.ReLU(), RuleTrainer(la.Oja(0.1))
        nn.init.constant_(fc.weight, 0.3)
        oja.register_cell("c", Cell(fc, neuron))
        neuron(fc(torch.arange(8).view(2, 4).to(kind)))
        oja()
        found.append(get_updater(fc).weight.update(fc.weight))
    torch.testing.assert_close(found[1:], found[:1] * 2)


def test_a_cell_that_was_added_instead_of_registered():
    fc, lif, rule = nn.Linear(3, 2, bias=False), LIF(2), stdp()
    rule.add_cell("enc", Cell(fc, lif), params=["weight"])
    lif(fc(torch.ones(1, 3)))
    with pytest.raises(RuntimeError, match=r"call `del_cell` and `register_cell\('enc', cell"):
        rule()


def test_a_bias_has_no_entry_for_each_synapse():
    layer = Serial(nn.Linear(3, 2), nn.Identity())
    layer.connection.register_buffer("delay", torch.zeros(2))
    rule = RuleTrainer(la.DelayAdjustedSTDP(0.1, -0.1), params=["bias"])
    unit = rule.register_cell("cell", layer.cell)
    unit.monitors["pre"](torch.ones(1, 3)), unit.monitors["post"](torch.ones(1, 2))
    with pytest.raises(ValueError, match=r"an entry for each synapse, shape \[2, 3\]. Found \[2\]"):
        rule()


def test_winners_that_are_not_fewer_than_neurons():
    def change(winners):
        pre, post, weight = torch.rand(1, 1, 2), torch.rand(1, 1, 3), torch.rand(3, 2)
        return la.change_of(la.WTAHebb(0.1, winners), pre, post, weight)

    with pytest.raises(ValueError, match=r"at most the number of neurons, 3. Found `winners = 4`"):
        change(4)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        change(3), change(3)
    (once,) = told
    assert "Found `winners = 3` of 3 neurons" in str(once.message)


def test_arguments_of_a_call():
    class All(la.STDP):
        def terms(self, window):
            assert dict(window.inputs) == {"reward": 1.0, "hits": 3}
            return super().terms(window)

    rule = RuleTrainer(All(0.1, -0.1))
    unit = rule.register_cell("enc", Cell(nn.Linear(3, 2), nn.Identity()))
    unit.monitors["pre"](torch.ones(1, 3)), unit.monitors["post"](torch.ones(1, 2))
    rule(reward=1.0, hits=3)
    with pytest.raises(TypeError, match="positional"):
        RuleTrainer(la.MSTDP(0.1, -0.1))(1.0)


# ----------------------------------------------------------------------------- activity
def once(rule, cell=None, **odd):
    """Calls a rule after a window of spikes, but for one value of a side."""
    unit = rule.register_cell("enc", cell or Cell(nn.Linear(2, 2), nn.Identity()))
    for value in ({}, odd, {}):
        for side in ("pre", "post"):
            unit.monitors[side](torch.full((1, 2), value.get(side, 1.0)))
    rule()


@turns("bad", [torch.nan, 0.001, -1.0, torch.inf])
@turns("side, place", [("pre", "before the connection"), ("post", "after the neuron")])
def test_what_is_no_spike_in_a_window(side, place, bad):
    rule, cell = stdp(), Cell(nn.Linear(2, 2), nn.Identity())
    with pytest.raises(ValueError, match=rf"0 or 1\. Found \S+ {place} of cell `enc`"):
        once(rule, cell, **{side: bad})
    assert cell.updater.weight.empty
    rule.clear()
    rule.del_cell("enc")
    once(rule, cell)
    assert not cell.updater.weight.empty

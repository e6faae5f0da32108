"""Mistakes in earnest: the link of the chain that breaks, and words of what is said."""

import contextlib
import copy

import harness as p
import torch
from torch import nn

import lightning_accum as la
from lightning_accum import STDP, Cell, CellSpec, RuleTrainer, attach_updater
from lightning_accum.nn import LIF, LeakyIntegrator, SurrogateLIF
from lightning_accum.rules import learn_online

MISTAKES = []
# The rows of the table fill their lines.
# fmt: off


def mistake(name, link, *words, **program):
    error = Exception if link == "error" else None
    MISTAKES.append(p.Program(name=name, link=link, words=words, **{"error": error, **program}))

in_loop, in_fit, _ = p.alone(mistake)

# ====================================================================== recorded
def methods(net, x, i):
    net.rest()
    net.lif.forward(net.fc.forward(x.transpose(0, 1)))

def outside(net, rule):
    other = vars(rule)["other"] = copy.deepcopy(net)
    rule.register_cell("enc", Cell(other.fc, other.lif))

mistake("methods are called, which no hook sees", "recorded", "`enc`", "fc(x)", step=methods)
mistake("the model is in evaluation mode", "recorded", "`enc`", "evaluation mode",
    prepare=lambda net, rule: net.eval())
mistake("the rule is in evaluation mode", "recorded", "`enc`", "trainer", "evaluation mode",
    on={"batch": lambda net, rule, i: rule.eval()})
mistake("clear() before the rule", "recorded", "`enc`", "clear()",
    on={"ran": lambda net, rule, i: rule.clear()})
mistake("cells of a copy of the model", "recorded", "`enc`", "not a module of the model",
    prepare=outside, cells={}, hosts=p.HOSTED)
mistake("one of two cells is never called", "recorded", "`top`", net=lambda: p.Net(**p.second(4)),
    cells={**p.ENC, "top": CellSpec("fc2", "lif2")})

def unrecorded(batches):
    net, use = p.set_up()
    for x in p.spikes(24):
        p.whole(net, x, 0)
        with use.batch() if batches else contextlib.nullcontext():
            pass
        use.step()
    use.release()

mistake("the module runs before batch()", "recorded", "`enc`", "batch()",
    alone=lambda: unrecorded(True), hosts=(p.FABRIC,))
mistake("steps without batch()", "recorded", "batch()", alone=lambda: unrecorded(False),
    hosts=(p.FABRIC,))

# ====================================================================== evaluated
NEVER = {"call": False, "hosts": (p.HAND,)}
mistake("never called", "evaluated", "`enc`", "no call", update=False, **NEVER)
mistake("never called, until eval()", "evaluated", "`enc`", "no call", update=False, **NEVER,
    on={"end": lambda net, rule, i: rule.eval()})

# ====================================================================== finite
NAN = float("nan")
mistake("weights are NaN from the beginning", "finite", "enc", "nan", "initialized",
    prepare=p.weights(NAN))
mistake("weights become NaN", "finite", "enc", "nan",
    on={"updated": lambda net, rule, i: i == 5 and net.fc.weight.data[0, 0].fill_(NAN)})

# ====================================================================== active
def silent(steps, calls):
    layer = la.Serial(p.dense(high=0.001), LIF(p.OUTPUTS))
    rule = RuleTrainer(STDP(0.01, -0.008))
    rule.register_cell("enc", layer.cell)
    for x in torch.cat(p.spikes(20, batch=1), 1)[:, : steps * calls].split(steps, 1):
        learn_online(rule, layer, x.transpose(0, 1))

mistake("the input is always zero", "active", "`enc`", "input", "always 0",
    step=lambda net, x, i: p.whole(net, x * 0, i))
mistake("the threshold is too high", "active", "`enc`", "never fired", net=p.lif(v_threshold=1e6))
mistake("silent neurons, step by step", "active", "never fired", "of 250: lower",
    alone=lambda: silent(1, 300), hosts=(p.HAND,))
mistake("one silent sequence that is learned online", "active", "never fired in 300 steps",
    alone=lambda: silent(300, 1), hosts=(p.HAND,))
mistake("Normalize keeps the weights below the threshold", "active", "`enc`", "fired",
    prepare=p.constrained(la.Normalize(1e-3)))
mistake("the reward is always 0", "active", "`enc`", "`reward`", "always 0",
    **p.rewarded(lambda i: torch.zeros(p.BATCH)))
mistake("nothing releases the neuromodulator", "active", "`enc`", "`reward`", "always 0",
    rule=p.of(la.MSTDP, 0.01, -0.008, reward=la.Neuromodulator(20.0)))

def blind(net, x, i):
    p.whole(net, x, i)
    return {"error": torch.zeros(p.BATCH, 2)}

mistake("the error is always 0", "active", "`enc`", "`error`", "always 0",
    **{**p.ERRING, "step": blind}, **p.FROZEN)
mistake("the feedback is 0", "active", "`enc`", "feedback", **p.ERRING,
    prepare=lambda net, rule: nn.init.zeros_(net.readout.requires_grad_(False).weight))

# ====================================================================== applied
@in_loop("a new rule in each batch", "applied", "`weight`", "no update")
def new_rule_in_each_batch():
    net = p.Net()
    for i, x in enumerate(p.spikes(60)):
        rule = p.stdp()
        rule.register_cell("enc", Cell(net.fc, net.lif))
        p.whole(net, x, i)
        rule(carry=False)

mistake("never updated", "applied", "`enc`", "none applied", "update()", update=False, epochs=3,
    hosts=(p.HAND,))
mistake("changes are cleared", "applied", "`weight`", "cleared", update=False, epochs=12,
    on={"updated": lambda net, rule, i: (rule.updater_of("enc").clear(), rule.update())},
    hosts=(p.HAND,))
mistake("step() is never called", "applied", "`enc`", "step()", update=False, hosts=(p.FABRIC,))
mistake("batches that are never evaluated", ("evaluated", "applied"), "step()", call=False,
    update=False, hosts=(p.FABRIC,))

@in_fit("exported changes that the optimizer of a fit does not step", "applied", "gradients",
    "step()")
def not_stepped():
    """Hands changes of a rule that follows an error over to an optimizer, and stops there."""
    error = torch.ones(p.BATCH, 2)
    module = p.Lit(
        lambda module, x, i: module.trainer.callbacks[0].updates_as_gradients(error=error),
        lambda module: torch.optim.SGD(module.parameters(), lr=1.0),
        lif=SurrogateLIF(p.OUTPUTS, time_dim=0), readout=nn.Linear(p.OUTPUTS, 2))
    p.fit(module, p.learner(p.eprop(module)))

@in_fit("a cell that is registered during the fit", "applied", "`late`", "optimizer")
def late_cell():
    rule = p.stdp()

    def step(module, x, i):
        if i == 0 and module.current_epoch == 0:
            rule.register_cell("late", Cell(module.fc2, module.lif2))
        p.run_second(module, x.transpose(0, 1))

    p.fit(p.Lit(step, **p.second()), p.learner(rule))

@in_fit("a fit that stops before its first update", "applied", "`enc`", "none applied")
def interrupted():
    def step(module, x, i):
        if i == 10:
            raise OSError

    with contextlib.suppress(OSError):
        p.fit(p.Lit(step), p.learner(apply_every_n_batches=50), data=p.spikes(14))

in_fit("the module's own optimizer is never stepped", "applied", "`enc`", "UpdateOptimizer",
    "not stepped")(lambda: p.fit(p.Lit(optimizers=p.local), p.learner()))
mistake("exported changes that no optimizer steps", "applied", "`weight`", "gradients",
    alone=lambda: p.exported(step=False), hosts=(p.HAND,))
mistake("exported changes that are emptied before the step", "applied", "`weight`", "zero_grad()",
    alone=lambda: p.exported(early=True), hosts=(p.HAND,))
mistake("gradients that are never emptied", ("applied", "trained"), "gradients", "zero_grad()",
    alone=lambda: p.exported(zero=False), hosts=(p.HAND,))

# ====================================================================== kept
mistake("the reward is NaN", "kept", "nan", "dropped",
    **p.rewarded(lambda i: torch.full((p.BATCH,), NAN)),
    prepare=lambda net, rule: attach_updater(net.fc, "weight", nonfinite="skip"))

# ====================================================================== moved
mistake("the scale is 0", "moved", "`weight`", "multiplied by 0", scale=0.0,
    hosts=(p.HAND, p.FABRIC))

def at_limit(net, rule):
    nn.init.ones_(net.fc.weight)
    attach_updater(net.fc, "weight").weight.fullbound("sharp", 1.0, 0.0)

mistake("all weights are at a limit", "moved", "`weight`", "at a limit", rule=p.pairs(0.01, 0.01),
    prepare=at_limit)
mistake("rates that are lost in rounding", "moved", "`weight`", "raise",
    rule=p.pairs(1e-12, -1e-12))

def keeps_first(net, rule):
    first = net.fc.weight.detach().clone()
    p.constrained(lambda weight: weight.copy_(first))(net, rule)

mistake("a constraint copies the first weights", "moved", "`weight`", "constraint",
    prepare=keeps_first)
mistake("a constraint rounds changes away", "moved", "`weight`", "constraint",
    rule=p.pairs(1e-5, -4e-6),
    prepare=p.constrained(lambda weight: weight.mul_(4).round_().div_(4)))

class Wrong(la.Rule):
    """Returns no terms, or a change."""

    empty: bool

    def terms(self, window):
        post, pre = (side.values().flatten(0, 1) for side in (window.post, window.pre))
        return [] if self.empty else 0.01 * post.T @ pre

mistake("a rule without terms", "moved", "`weight`", "terms", rule=p.of(Wrong, empty=True))

# ====================================================================== lasting
def initialize(net, x, i):
    nn.init.constant_(net.fc.weight, 0.3)
    p.whole(net, x, i)

mistake("an initialization in forward", "lasting", "`enc`", "set", step=initialize, hosts=p.HOSTED)
mistake("the first weights are loaded after each update", "lasting", "`enc`", "set", hosts=p.HOSTED,
    **p.restores("updated"))
mistake("the first weights are loaded after each epoch", "lasting", "`enc`", "training began",
    **p.restores("epoch"), hosts=(p.CALLBACK,))

# ====================================================================== shared
@in_loop("processes that update apart", "shared", "processes")
def apart():
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        p.by_hand(p.Program(name="one of two"))
    finally:
        dist.destroy_process_group()

# ====================================================================== delays, streams
mistake("delays leave their range", "range", "delays", "`enc`", "max_delay", net=p.delayed,
    rule=p.of(la.DelayAdjustedSTDP, 8.0, -8.0, params=["delay"]))

def leaking(net, x, i):
    net.lif.reset()
    net.leak(net(x))

def exchanged(net, x, i):
    net.rest()
    net.lif(net.fc(x))

mistake("neurons are never reset", "probes", "reset()", "carry=True", step=p.flow, hosts=p.HOSTED)
mistake("neurons are reset in each batch of a stream", "probes", "reset", "stream", carry=True,
    hosts=p.HOSTED)
mistake("a readout of a derived class keeps its state", "probes", "leak`", "rest",
    net=lambda: p.Net(leak=type("Derived", (LeakyIntegrator,), {})(p.OUTPUTS, time_dim=0)),
    step=leaking, hosts=p.HOSTED)

# ====================================================================== set-up
mistake("time and batch are exchanged", "setup", "`enc`", "time", "first", step=exchanged,
    hosts=(p.CALLBACK,))
mistake("an encoder with another dt", "setup", "`dt`",
    net=lambda: p.Net(leak=LeakyIntegrator(p.OUTPUTS, dt=0.1, time_dim=0)), step=leaking,
    hosts=p.HOSTED)
in_fit("the same cell in two callbacks", "setup", "twice")(
    lambda: p.fit(p.Lit(), p.learner(), p.learner(name="again")))
mistake("the same cell twice in a rule", "setup", "twice",
    cells={"enc": CellSpec("fc", "lif"), "again": CellSpec("fc", "lif")})
mistake("an input that the rule does not read", "setup", "`reward`",
    **p.rewarded(lambda i: (-1.0) ** i, p.stdp))

@in_fit("updates by hand beside a callback", "setup", "STDP", "callback")
def by_hand_beside():
    rule = p.stdp()
    p.fit(p.Lit(lambda module, x, i: (rule(carry=False), rule.update())[1]), p.learner(rule))

# ====================================================================== probes
mistake("the neuron of another layer", "probes", "`enc`", "lif2", net=p.Deep,
    cells={"enc": CellSpec("fc", "lif2")}, hosts=p.HOSTED)

# ====================================================================== trained
mistake("a readout that nothing trains", "trained", "readout.weight", **p.ERRING, hosts=p.HOSTED)

class Below(p.Net):
    """An optimizer trains what is below neurons that pass no gradient."""

    def __init__(self):
        super().__init__(
            SurrogateLIF(p.OUTPUTS, time_dim=0), below=nn.Linear(p.INPUTS, p.INPUTS),
            first=SurrogateLIF(p.INPUTS, v_threshold=0.2, time_dim=0), head=nn.Linear(p.OUTPUTS, 2))

    def loss(self, x):
        fired = self.lif(self.fc(self.first(self.below(x.transpose(0, 1)))))
        return self.head(fired.mean(0)).square().mean()

def backward(net, x, i):
    net.rest()
    return {"loss": net.loss(x)}

mistake("an optimizer below neurons that pass no gradient", "trained", "below.weight", "gradient",
    net=Below, step=backward,
    optimizer=lambda net: torch.optim.SGD([*net.below.parameters(), *net.head.parameters()], 0.1),
    hosts=p.HOSTED, epochs=10)

# ====================================================================== errors
mistake("a rule without cells", "error", "STDP", "cell", alone=lambda: p.stdp()(), hosts=(p.HAND,))

mistake("terms that are a tensor", "error", "terms", rule=p.of(Wrong, empty=False))

# ====================================================================== more of each link
mistake("only the neurons are in evaluation mode", "error", "`enc`", "evaluation mode",
    error=ValueError, prepare=lambda net, rule: net.lif.eval())
mistake("a kernel of nothing", "moved", "`weight`", "kernel",
    rule=p.of(la.KernelSTDP, torch.zeros_like))

def biased():
    fc = p.uniform(nn.Linear(p.INPUTS, p.OUTPUTS))
    nn.init.constant_(fc.bias, NAN)
    return p.Net(fc=fc)

mistake("a bias that is NaN", ("active", "finite"), "nan", net=biased)

@in_fit("ModelPruning sets weights back", ("lasting", "moved"), "`enc`", "ModelPruning")
def pruned():
    from lightning.pytorch.callbacks import ModelPruning

    net = p.Lit()
    prune = ModelPruning("l1_unstructured", [(net.fc, "weight")], amount=0.3)
    p.fit(net, prune, p.learner())

@in_fit("a layer in a plain list", ("setup", "recorded"), "`hidden`", "model")
def in_a_list():
    def step(module, x, i):
        connection, neuron = module.layers
        neuron.reset()
        neuron(connection(x.transpose(0, 1)))

    net, rule = p.Lit(step), p.stdp()
    net.layers = [*p.second().values()]
    rule.register_cell("hidden", Cell(*net.layers))
    p.fit(net, p.learner(rule, {}))

@in_fit("Adam and a rule on the same weights", "trained", "enc.weight")
def hybrid():
    module = p.Lit(lambda module, x, i: (module(x).mean() - 0.2).square(),
        lambda module: torch.optim.Adam(module.fc.parameters(), 1e-3), automatic=True)
    module.lif = SurrogateLIF(p.OUTPUTS, gradient="time", time_dim=0)
    p.fit(module, p.learner())

def hidden():
    import pytest

    return p.Net(pytest.importorskip("snntorch").Leaky(beta=0.9, init_hidden=True))

mistake("a neuron of another library is never reset", "probes", "rest", net=hidden,
    rule=p.pairs(0.01, -0.008, time_dim=None), step=p.by_steps, hosts=p.HOSTED)

class Passed(nn.Module):
    """A neuron that is given its potential, and returns it."""

    def forward(self, x, v):
        v = 0.9 * v + x
        return (v > 1).float(), v * (v <= 1)

def passes(net, x, i):
    state = vars(net).setdefault("state", torch.zeros(p.BATCH, p.OUTPUTS))
    for each in x.transpose(0, 1):
        _, state = net.lif(net.fc(each), state)
    vars(net)["state"] = state.detach()

mistake("a neuron is given the state of the batch before", "probes", "given the state", "pass none",
    net=lambda: p.Net(Passed()), rule=p.pairs(0.01, -0.008, time_dim=None), step=passes,
    hosts=p.HOSTED)

def learned_feedback(net):
    from lightning_accum.rules import LearnedFeedback

    return p.eprop(net, feedback=LearnedFeedback(net.readout, 2, p.OUTPUTS))

mistake("learned feedback of a readout that nothing trains", "trained", "readout",
    **{**p.ERRING, "rule": learned_feedback}, hosts=p.HOSTED, **p.FROZEN)

"""Correct programs, of which nothing is warned."""

from functools import partial

import harness as p
import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

import lightning_accum as la
from lightning_accum import STDP, Cell, CellSpec, Clamp, RuleTrainer, attach_updater
from lightning_accum import nn as lann
from lightning_accum.functional import GaussianKernel
from lightning_accum.nn import LIF
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.rules import learn_online

CORRECT = []
# The rows of the table fill their lines.
# fmt: off


def correct(name, **program):
    CORRECT.append(p.Program(name=name, **program))

def advise(name, *words, **program):
    """Adds a program that is silent, but for a line of the summary."""
    correct(f"advice: {name}", advice=words, **{"hosts": p.HOSTED, **program})

in_loop, in_callback, in_fabric = p.alone(correct)

# ====================================================================== rules of spikes
correct("STDP of sequences", advice=())
correct("STDP of steps", net=p.lif(time_dim=None), rule=p.pairs(0.01, -0.008, time_dim=None),
    step=p.stepwise, advice=())

def without_batch(net, x, i):
    for each in x[0]:
        net.lif(net.fc(each))

correct("one sample without a batch", net=lambda: p.Net(nn.ReLU(), nn.Linear(p.INPUTS, p.OUTPUTS)),
    step=without_batch, rule=p.of(la.Oja, 0.01, time_dim=None), advice=())
correct("triplets", rule=p.of(la.TripletSTDP, 0.0005, 0.001, -0.004, -0.001))
correct("weight-dependent STDP", rule=p.of(la.WeightDependentSTDP, 0.002, -0.01),
    **p.BOXED, advice=())
correct("a kernel", rule=p.of(la.KernelSTDP, GaussianKernel(0.02, 5.0, -0.005)))
correct("Clopath", net=p.lif(lann.SurrogateLIF), rule=p.of(la.Clopath, 0.02, -0.02, 0.1, 0.3),
    **p.BOXED)
correct("inhibitory STDP", rule=p.of(la.InhibitorySTDP, 1e-3, target_rate=50.0), **p.BOXED)
correct("homeostasis wakes silent neurons", rule=p.of(la.Homeostasis, 0.05, target_rate=100.0),
    prepare=p.weights(0.01))

RATE = p.of(la.Homeostasis, 1e-4, target_rate=50.0)

def homeostasis_beside(net):
    rule, other = p.stdp(), RATE(net)
    vars(rule)["other"] = other
    other.register_cell("enc", Cell(net.fc, net.lif))
    return rule

def call_other(net, rule, i):
    rule.other(carry=False)
    rule.other.update()

correct("two rules on one connection, by hand", rule=homeostasis_beside, on={"updated": call_other},
    hosts=(p.HAND,))
correct("two rules on one connection, in two callbacks", hosts=(p.CALLBACK,),
    learners=lambda: [p.learner(RATE(None), {"rate": CellSpec("net.fc", "net.lif")})])

# ====================================================================== rewards and errors
correct("rewards of both signs", **p.rewarded(lambda i: (-1.0) ** i))
correct("rewards of mean 0 for potentiation only", epochs=10, advice=(), **p.rewarded(
    lambda i: torch.tensor([1.0, -1.0, 0.5, -0.5]) * (-1.0) ** i, p.of(la.MSTDPET, 0.01, 0.0)))
correct("a rare reward", **p.rewarded(lambda i: float(i % 16 == 5)), epochs=4)
LASTING = p.of(la.MSTDPET, 0.01, -0.008, reward=la.Neuromodulator(20.0, -0.05))
correct("a neuromodulator that lasts from trial to trial", carry=True,
    **p.rewarded(lambda i: float(i % 4 == 1), LASTING))

def against_baseline(net, x, i):
    net.lif.reset()
    return {"reward": net.baseline(net(x).mean((0, 2)))}

correct("a reward against its baseline", net=lambda: p.Net(baseline=lann.RewardBaseline(0.9)),
    rule=p.mstdp, step=against_baseline, inputs=("reward",))
correct("e-prop, and an optimizer of the readout", **p.ERRING,
    optimizer=lambda net: torch.optim.SGD(net.readout.parameters(), 0.1))
correct("e-prop below a readout that is frozen", **p.ERRING, **p.FROZEN)

def backwards(net, x, i):
    net.rest()
    net(x).square().mean().backward()

correct("OTTT", net=lambda: p.Errors(gradient="step"), rule=p.of(la.OTTT, 0.05), step=backwards,
    **p.FROZEN)

def regressed(net, x, i):
    net.rest()
    return {"error": (net(x).mean(0) - x.mean(1)[:, :p.OUTPUTS]).detach()}

correct("a readout by the delta rule",
    net=lambda: p.Net(lif=lann.LeakyIntegrator(p.OUTPUTS, time_dim=0)),
    rule=p.of(la.DeltaRule, 0.05, tc_readout=20.0), step=regressed, inputs=("error",))

# ====================================================================== rules of rates
for rate_rule, end in {
    la.Hebb: nn.Sigmoid, la.AntiHebb: nn.Sigmoid, la.Oja: nn.Identity, la.Sanger: nn.Identity,
    la.BCM: nn.ReLU, la.Covariance: nn.ReLU, la.SoftHebb: nn.Identity, la.WTAHebb: nn.Identity,
}.items():
    correct(f"{rate_rule.__name__} of rates", **p.of_rates(rate_rule, 0.01),
        net=partial(lambda end: p.Net(lif=end()), end))

# ====================================================================== neurons, connections
correct("adaptive neurons", net=p.lif(lann.AdaptiveLIF))
correct("lateral inhibition", net=lambda: p.lif(inhibition=lann.LateralInhibition(0.2))())
correct("a refractory period", net=p.lif(refractory=3.0))
correct("a competition",
    net=lambda: p.Net(lann.Competition(LIF(p.OUTPUTS, time_dim=0), p.OUTPUTS, time_dim=0)))
correct("surrogate neurons", net=p.lif(lann.SurrogateLIF))

class Slow(nn.Module):
    """A neuron of one's own, which forgets between calls."""

    def forward(self, x):
        v, fired = torch.zeros_like(x[0]), []
        for current in x:
            v = 0.9 * v + current
            fired.append((v > 1.0).float())
            v = v * (v <= 1.0)
        return torch.stack(fired)

class Tidy(Slow):
    """It ends each call at rest, in a tensor that it keeps."""

    def forward(self, x):
        self.v = torch.zeros_like(x[0])
        return super().forward(x)

    def reset(self):
        del self.v

correct("a neuron of one's own", net=lambda: p.Net(Slow()))

def passing(state):
    """Runs a neuron whose state the caller keeps."""

    def step(net, x, i):
        now = state(net.lif)
        for each in x.transpose(0, 1):
            _, now = net.lif(net.fc(each), now)

    return step

def reset_mem(net, x, i):
    net.lif.reset_mem()
    p.by_steps(net, x, i)

SNN, NORSE, JELLY = "snntorch", "norse.torch", "spikingjelly.activation_based.neuron"
for name, library, foreign, high, step, time in [
    ("snnTorch", SNN, lambda s: s.Leaky(0.9), 0.35, passing(lambda n: n.init_leaky()), None),
    ("snnTorch, hidden", SNN, lambda s: s.Leaky(0.9, init_hidden=True), 0.35, reset_mem, None),
    ("Norse step by step", NORSE, lambda n: n.LIFCell(), 2.0, passing(lambda n: None), None),
    ("Norse by sequences", NORSE, lambda n: n.LIF(), 2.0, p.whole, 0),
    ("SpikingJelly step by step", JELLY, lambda j: j.LIFNode(2.0), 1.0, p.stepwise, None),
    ("SpikingJelly by sequences", JELLY, lambda j: j.LIFNode(2.0, step_mode="m"), 1.0, p.whole, 0),
]:
    made = lambda each, lib, high: p.Net(each(pytest.importorskip(lib)), p.dense(high=high))  # noqa: E731
    correct(name, net=partial(made, foreign, library, high), step=step,
        rule=p.pairs(0.01, -0.008, time_dim=time))

correct("a Poisson encoder", net=lambda: p.Net(encode=lann.PoissonEncoder(20, 200.0, seed=0)),
    step=lambda net, x, i: p.whole(net, net.encode(x).float().transpose(0, 1), i), data=p.rates())

def images():
    generator = torch.Generator().manual_seed(0)
    return list((torch.rand(8, p.BATCH, 10, 1, 6, 6, generator=generator) < 0.3).float())

correct("a convolution", data=images,
    net=lambda: p.Net(LIF((2, 4, 4), time_dim=0),
                      p.uniform(lann.Conv2d(1, 2, 3, bias=False), 0.0, 0.4)))

def recurrent(net, x, i):
    net.lif.reset()
    fired = torch.zeros(x.shape[0], p.OUTPUTS)
    for each in x.transpose(0, 1):
        fired = net.lif(net.fc(each) + net.recurrent(fired))

def rewired(net, x, i):
    p.whole(net, x, i)
    if i % 3 == 2:
        lann.Rewire(0.1, start=0.2, seed=i)(net.fc)

correct("few synapses", step=rewired,
    net=lambda: p.Net(
        fc=p.uniform(lann.SparseLinear(p.INPUTS, p.OUTPUTS, 0.5, bias=False), 0.0, 0.4)),
    prepare=p.constrained(la.Normalize(2.0), Clamp(0.0, 1.0)))
correct("recurrent connections", rule=p.pairs(0.01, -0.008, time_dim=None), step=recurrent,
    net=lambda: p.Net(LIF(p.OUTPUTS), recurrent=p.uniform(lann.RecurrentLinear(p.OUTPUTS), 0, 0.1)),
    cells={"in": CellSpec("fc", "lif"), "recurrent": CellSpec("recurrent", "lif")})

TOP = {"top": CellSpec("fc2", "lif2")}
BOTH = {**p.ENC, **TOP}
correct("two layers", net=p.Deep, cells=BOTH)

def driven(net, x, i):
    net.rest()
    net.lif(net.fc(x.transpose(0, 1)) + net.fc2(x.transpose(0, 1).flip(-1)))

def taught(net, x, i):
    net.fc(x.transpose(0, 1))
    net.lif(x.transpose(0, 1)[..., :p.OUTPUTS].roll(1, 0))

correct("two connections to the same neurons", net=lambda: p.Net(**p.second(high=0.2)), step=driven,
    cells={"a": CellSpec("fc", "lif"), "b": CellSpec("fc2", "lif")})
correct("a teacher says when neurons fire", net=lambda: p.Net(nn.Identity()), step=taught)

def delays_clamped(net, rule):
    attach_updater(net.fc, "delay").register_constraint(Clamp(0.0, 5.0), "delay")

correct("delays that a clamp keeps in range", net=lambda: p.delayed(delay=2.0),
    rule=p.of(la.DelayAdjustedSTDP, 4.0, -4.0, params=["delay"]), prepare=delays_clamped)

# ====================================================================== streams and windows
correct("pieces of a stream", step=p.flow, carry=True)
correct("a neuron that ends at rest, and is not reset", net=lambda: p.Net(Tidy()), step=p.flow)

def by_task(net, x, i):
    if i % 4 == 0:
        net.rest()
    net(x)

correct("a rest before each task of a stream", step=by_task, carry=True)
correct("a rest before each task, and traces are cleared", step=by_task, carry=True,
    on={"batch": lambda net, rule, i: i % 4 or rule.clear()})
correct("one long stream, step by step", alone=lambda: online(update_every=1), hosts=(p.HAND,))
correct("updates every few steps", alone=lambda: online(update_every=5), hosts=(p.HAND,))

def online(update_every):
    layer = la.Serial(p.dense(kind=la.nn.Linear), LIF(p.OUTPUTS))
    rule = RuleTrainer(STDP(0.001, -0.0008))
    rule.register_cell("enc", layer.cell)
    for x in p.spikes():
        layer.neuron.reset()
        rule.clear()
        learn_online(rule, layer, x.transpose(0, 1), update_every=update_every)

correct("windows of different length",
    data=lambda: [p.spikes(1, steps=steps)[0] for steps in (15, 3, 40, 1, 22, 9, 30, 12, 5, 18)],
    advice=())
correct("batches of different size",
    data=lambda: [p.spikes(1, batch=size)[0] for size in (4, 1, 7, 3, 4, 4, 2, 5, 1, 1)])
correct("a single batch", data=lambda: p.spikes(1), epochs=1)
correct("sparse activity", data=lambda: p.spikes(24, rate=0.02), net=p.lif(v_threshold=0.3))
correct("half of the inputs are always dark",
    data=lambda: [x * (torch.arange(p.INPUTS) % 2) for x in p.spikes(24)])
correct("two of three batches are blank",
    data=lambda: [x * float(i % 3 == 0) for i, x in enumerate(p.spikes(24))])
correct("neurons that begin to fire late", net=p.lif(v_threshold=2.0), data=lambda: p.spikes(24),
    rule=p.of(la.Homeostasis, 0.01, target_rate=100.0))

# ====================================================================== rates and schedules
correct("rates of 0 for a control", rule=p.pairs(0.0, 0.0))
correct("a schedule that ends at 0",
    callback={"lr_scheduler": partial(lr_scheduler.CosineAnnealingLR, T_max=16)},
    hosts=(p.CALLBACK,))
correct("a scale that goes down to 0", scale=lambda i: max(0.0, 1 - i / 8),
    hosts=(p.HAND, p.FABRIC))
correct("small rates, few updates", rule=p.pairs(1e-5, -1e-5), epochs=1)

# ====================================================================== weights
correct("weights that are clamped", prepare=p.constrained(Clamp(0.0, 0.4)), advice=())
correct("weights of one norm", prepare=p.constrained(la.Normalize(1.0)))
correct("weights partly at sharp bounds",
    prepare=lambda net, rule: attach_updater(net.fc, "weight").weight.fullbound("sharp", 0.3, 0.0))
correct("weights that reach their limits and stay", rule=p.pairs(1.0, 1.0),
    prepare=p.constrained(Clamp(0.0, 0.5)), epochs=4)
correct("weights in bfloat16, with large rates", net=lambda: p.Net(fc=p.dense().bfloat16()),
    rule=p.pairs(0.1, -0.1), step=lambda net, x, i: p.whole(net, x.bfloat16(), i))
correct("pruned weights stay at 0", prepare=lambda net, rule: p.constrained(
    lambda weight, mask=(net.fc.weight > 0.1): weight.mul_(mask))(net, rule))
correct("weights of two values, with large rates", rule=p.pairs(0.1, -0.12),
    prepare=p.constrained(lambda weight: weight.mul_(4).round_().div_(4)))

def converge(net, rule):
    """Begins where an earlier training ended."""
    other = RuleTrainer(STDP(0.05, -0.04), time_dim=0)
    updater = attach_updater(net.fc, "weight")
    updater.register_constraint(la.Normalize(1.0))
    other.register_cell("enc", Cell(net.fc, net.lif))
    for i, x in enumerate(p.spikes(24)):
        p.whole(net, x, i)
        other(carry=False)
        other.update()
    other.eval()
    other.del_cell("enc")

correct("trained weights, which hardly move", rule=p.pairs(1e-7, -1e-7), prepare=converge,
    hosts=p.HOSTED, epochs=1)
correct("another part of the program keeps the norm after each batch",
    on={"updated": lambda net, rule, i: net.fc.weight.data.div_(net.fc.weight.data.norm())})

def cycle(rate, *factors):
    """Three batches again and again, whose updates cancel each other in each epoch."""

    def step(net, x, i):
        net.fc(x)
        net.lif(x[..., :p.OUTPUTS].roll(1, 0) * factors[i % 3])

    return {"net": lambda: p.Net(nn.Identity()), "prepare": p.weights(0.25), "step": step,
            "rule": p.of(la.Hebb, rate, time_dim=None), "data": lambda: [p.spikes(1)[0][:, 0]] * 3,
            "epochs": 20}

correct("weights settle in a cycle", **cycle(2**-8, 1.0, 1.0, -2.0))
correct("weights settle in a cycle up to rounding", **cycle(0.0123, 1.1, 0.9, -2.0))
correct("weights in such a cycle are rounded after each epoch", **cycle(0.0123, 1.1, 0.9, -2.0),
    on={"epoch": lambda net, rule, i: net.fc.weight.data.mul_(256).round_().div_(256)})

# ====================================================================== parts that rest
def half_asleep(net, rule):
    net.fc2.eval(), net.lif2.eval()

correct("a frozen layer beside one that learns", net=p.Deep, cells=BOTH, prepare=half_asleep)
correct("a layer that rests after its first epoch",
    on={"epoch": lambda net, rule, i: (net.lif.eval(), net.fc.eval())}, epochs=3, hosts=p.HOSTED)

def in_turn(net, rule, i):
    first = i // 8 % 2 == 0
    for module in (net.fc, net.lif):
        module.train(first)
    for module in (net.fc2, net.lif2):
        module.train(not first)

correct("layers that learn in turn", net=p.Deep, cells=BOTH, on={"batch": in_turn}, epochs=4)

def tested(net, rule, i):
    """A test in evaluation mode, and with the rule asleep too."""
    net.eval()
    for x in p.spikes(20):
        p.whole(net, x, i)
    net.train()
    net.rest()

correct("a test after each epoch", on={"epoch": tested})
correct("a few calls after the last batch that is learned", hosts=(p.HAND,), epochs=3,
    on={"batch": lambda net, rule, i: net.train(i < 12), "end": lambda net, rule, i: rule.eval()})

# ====================================================================== optimizers beside rules
def classified(net, x, i):
    net.rest()
    label = (x.sum((1, 2)) > x.sum((1, 2)).median()).long()
    return {"loss": nn.functional.cross_entropy(net.head(net(x).mean(0).detach()), label)}

HEADED = {"net": lambda: p.Net(head=nn.Linear(p.OUTPUTS, 2)), "step": classified,
          "optimizer": lambda net: torch.optim.Adam(net.head.parameters())}
correct("an optimizer of the readout", **HEADED)
correct("updates of several batches", every=4)

def rarely(module, x, i):
    if i % 4 == 3:
        module.optimizers().step()

@in_fabric("updates as gradients under Fabric")
def exported_in_fabric():
    net, use = p.set_up()
    sgd = torch.optim.SGD(net.fc.parameters(), lr=1.0)
    for _i in p.recorded(net, use):
        sgd.zero_grad()
        use.updates_as_gradients()
        sgd.step()
    use.release()

in_callback("the module's own optimizer steps rarely")(
    lambda: p.fit(p.Lit(rarely, p.local), p.learner()))

def in_steps(optimizer, **options):
    """A fit that exports changes to an optimizer in each step."""
    make = lambda module: optimizer(module.fc.parameters(), **options)  # noqa: E731
    return lambda: p.fit(p.Lit(p.step_exported, make), p.learner())

in_callback("updates as gradients in a fit")(in_steps(torch.optim.SGD, lr=1.0, momentum=0.5))

in_loop("updates as gradients, by hand")(lambda: p.exported(torch.optim.Adam, lr=1e-3))

@in_loop("an UpdateOptimizer, by hand")
def by_optimizer():
    net, rule = p.registered()
    optimizer = UpdateOptimizer(net.fc.parameters(), updaters=[rule.updater_of("enc")])
    for _i in p.windows(net, rule):
        optimizer.step()

# ====================================================================== fits
# Those of `tests/callbacks` are silent too, for a warning is an error there.
in_callback("a control run that never fits its learner")(lambda: (p.learner(), p.fit(p.Lit())))

@in_callback("layer by layer")
def layer_by_layer():
    top = p.second(p.OUTPUTS, 0.2, 0.9)
    net = p.Lit(lambda module, x, i: p.run_second(module, module(x)), **top)
    p.fit(net, p.learner())
    p.fit(net, p.learner(cells=TOP))

# ====================================================================== loops and notebooks
in_loop("a rule that is looked at")(lambda: repr([p.stdp(), p.registered(), p.learner()]))

@in_loop("a network that runs while a rule records it")
def ran_only():
    net, _rule = p.registered()
    for x in p.spikes(1):
        net.rest()
        net(x[:, :4])

def apply_and_drop(net, rule, i):
    """Reads what would change, and drops it."""
    weight = rule.updater_of("enc").weight
    net.fc.weight.data += 0.5 * (weight.pos - weight.neg)
    weight.clear()

@in_loop("trials that are not learned")
def rejected_now_and_then():
    net, rule = p.registered()
    for i, x in enumerate(p.spikes(24)):
        p.whole(net, x, i)
        if i % 3 == 0:
            rule.clear()
            continue
        rule(carry=False)
        if i % 3 == 1:
            rule.updater_of("enc").clear()
        rule.update()

def half_of_the_time(net, rule, i):
    """Calls the rule in a test too, in which nothing is recorded."""
    nn.ModuleList([net, rule]).train(i % 4 < 2)

in_loop("many short runs")(lambda: [p.by_hand(p.Program(name="one", epochs=1)) for _ in range(4)])
BY_HAND = {"hosts": (p.HAND,), "epochs": 3}
correct("a few windows whose change is read", **{**BY_HAND, "epochs": 1}, update=False,
    data=lambda: p.spikes(4),
    on={"end": lambda net, rule, i: rule.updater_of("enc").weight.pos + 0})
correct("changes that are measured from the same weights", **BY_HAND, **p.restores("batch"))
correct("changes that are read, applied and dropped", **BY_HAND, update=False,
    on={"updated": apply_and_drop})
correct("one update of all batches", **BY_HAND, every=24)
correct("trials of steps", **BY_HAND, net=p.lif(time_dim=None), **p.rewarded(
    lambda i: (-1.0) ** i, p.of(la.MSTDPET, 0.01, -0.008, time_dim=None), p.stepwise))
correct("a rule that is called in tests too", **BY_HAND,
    on={"batch": half_of_the_time, "end": lambda net, rule, i: (net.eval(), rule.eval())})
correct("an update that is dropped", **BY_HAND,
    prepare=lambda net, rule: attach_updater(net.fc, "weight", nonfinite="skip"),
    **p.rewarded(lambda i: float("inf") if i == 11 else (-1.0) ** i))
correct("parts of a batch under Fabric", every=3, hosts=(p.FABRIC,))

@in_fabric("a loop under Fabric that is not released")
def left():
    net, use = p.set_up()
    for _i in p.recorded(net, use):
        use.step()

in_fabric("a learner that is set up and released")(lambda: p.set_up()[1].release())

# ====================================================================== advice, and no warning
advise("an optimizer that hardly moves weights", "enc", "by a share of", "rate of its optimizer",
    alone=in_steps(torch.optim.Adam, lr=1e-8), hosts=(p.CALLBACK,))
advise("neurons that spike in most steps", "`enc`", "spike in", "of the steps",
    net=p.lif(v_threshold=0.05))
advise("an input that spikes in most steps", "input of `enc`", "spikes in",
    data=lambda: p.spikes(8, rate=0.8))
advise("neurons that fall silent", "`enc`", "fired at first", rule=p.pairs(0.001, -0.3),
    **p.BOXED, epochs=4)
advise("single steps", "`enc`", "single step", data=lambda: p.spikes(40, steps=1, rate=0.8),
    prepare=lambda net, rule: nn.init.uniform_(net.fc.weight, 0.2, 0.6))
advise("a rate of 0", "enc", "unchanged", "0", rule=p.pairs(0.0, 0.0))
advise("weights hardly moved", "enc", "by a share of", rule=p.pairs(1e-8, -0.8e-8), epochs=3)
advise("weights that grow", "norm", "enc", "grows on: lower", rule=p.pairs(0.5, 0.0), epochs=4)
advise("depression with the sign of other libraries", "grows on: write `lr_pre=-0.5` if it should",
    "libraries subtract it); otherwise lower", rule=p.pairs(0.5, 0.5), epochs=4)
advise("depression by triplets with that sign", "`lr_pre_pair=-0.3` and `lr_pre_triplet=-0.2`",
    rule=p.of(la.TripletSTDP, 0.5, 0.0, 0.3, 0.2), epochs=4)
advise("a reward that is always the same", "`reward`", "was 1", **p.rewarded(lambda i: 1.0))
advise("a reward that is never negative", "`reward`", "below 0", epochs=8,
    **p.rewarded(lambda i: float(i % 2)))
advise("negative outputs under BCM", "`enc`", "negative",
    net=lambda: p.Net(nn.Identity(), fc=p.dense(-1.0, 0.5)),
    **p.of_rates(la.BCM, 1e-4, data=p.rates(40, 16)))
advise("negative weights of inhibition", "enc", "range", "at least 0: begin with positive weights",
    net=lambda: p.Net(fc=p.dense(-0.2, 0.5)), rule=p.of(la.InhibitorySTDP, 1e-4, target_rate=50.0))
advise("weights beyond the range of the rule", "enc", "from 0.3 to 1: give the rule the limits",
    rule=p.of(la.WeightDependentSTDP, 0.002, -0.002, w_min=0.3, w_max=1.0))
advise("neurons that never won", "`enc`", "never won", net=lambda: p.Net(nn.Identity()),
    prepare=lambda net, rule: nn.init.zeros_(net.fc.weight[1:].detach()),
    **p.of_rates(la.WTAHebb, 0.01, data=p.rates(8)))
advise("neurons that are all alike", "`enc`", "same weights", "`WinnerTakeAll`",
    prepare=p.weights(0.2))
advise("neurons of another library that are all alike", "`enc`", "same weights",
    "with `Competition`", net=lambda: p.Net(nn.Identity()), prepare=p.weights(0.2),
    **p.of_rates(la.Hebb, 0.001, data=p.rates(8)))
advise("delays that stay in their step", "delay", "step", net=lambda: p.delayed(delay=2.0),
    rule=p.of(la.DelayAdjustedSTDP, 1e-4, -1e-4, params=["delay"]), prepare=delays_clamped)
advise("a layer that rests from the beginning", "`top`", "evaluation mode", net=p.Deep, cells=BOTH,
    prepare=half_asleep)
advise("a rate that leaves its target", "`enc`", "target",
    rule=p.of(la.Homeostasis, -1e-3, target_rate=300.0), epochs=8)
advise("a clamp over first weights that are negative", "enc", "limits",
    net=lambda: p.Net(fc=p.dense(-0.5, 0.5, kind=la.nn.Linear)),
    prepare=lambda net, rule: p.constrained(Clamp(0.0, 1.0))(net, rule))

"""Correct programs, of which nothing is warned."""

import contextlib
import copy
import pickle
import tempfile
from functools import partial

import lightning.pytorch as pl
import pytest
import torch
from programs import (
    BATCH,
    CALLBACK,
    ENC,
    FABRIC,
    HAND,
    HOSTED,
    INPUTS,
    OUTPUTS,
    Deep,
    Errors,
    Lit,
    Net,
    Program,
    by_hand,
    by_steps,
    constrained,
    delayed,
    dense,
    eprop,
    erring,
    exported,
    fails,
    fit,
    learner,
    loader,
    local,
    mstdp,
    pairs,
    quiet_trainer,
    recorded,
    registered,
    restores,
    rewarded,
    run_second,
    second,
    set_up,
    spikes,
    stdp,
    step_exported,
    stepwise,
    uniform,
    whole,
    windows,
)
from torch import nn
from torch.optim import lr_scheduler

import lightning_accum as la
from lightning_accum import MSTDPET, STDP, Cell, CellSpec, Clamp, Normalize, attach_updater
from lightning_accum.callbacks import FabricCellTrainer
from lightning_accum.functional import GaussianKernel
from lightning_accum.nn import (
    LIF,
    AdaptiveLIF,
    Competition,
    Conv2d,
    LateralInhibition,
    LeakyIntegrator,
    PoissonEncoder,
    RecurrentLinear,
    RewardBaseline,
    Rewire,
    SparseLinear,
    SurrogateLIF,
)
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.rules import learn_online

CORRECT = []
# The rows of the table fill their lines.
# fmt: off


def correct(name, **program):
    """Adds a program."""
    CORRECT.append(Program(name=name, **program))


# ====================================================================== rules of spikes
correct("STDP of sequences", advice=())
correct("STDP of steps", net=lambda: Net(LIF(OUTPUTS)), rule=pairs(0.01, -0.008, time_dim=None),
    step=stepwise, advice=())
correct("triplets", rule=lambda net: la.TripletSTDP(0.0005, 0.001, -0.004, -0.001, time_dim=0))
correct("weight-dependent STDP", rule=lambda net: la.WeightDependentSTDP(0.002, -0.01, time_dim=0),
    prepare=constrained(Clamp(0.0, 1.0)), advice=())
correct("a kernel", rule=lambda net: la.KernelSTDP(GaussianKernel(0.02, 5.0, -0.005), time_dim=0))
correct("Clopath", net=lambda: Net(SurrogateLIF(OUTPUTS, time_dim=0)),
    rule=lambda net: la.Clopath(0.02, -0.02, 0.1, 0.3, time_dim=0),
    prepare=constrained(Clamp(0.0, 1.0)))
correct("inhibitory STDP", rule=lambda net: la.InhibitorySTDP(1e-3, target_rate=50.0, time_dim=0),
    prepare=constrained(Clamp(0.0, 1.0)))
correct("homeostasis wakes silent neurons",
    rule=lambda net: la.Homeostasis(0.05, target=100.0, time_dim=0),
    prepare=lambda net, rule: nn.init.constant_(net.fc.weight, 0.01))


def homeostasis_beside(net):
    """A second rule of the same cell, by hand."""
    rule, other = stdp(), la.Homeostasis(1e-4, target=50.0, time_dim=0)
    vars(rule)["other"] = other
    other.register_cell("enc", Cell(net.fc, net.lif))
    return rule


def call_other(net, rule, i):
    rule.other(carry=False)
    rule.other.update()


correct("two rules on one connection, by hand", rule=homeostasis_beside, on={"updated": call_other},
    hosts=(HAND,))
correct("two rules on one connection, in two callbacks", hosts=(CALLBACK,), learners=lambda: [
    learner(la.Homeostasis(1e-4, target=50.0, time_dim=0), {"rate": CellSpec("net.fc", "net.lif")})
])

# ====================================================================== rewards and errors
correct("rewards of both signs", rule=mstdp, inputs=("reward",),
    step=rewarded(lambda i: (-1.0) ** i))
correct("rewards of mean 0 for potentiation only", rule=lambda net: MSTDPET(0.01, 0.0, time_dim=0),
    inputs=("reward",), step=rewarded(lambda i: torch.tensor([1.0, -1.0, 0.5, -0.5]) * (-1.0) ** i),
    epochs=10, advice=())
correct("a rare reward", rule=mstdp, inputs=("reward",),
    step=rewarded(lambda i: float(i % 16 == 5)), epochs=4)
correct("a neuromodulator that lasts from trial to trial", inputs=("reward",), carry=True,
    rule=lambda net: MSTDPET(0.01, -0.008, time_dim=0, reward=la.Neuromodulator(20.0, -0.05)),
    step=rewarded(lambda i: float(i % 4 == 1)))


def against_baseline(net, x, i):
    net.lif.reset()
    return {"reward": net.baseline(net(x).mean((0, 2)))}


correct("a reward against its baseline", net=lambda: Net(baseline=RewardBaseline(0.9)), rule=mstdp,
    step=against_baseline, inputs=("reward",))


def trained_readout(net):
    return torch.optim.SGD(net.readout.parameters(), 0.1)


def erring_with_loss(net, x, i):
    net.rest()
    y = net(x).mean(0)
    label = (x.sum((1, 2)) > x.sum((1, 2)).median()).long()
    error = (y.softmax(-1) - nn.functional.one_hot(label, 2)).detach()
    return {"error": error, "loss": nn.functional.cross_entropy(y, label)}


correct("e-prop, and an optimizer of the readout", net=Errors, rule=eprop, step=erring_with_loss,
    inputs=("error",), optimizer=trained_readout)
correct("e-prop below a readout that is frozen", net=Errors, rule=eprop, step=erring,
    inputs=("error",), prepare=lambda net, rule: net.readout.requires_grad_(False))


def backwards(net, x, i):
    net.rest()
    net(x).square().mean().backward()


correct("OTTT", net=lambda: Errors(gradient="step"), rule=lambda net: la.OTTT(0.05, time_dim=0),
    step=backwards, prepare=lambda net, rule: net.readout.requires_grad_(False))


def regressed(net, x, i):
    net.rest()
    return {"error": (net(x).mean(0) - x.mean(1)[:, :OUTPUTS]).detach()}


correct("a readout by the delta rule", net=lambda: Net(lif=LeakyIntegrator(OUTPUTS, time_dim=0)),
    rule=lambda net: la.DeltaRule(0.05, tc_readout=20.0, time_dim=0), step=regressed,
    inputs=("error",))


# ====================================================================== rules of rates
def run_rates(net, x, i):
    net.lif(net.fc(x))


for rate_rule, end in {
    la.Hebb: nn.Sigmoid,
    la.AntiHebb: nn.Sigmoid,
    la.Oja: nn.Identity,
    la.Sanger: nn.Identity,
    la.BCM: nn.ReLU,
    la.Covariance: nn.ReLU,
    la.SoftHebb: nn.Identity,
    la.WTAHebb: nn.Identity,
}.items():
    correct(f"{rate_rule.__name__} of rates", net=partial(lambda end: Net(lif=end()), end),
        rule=partial(lambda kind, net: kind(0.01), rate_rule), step=run_rates,
        data=lambda: list(torch.rand(12, BATCH, INPUTS)))


# ====================================================================== neurons, connections
for name, neuron in {
    "adaptive neurons": lambda: AdaptiveLIF(OUTPUTS, time_dim=0),
    "lateral inhibition": lambda: LIF(OUTPUTS, inhibition=LateralInhibition(0.2), time_dim=0),
    "a refractory period": lambda: LIF(OUTPUTS, refractory=3.0, time_dim=0),
    "a competition": lambda: Competition(LIF(OUTPUTS, time_dim=0), OUTPUTS, time_dim=0),
    "surrogate neurons": lambda: SurrogateLIF(OUTPUTS, time_dim=0),
}.items():
    correct(name, net=partial(lambda neuron: Net(neuron()), neuron))


class Slow(nn.Module):
    """A neuron of one's own, which forgets between calls."""

    def forward(self, x):
        v, spikes = torch.zeros_like(x[0]), []
        for current in x:
            v = 0.9 * v + current
            spikes.append((v > 1.0).float())
            v = v * (v <= 1.0)
        return torch.stack(spikes)


class Tidy(Slow):
    """It ends each call at rest, in a tensor that it keeps."""

    def forward(self, x):
        self.v = torch.zeros_like(x[0])
        return super().forward(x)

    def reset(self):
        del self.v


correct("a neuron of one's own", net=lambda: Net(Slow()))


def passing(state):
    """Runs a neuron whose state the caller keeps."""

    def step(net, x, i):
        now = state(net.lif)
        for each in x.transpose(0, 1):
            _, now = net.lif(net.fc(each), now)

    return step


def reset_mem(net, x, i):
    net.lif.reset_mem()
    by_steps(net, x, i)


SNN, NORSE, JELLY = "snntorch", "norse.torch", "spikingjelly.activation_based.neuron"
for name, library, foreign, high, step, time in [
    ("snnTorch", SNN, lambda s: s.Leaky(0.9), 0.35, passing(lambda n: n.init_leaky()), None),
    ("snnTorch, hidden", SNN, lambda s: s.Leaky(0.9, init_hidden=True), 0.35, reset_mem, None),
    ("Norse step by step", NORSE, lambda n: n.LIFCell(), 2.0, passing(lambda n: None), None),
    ("Norse by sequences", NORSE, lambda n: n.LIF(), 2.0, whole, 0),
    ("SpikingJelly step by step", JELLY, lambda j: j.LIFNode(2.0), 1.0, stepwise, None),
    ("SpikingJelly by sequences", JELLY, lambda j: j.LIFNode(2.0, step_mode="m"), 1.0, whole, 0),
]:
    made = lambda each, lib, high: Net(each(pytest.importorskip(lib)), dense(high=high))  # noqa: E731
    correct(name, net=partial(made, foreign, library, high), step=step,
        rule=pairs(0.01, -0.008, time_dim=time))


correct("a Poisson encoder", net=lambda: Net(encode=PoissonEncoder(20, 200.0, seed=0)),
    step=lambda net, x, i: whole(net, net.encode(x).float().transpose(0, 1), i),
    data=lambda: list(torch.rand(12, BATCH, INPUTS)))


def images():
    generator = torch.Generator().manual_seed(0)
    return list((torch.rand(8, BATCH, 10, 1, 6, 6, generator=generator) < 0.3).float())


correct("a convolution", data=images,
    net=lambda: Net(LIF((2, 4, 4), time_dim=0), uniform(Conv2d(1, 2, 3, bias=False), 0.0, 0.4)))


def recurrent(net, x, i):
    net.lif.reset()
    spikes = torch.zeros(x.shape[0], OUTPUTS)
    for each in x.transpose(0, 1):
        spikes = net.lif(net.fc(each) + net.recurrent(spikes))


def rewired(net, x, i):
    whole(net, x, i)
    if i % 3 == 2:
        Rewire(0.1, start=0.2, seed=i)(net.fc)


def synapses():
    return uniform(SparseLinear(INPUTS, OUTPUTS, 0.5, bias=False), 0.0, 0.4)


correct("few synapses", net=lambda: Net(fc=synapses()), step=rewired,
    prepare=constrained(Normalize(2.0), Clamp(0.0, 1.0)))
correct("recurrent connections",
    net=lambda: Net(LIF(OUTPUTS), recurrent=uniform(RecurrentLinear(OUTPUTS), 0.0, 0.1)),
    rule=pairs(0.01, -0.008, time_dim=None), step=recurrent,
    cells={"in": CellSpec("fc", "lif"), "recurrent": CellSpec("recurrent", "lif")})


BOTH = {**ENC, "top": CellSpec("fc2", "lif2")}
correct("two layers", net=Deep, cells=BOTH)


def driven(net, x, i):
    """Two connections drive the same neurons."""
    net.rest()
    net.lif(net.fc(x.transpose(0, 1)) + net.fc2(x.transpose(0, 1).flip(-1)))


def taught(net, x, i):
    """The neurons fire as a teacher says, whatever drives them."""
    net.fc(x.transpose(0, 1))
    net.lif(x.transpose(0, 1)[..., :OUTPUTS].roll(1, 0))


correct("two connections to the same neurons", net=lambda: Net(**second(high=0.2)), step=driven,
    cells={"a": CellSpec("fc", "lif"), "b": CellSpec("fc2", "lif")})
correct("a teacher says when neurons fire", net=lambda: Net(nn.Identity()), step=taught)


def delays_clamped(net, rule):
    attach_updater(net.fc, "delay").register_constraint(Clamp(0.0, 5.0), "delay")


correct("delays that a clamp keeps in range", net=lambda: delayed(delay=2.0),
    rule=lambda net: la.DelayAdjustedSTDP(4.0, -4.0, params=["delay"], time_dim=0),
    prepare=delays_clamped)


# ====================================================================== streams and windows
def through(net, x, i):
    net(x)


correct("pieces of a stream", step=through, carry=True)
correct("a neuron that ends at rest, and is not reset", net=lambda: Net(Tidy()), step=through)


def by_task(net, x, i):
    """A rest before each task, of four batches."""
    if i % 4 == 0:
        net.rest()
    net(x)


def cleared_by_task(net, rule, i):
    if i % 4 == 0:
        rule.clear()


correct("a rest before each task of a stream", step=by_task, carry=True)
correct("a rest before each task, and traces are cleared", step=by_task, carry=True,
    on={"batch": cleared_by_task})


def meta_reset(net, rule, i):
    if i % 4 == 0:
        net.rest()
        rule.clear()


def learned_in_tasks():
    """The weights of each task begin as the first ones, as in meta-learning."""
    program = restores("batch", every=4)
    load = program["on"]["batch"]
    both = lambda *given: (load(*given), meta_reset(*given))  # noqa: E731
    return {**program, "on": {"batch": both}}


correct("weights and neurons begin anew in each task", **learned_in_tasks())
correct("one long stream, step by step", alone=lambda: online(update_every=1), hosts=(HAND,))
correct("updates every few steps", alone=lambda: online(update_every=5), hosts=(HAND,))


def online(update_every):
    layer = la.Serial(dense(kind=la.nn.Linear), LIF(OUTPUTS))
    rule = STDP(0.001, -0.0008)
    rule.register_cell("enc", layer.cell)
    for x in spikes():
        layer.neuron.reset()
        rule.clear()
        learn_online(rule, layer, x.transpose(0, 1), update_every=update_every)


correct("windows of different length",
    data=lambda: [spikes(1, steps=steps)[0] for steps in (15, 3, 40, 1, 22, 9, 30, 12, 5, 18)],
    advice=())
correct("batches of different size",
    data=lambda: [spikes(1, batch=size)[0] for size in (4, 1, 7, 3, 4, 4, 2, 5, 1, 1)])
correct("a single batch", data=lambda: spikes(1), epochs=1)
correct("sparse activity", data=lambda: spikes(24, rate=0.02),
    net=lambda: Net(LIF(OUTPUTS, v_threshold=0.3, time_dim=0)))


def blank(rate):
    """Some batches, or some inputs, are empty."""

    def data():
        batches = spikes(24)
        for i, x in enumerate(batches):
            x *= float(i % 3 == 0) if rate else 1.0
            x[..., : INPUTS // 2] = 0
        return batches

    return data


correct("half of the inputs are always dark", data=blank(0.0))
correct("two of three batches are blank", data=blank(1.0))
correct("neurons that begin to fire late",
    net=lambda: Net(LIF(OUTPUTS, v_threshold=2.0, time_dim=0)),
    data=lambda: [x * (0.2 if i < 8 else 1.0) for i, x in enumerate(spikes(24))],
    rule=lambda net: la.Homeostasis(0.01, target=100.0, time_dim=0),
    step=lambda net, x, i: whole(net, (x > 0).float(), i))

# ====================================================================== rates and schedules
correct("rates of 0 for a control", rule=pairs(0.0, 0.0))
correct("rates of 0 for a control, in pieces of a stream", rule=pairs(0.0, 0.0), step=through,
    carry=True)
correct("a schedule that ends at 0",
    callback={"lr_scheduler": partial(lr_scheduler.CosineAnnealingLR, T_max=16)}, hosts=(CALLBACK,))


correct("a scale that goes down to 0", scale=lambda i: max(0.0, 1 - i / 8), hosts=(HAND, FABRIC))
correct("small rates, few updates", rule=pairs(1e-5, -1e-5), epochs=1)

# ====================================================================== weights
correct("weights that are clamped", prepare=constrained(Clamp(0.0, 0.4)), advice=())
correct("weights of one norm", prepare=constrained(Normalize(1.0)))


def sharply_bound(net, rule):
    attach_updater(net.fc, "weight").weight.fullbound("sharp", 0.3, 0.0)


correct("weights partly at sharp bounds", prepare=sharply_bound)
correct("weights that reach their limits and stay", rule=pairs(1.0, 1.0),
    prepare=constrained(Clamp(0.0, 0.5)), epochs=4)
correct("weights in bfloat16, with large rates", net=lambda: Net(fc=dense().bfloat16()),
    rule=pairs(0.1, -0.1), step=lambda net, x, i: whole(net, x.bfloat16(), i))
correct("mixed precision", trainer={"precision": "bf16-mixed"}, hosts=(CALLBACK,))
correct("pruned weights stay at 0", prepare=lambda net, rule: constrained(
    lambda weight, mask=(net.fc.weight > 0.1): weight.mul_(mask))(net, rule))
correct("weights of two values, with large rates", rule=pairs(0.1, -0.12),
    prepare=constrained(lambda weight: weight.mul_(4).round_().div_(4)))


def converge(net, rule):
    """Begins where an earlier training ended."""
    other = STDP(0.05, -0.04, time_dim=0)
    updater = attach_updater(net.fc, "weight")
    updater.register_constraint(Normalize(1.0))
    other.register_cell("enc", Cell(net.fc, net.lif))
    for i, x in enumerate(spikes(24)):
        whole(net, x, i)
        other(carry=False)
        other.update()
    other.eval()
    other.del_cell("enc")


correct("trained weights, which hardly move", rule=pairs(1e-7, -1e-7), prepare=converge,
    hosts=HOSTED, epochs=1)
correct("another part of the program keeps the norm after each batch",
    on={"updated": lambda net, rule, i: net.fc.weight.data.div_(net.fc.weight.data.norm())})


def averaged():
    """Weights become an average after each epoch."""
    before = {}

    def begin(net, rule):
        before["weight"] = net.fc.weight.detach().clone()

    def average(net, rule, i):
        net.fc.weight.data.lerp_(before["weight"], 0.5)
        before["weight"] = net.fc.weight.detach().clone()

    return {"prepare": begin, "on": {"epoch": average}, "epochs": 4}


correct("weights are averaged after each epoch", **averaged())


def cycle(rate, *factors):
    """Three batches again and again, whose updates cancel each other in each epoch."""

    def step(net, x, i):
        net.fc(x)
        net.lif(x[..., :OUTPUTS].roll(1, 0) * factors[i % 3])

    return {
        "net": lambda: Net(nn.Identity()),
        "rule": lambda net: la.Hebb(rate),
        "data": lambda: [spikes(1)[0][:, 0]] * 3,
        "prepare": lambda net, rule: nn.init.constant_(net.fc.weight, 0.25),
        "step": step,
        "epochs": 20,
    }


def rounded(net, rule, i):
    net.fc.weight.data.mul_(256).round_().div_(256)


correct("weights settle in a cycle", **cycle(2**-8, 1.0, 1.0, -2.0))
correct("weights settle in a cycle up to rounding", **cycle(0.0123, 1.1, 0.9, -2.0))
correct("weights in such a cycle are rounded after each epoch", on={"epoch": rounded},
    **cycle(0.0123, 1.1, 0.9, -2.0))


def best():
    """The best weights are loaded again when all is over."""
    kept = {}

    def keep(net, rule, i):
        if i == 9:
            kept.update(copy.deepcopy(net.state_dict()))

    def load(net, rule, i):
        net.load_state_dict(kept)

    return {"on": {"updated": keep, "end": load}}


correct("the best weights are loaded at the end", **best())


# ====================================================================== parts that rest
def half_asleep(net, rule):
    net.fc2.eval(), net.lif2.eval()


def rests_later(net, rule, i):
    net.lif.eval(), net.fc.eval()


correct("a frozen layer beside one that learns", net=Deep, cells=BOTH, prepare=half_asleep)
correct("a layer that rests after its first epoch", on={"epoch": rests_later}, epochs=3,
    hosts=HOSTED)


def in_turn(net, rule, i):
    """One layer learns in even epochs, the other one in odd ones."""
    first = i // 8 % 2 == 0
    for module in (net.fc, net.lif):
        module.train(first)
    for module in (net.fc2, net.lif2):
        module.train(not first)


correct("layers that learn in turn", net=Deep, cells=BOTH, on={"batch": in_turn}, epochs=4)


def tested(net, rule, i):
    """A test in evaluation mode, and with the rule asleep too."""
    net.eval()
    for x in spikes(20):
        whole(net, x, i)
    net.train()
    net.rest()


correct("a test after each epoch", on={"epoch": tested})
correct("a few calls after the last batch that is learned", hosts=(HAND,), epochs=3,
    on={"batch": lambda net, rule, i: net.train(i < 12), "end": lambda net, rule, i: rule.eval()})


# ====================================================================== optimizers beside rules
def classified(net, x, i):
    net.rest()
    label = (x.sum((1, 2)) > x.sum((1, 2)).median()).long()
    return {"loss": nn.functional.cross_entropy(net.head(net(x).mean(0).detach()), label)}


HEADED = {
    "net": lambda: Net(head=nn.Linear(OUTPUTS, 2)),
    "step": classified,
    "optimizer": lambda net: torch.optim.Adam(net.head.parameters()),
}
correct("an optimizer of the readout", **HEADED)
correct("updates of several batches", every=4)
correct("gradients of several batches", **HEADED, trainer={"accumulate_grad_batches": 4},
    hosts=(CALLBACK,))


def rarely(module, x, i):
    """Steps the layer's own optimizer after every fourth batch."""
    if i % 4 == 3:
        module.optimizers().step()


class ByLoss(Lit):
    """A readout by a loss, in automatic optimization."""

    def __init__(self):
        super().__init__(automatic=True, head=nn.Linear(OUTPUTS, 2))

    def training_step(self, batch, batch_idx):
        return self.head(self(batch).mean(0)).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("loss", self.training_step(batch, batch_idx), batch_size=len(batch))

    test_step = validation_step

    def predict_step(self, batch, batch_idx):
        return self(batch)

    def configure_optimizers(self):
        return torch.optim.Adam(self.head.parameters())


def exported_in_fabric():
    net, use = set_up()
    sgd = torch.optim.SGD(net.fc.parameters(), lr=1.0)
    for _i in recorded(net, use):
        sgd.zero_grad()
        use.updates_as_gradients()
        sgd.step()
    use.release()


def momentum(module):
    return torch.optim.SGD(module.fc.parameters(), lr=1.0, momentum=0.5)


def in_callback(name, program, **more):
    """Adds a program with a Trainer of its own."""
    correct(name, alone=program, hosts=(CALLBACK,), **more)


def in_loop(name, program, **more):
    """Adds a program that calls its rule by hand."""
    correct(name, alone=program, hosts=(HAND,), **more)


in_callback("the module's own optimizer steps rarely", lambda: fit(Lit(rarely, local), learner()))
in_callback("automatic optimization without a loss", lambda: fit(Lit(automatic=True), learner()))
in_callback("updates as gradients in a fit", lambda: fit(Lit(step_exported, momentum), learner()))
in_loop("updates as gradients, by hand", lambda: exported(torch.optim.Adam, lr=1e-3))
correct("updates as gradients under Fabric", alone=exported_in_fabric, hosts=(FABRIC,))


def by_optimizer():
    net, rule = registered()
    optimizer = UpdateOptimizer(net.fc.parameters(), updaters=[rule.updater_of("enc")])
    for _i in windows(net, rule):
        optimizer.step()


in_loop("an UpdateOptimizer, by hand", by_optimizer)


# ====================================================================== fits
def control(learn):
    """A control run makes its learner, and leaves it out."""
    use = learner()
    fit(ByLoss(), *([use] if learn else []))


def again(module, use):
    """Several fits."""
    for _ in range(3):
        fit(module(), use())


def always(thing):
    return lambda: thing


def resumed():
    """A fit is saved, and goes on in another process."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/fit.ckpt"
        fit(Lit(), learner()).save_checkpoint(path)
        quiet_trainer(learner(), max_epochs=4).fit(Lit(), loader(), ckpt_path=path)
        quiet_trainer(learner(), max_epochs=4).fit(Lit(), loader(), ckpt_path=path)


def interrupted(at):
    net = Lit(fails(at))
    with contextlib.suppress(OSError):
        fit(net, learner())
    if at:
        fit(net, learner())


def validated():
    trainer = quiet_trainer(learner(), max_epochs=2, num_sanity_val_steps=2)
    net = ByLoss()
    trainer.fit(net, loader(), loader())
    trainer.test(net, loader(), verbose=False)
    trainer.predict(net, loader())


def layer_by_layer():
    """The second layer learns when the first one has."""
    net = Lit(lambda module, x, i: run_second(module, module(x)), **second(OUTPUTS, 0.2, 0.9))
    fit(net, learner())
    fit(net, learner(cells={"top": CellSpec("fc2", "lif2")}))


def swa():
    average = pl.callbacks.StochasticWeightAveraging(0.01, swa_epoch_start=1)
    fit(ByLoss(), learner(), average, max_epochs=3)


def both_networks():
    """Two learners, of two layers, in one fit."""
    pair = Lit(lambda module, x, i: run_second(module, x.transpose(0, 1)), **second())
    other = learner(la.TripletSTDP(0.0005, 0.001, -0.004, -0.001, time_dim=0), TOP)
    fit(pair, learner(), other)


TOP = {"top": CellSpec("fc2", "lif2")}
in_callback("a control run that never fits its learner", lambda: control(learn=False))
in_callback("the same program with its learner", lambda: control(learn=True))
in_callback("several fits with one learner", lambda: again(always(Lit()), always(learner())))
in_callback("one learner for several modules", lambda: again(Lit, always(learner())))
in_callback("a fit that is saved and resumed, twice", resumed)
in_callback("a fit that fails and is begun again", lambda: interrupted(5))
in_callback("a fit that fails in its first batch", lambda: interrupted(0))
in_callback("validation, test and prediction", validated)
in_callback("layer by layer", layer_by_layer)
in_callback("stochastic weight averaging", swa)
in_callback("two learners in one fit", both_networks)
in_callback("fast_dev_run", lambda: fit(Lit(), learner(), fast_dev_run=True))
in_callback("no logs and no summary", lambda: fit(Lit(), learner(log=False, summary=False)))


# ====================================================================== loops and notebooks
def looked_at():
    """A rule that is made, and never used."""
    repr(STDP(0.01, -0.008)), repr(registered()), repr(learner())


def ran_only():
    """A network that runs a few times while a rule records it."""
    net, _rule = registered()
    for x in spikes(1):
        net.rest()
        net(x[:, :4])


def apply_and_drop(net, rule, i):
    """Reads what would change, and drops it."""
    weight = rule.updater_of("enc").weight
    net.fc.weight.data += 0.5 * (weight.pos - weight.neg)
    weight.clear()


def rejected_now_and_then():
    """Trials that failed are not learned."""
    net, rule = registered()
    for i, x in enumerate(spikes(24)):
        whole(net, x, i)
        if i % 3 == 0:
            rule.clear()
            continue
        rule(carry=False)
        if i % 3 == 1:
            rule.updater_of("enc").clear()
        rule.update()


def copied():
    """Copies go on learning on their own, and are saved and loaded."""
    net, rule = registered()
    for i in windows(net, rule, 12):
        rule.update()
        if i == 5:
            other, its_rule = copy.deepcopy((net, rule))
            its_rule.register_cell("enc", Cell(other.fc, other.lif))
            pickled = pickle.loads(pickle.dumps((net, rule)))
    for i, x in enumerate(spikes(12)):
        whole(other, x, i)
        its_rule(carry=False)
        its_rule.update()
    del pickled


def half_of_the_time(net, rule, i):
    """Calls the rule in a test too, in which nothing is recorded."""
    nn.ModuleList([net, rule]).train(i % 4 < 2)


def plain_updater():
    """Assigns changes of its own, and applies them."""
    fc = nn.Linear(INPUTS, OUTPUTS)
    updater = attach_updater(fc, "weight")
    for _ in range(40):
        updater.weight = 1e-3 * torch.randn(OUTPUTS, INPUTS)
        updater()


for name, program in {
    "a rule that is looked at": looked_at,
    "a network that runs while a rule records it": ran_only,
    "trials that are not learned": rejected_now_and_then,
    "copies in the midst of learning": copied,
    "changes of one's own": plain_updater,
    "many short runs": lambda: [by_hand(Program(name="one", epochs=1)) for _ in range(4)],
}.items():
    in_loop(name, program)
BY_HAND = {"hosts": (HAND,), "epochs": 3}
correct("a few windows whose change is read", **{**BY_HAND, "epochs": 1}, update=False,
    data=lambda: spikes(4), on={"end": lambda net, rule, i: rule.updater_of("enc").weight.pos + 0})
correct("changes that are measured from the same weights", **BY_HAND, **restores("batch"))
correct("changes that are read, applied and dropped", **BY_HAND, update=False,
    on={"updated": apply_and_drop})
correct("one update of all batches", **BY_HAND, every=24)
correct("trials of steps", **BY_HAND, net=lambda: Net(LIF(OUTPUTS)), inputs=("reward",),
    rule=lambda net: MSTDPET(0.01, -0.008), step=rewarded(lambda i: (-1.0) ** i, stepwise))
correct("a rule that is called in tests too", **BY_HAND,
    on={"batch": half_of_the_time, "end": lambda net, rule, i: (net.eval(), rule.eval())})
correct("an update that is dropped", **BY_HAND, rule=mstdp,
    prepare=lambda net, rule: attach_updater(net.fc, "weight", nonfinite="skip"),
    step=rewarded(lambda i: float("inf") if i == 11 else (-1.0) ** i))
correct("parts of a batch under Fabric", every=3, hosts=(FABRIC,))


def left():
    """A loop that is not released."""
    net, use = set_up()
    for _i in recorded(net, use):
        use.step()


def set_up_only():
    use = FabricCellTrainer(stdp(), ENC)
    use.setup(Net())
    use.release()


for name, program in {
    "a loop under Fabric that is not released": left,
    "a learner that is set up and released": set_up_only,
}.items():
    correct(name, alone=program, hosts=(FABRIC,))


# ====================================================================== advice, and no warning
correct("advice: neurons that spike in most steps",
    net=lambda: Net(LIF(OUTPUTS, v_threshold=0.05, time_dim=0)),
    advice=("`enc`", "spike in", "of the steps"), hosts=HOSTED)
correct("advice: an input that spikes in most steps", data=lambda: spikes(8, rate=0.8),
    advice=("input of `enc`", "spikes in"), hosts=HOSTED)
correct("advice: neurons that fall silent", rule=pairs(0.001, -0.3),
    prepare=constrained(Clamp(0.0, 1.0)), epochs=4, advice=("`enc`", "fired at first"),
    hosts=HOSTED)
correct("advice: single steps", data=lambda: spikes(40, steps=1, rate=0.8),
    prepare=lambda net, rule: nn.init.uniform_(net.fc.weight, 0.2, 0.6),
    advice=("`enc`", "single step"), hosts=HOSTED)
correct("advice: a rate of 0", rule=pairs(0.0, 0.0), advice=("enc", "unchanged", "0"), hosts=HOSTED)
correct("advice: an optimizer that hardly moves weights",
    alone=lambda: fit(Lit(step_exported, lambda m: torch.optim.Adam(m.fc.parameters(), lr=1e-8)),
    learner()), advice=("enc", "by a share of", "rate of its optimizer"), hosts=(CALLBACK,))
correct("advice: weights hardly moved", rule=pairs(1e-8, -0.8e-8), epochs=3,
    advice=("enc", "by a share of"), hosts=HOSTED)
correct("advice: weights that grow", rule=pairs(0.5, 0.0), epochs=4, advice=("norm", "enc", "grew"),
    hosts=HOSTED)
correct("advice: a reward that is always the same", rule=mstdp, inputs=("reward",),
    step=rewarded(lambda i: 1.0), advice=("`reward`", "was 1"), hosts=HOSTED)
correct("advice: a reward that is never negative", rule=mstdp, inputs=("reward",),
    step=rewarded(lambda i: float(i % 2)), epochs=8, advice=("`reward`", "below 0"), hosts=HOSTED)
correct("advice: negative outputs under BCM", net=lambda: Net(nn.Identity(), fc=dense(-1.0, 0.5)),
    rule=lambda net: la.BCM(1e-4), step=run_rates, data=lambda: list(torch.rand(40, 16, INPUTS)),
    advice=("`enc`", "negative"), hosts=HOSTED)
correct("advice: weights beyond the range of the rule",
    rule=lambda net: la.WeightDependentSTDP(0.002, -0.002, w_min=0.3, w_max=1.0, time_dim=0),
    advice=("enc", "range"), hosts=HOSTED)
correct("advice: neurons that never won", net=lambda: Net(nn.Identity()),
    rule=lambda net: la.WTAHebb(0.01),
    prepare=lambda net, rule: nn.init.zeros_(net.fc.weight[1:].detach()), step=run_rates,
    data=lambda: list(torch.rand(8, BATCH, INPUTS)), advice=("`enc`", "never won"), hosts=HOSTED)
correct("advice: neurons that are all alike",
    prepare=lambda net, rule: nn.init.constant_(net.fc.weight, 0.2),
    advice=("`enc`", "same weights", "`WinnerTakeAll`"), hosts=HOSTED)
correct("advice: neurons of another library that are all alike", net=lambda: Net(nn.Identity()),
    rule=lambda net: la.Hebb(0.001), step=run_rates,
    data=lambda: list(torch.rand(8, BATCH, INPUTS)),
    prepare=lambda net, rule: nn.init.constant_(net.fc.weight, 0.2),
    advice=("`enc`", "same weights", "with `Competition`"), hosts=HOSTED)
correct("advice: delays that stay in their step", net=lambda: delayed(delay=2.0),
    rule=lambda net: la.DelayAdjustedSTDP(1e-4, -1e-4, params=["delay"], time_dim=0),
    prepare=delays_clamped, advice=("delay", "step"), hosts=HOSTED)
correct("advice: a layer that rests from the beginning", net=Deep, cells=BOTH, prepare=half_asleep,
    advice=("`top`", "evaluation mode"), hosts=HOSTED)
correct("advice: a rate that leaves its target",
    rule=lambda net: la.Homeostasis(-1e-3, target=300.0, time_dim=0), epochs=8,
    advice=("`enc`", "target"), hosts=HOSTED)
correct("advice: a clamp over first weights that are negative",
    net=lambda: Net(fc=dense(-0.5, 0.5, kind=la.nn.Linear)),
    prepare=lambda net, rule: constrained(Clamp(0.0, 1.0))(net, rule), advice=("enc", "limits"),
    hosts=HOSTED)

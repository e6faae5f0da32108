"""Correct programs, of which nothing is warned."""

from __future__ import annotations

import contextlib
import copy
import itertools
import pickle
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

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
    Errors,
    Lit,
    Net,
    Program,
    eprop,
    erring,
    fit,
    learner,
    loader,
    mstdp,
    quiet_trainer,
    recorded,
    registered,
    rewarded,
    set_up,
    spikes,
    stepwise,
    uniform,
    whole,
    windows,
)
from torch import Tensor, nn

import lightning_accum as la
from lightning_accum import MSTDPET, STDP, Cell, CellSpec, Clamp, Normalize, attach_updater
from lightning_accum.callbacks import CellTrainerCallback, FabricCellTrainer
from lightning_accum.functional import GaussianKernel, bound_power, bound_sharp
from lightning_accum.nn import (
    LIF,
    AdaptiveLIF,
    Competition,
    Conv2d,
    DelayedLinear,
    LateralInhibition,
    LeakyIntegrator,
    PoissonEncoder,
    RecurrentLinear,
    RewardBaseline,
    SurrogateLIF,
    WinnerTakeAll,
)
from lightning_accum.optim import UpdateOptimizer, updates_as_gradients
from lightning_accum.rules import RandomFeedback, learn_online

CORRECT: list[Program] = []
# The rows of the table fill their lines.
# fmt: off


def correct(name: str, **program: Any) -> None:
    """Adds a program."""
    CORRECT.append(Program(name=name, **program))


def constrained(*constraints: Callable[[Tensor], object]) -> Any:
    """Returns a preparation that registers constraints."""

    def prepare(net: Any, rule: Any) -> None:
        for each in constraints:
            attach_updater(net.fc, "weight").register_constraint(each)

    return prepare


# ====================================================================== rules of spikes
correct("STDP of sequences", advice=())
correct("STDP of steps", net=lambda: Net(LIF(OUTPUTS)), rule=lambda net: STDP(0.01, -0.008),
    step=stepwise, advice=())
correct("STDP of nearest spikes",
    rule=lambda n: STDP(0.01, -0.01, trace_mode="nearest", time_dim=0))
correct("triplets", rule=lambda net: la.TripletSTDP(0.0005, 0.001, -0.004, -0.001, time_dim=0))
correct("weight-dependent STDP", rule=lambda net: la.WeightDependentSTDP(0.002, -0.01, time_dim=0),
    prepare=constrained(Clamp(0.0, 1.0)), advice=())
correct("a kernel", rule=lambda net: la.KernelSTDP(GaussianKernel(0.02, 5.0, -0.005), time_dim=0))
correct("a kernel of one's own",
    rule=lambda net: la.KernelSTDP(lambda d: 0.01 * torch.cos(d / 5), time_dim=0))
correct("Clopath", net=lambda: Net(SurrogateLIF(OUTPUTS, time_dim=0)),
    rule=lambda net: la.Clopath(0.02, 0.02, 0.1, 0.3, time_dim=0),
    prepare=constrained(Clamp(0.0, 1.0)))
correct("inhibitory STDP", rule=lambda net: la.InhibitorySTDP(1e-3, target_rate=50.0, time_dim=0),
    prepare=constrained(Clamp(0.0, 1.0)))
correct("homeostasis", rule=lambda net: la.Homeostasis(1e-3, target=50.0, time_dim=0))
correct("homeostasis wakes silent neurons",
    rule=lambda net: la.Homeostasis(0.05, target=100.0, time_dim=0),
    prepare=lambda net, rule: nn.init.constant_(net.fc.weight, 0.01))


def two_rules(net: Any, rule: Any) -> None:
    """A second rule of the same cell, by hand."""
    rule.other.register_cell("enc", Cell(net.fc, net.lif))


def homeostasis_beside(net: Any) -> Any:
    rule = STDP(0.01, -0.008, time_dim=0)
    vars(rule)["other"] = la.Homeostasis(1e-4, target=50.0, time_dim=0)
    return rule


def call_other(net: Any, rule: Any, i: int) -> None:
    rule.other(carry=False)
    rule.other.update()


correct("two rules on one connection, by hand", rule=homeostasis_beside, prepare=two_rules,
    on={"updated": call_other}, hosts=(HAND,))
correct(
    "two rules on one connection, in two callbacks",
    learners=lambda: [
        CellTrainerCallback(
            la.Homeostasis(1e-4, target=50.0, time_dim=0), {"rate": CellSpec("net.fc", "net.lif")}
        )
    ],
    hosts=(CALLBACK,),
)

# ====================================================================== rewards and errors
correct("rewards of both signs", rule=mstdp, inputs=("reward",),
    step=rewarded(lambda i: (-1.0) ** i))
correct("rewards of mean 0 for potentiation only", rule=lambda net: MSTDPET(0.01, 0.0, time_dim=0),
    inputs=("reward",), step=rewarded(lambda i: torch.tensor([1.0, -1.0, 0.5, -0.5]) * (-1.0) ** i),
    epochs=10, advice=())
correct("rewards by chance, of mean 0, for potentiation only",
    rule=lambda net: MSTDPET(0.01, 0.0, time_dim=0), inputs=("reward",),
    step=rewarded(lambda i: float(torch.rand(()) < 0.5) * 2 - 1), epochs=8, advice=())
correct("a rare reward", rule=mstdp, inputs=("reward",),
    step=rewarded(lambda i: float(i % 16 == 5)), epochs=4)
correct("a reward of one sample, once", rule=mstdp, inputs=("reward",),
    step=rewarded(lambda i: torch.eye(BATCH)[0] * (i == 11)))
correct("a reward that gates", rule=mstdp, inputs=("reward",), step=rewarded(lambda i: 1.0))
correct("punishment only", rule=mstdp, inputs=("reward",),
    step=rewarded(lambda i: -torch.ones(BATCH)))


def against_baseline(net: Any, x: Tensor, i: int) -> Any:
    net.rest()
    rate = net(x).mean((0, 2))
    return {"reward": net.baseline(rate)}


class Baseline(Net):
    def __init__(self) -> None:
        super().__init__(baseline=RewardBaseline(0.9))

    def rest(self) -> None:
        self.lif.reset()


correct("a reward against its baseline", net=Baseline, rule=mstdp, step=against_baseline,
    inputs=("reward",))


def trained_readout(net: Any) -> Any:
    return torch.optim.SGD(net.readout.parameters(), 0.1)


def erring_with_loss(net: Any, x: Tensor, i: int) -> Any:
    net.rest()
    y = net(x).mean(0)
    label = (x.sum((1, 2)) > x.sum((1, 2)).median()).long()
    error = (y.softmax(-1) - nn.functional.one_hot(label, 2)).detach()
    return {"error": error, "loss": nn.functional.cross_entropy(y, label)}


correct("e-prop, and an optimizer of the readout", net=Errors, rule=eprop, step=erring_with_loss,
    inputs=("error",), optimizer=trained_readout)
correct("e-prop with random feedback", net=Errors,
    rule=lambda net: eprop(net, feedback=RandomFeedback(2, OUTPUTS)), step=erring_with_loss,
    inputs=("error",), optimizer=trained_readout)
correct("e-prop below a readout that is frozen", net=Errors, rule=eprop, step=erring,
    inputs=("error",), prepare=lambda net, rule: net.readout.requires_grad_(False))
correct("e-prop of adaptive neurons", net=lambda: Errors(beta=0.2),
    rule=lambda net: eprop(net, beta=0.2, tc_adaptation=200.0), step=erring_with_loss,
    inputs=("error",), optimizer=trained_readout)


def backwards(net: Any, x: Tensor, i: int) -> None:
    net.rest()
    net(x).square().mean().backward()


correct("OTTT", net=lambda: Errors(gradient="step"), rule=lambda net: la.OTTT(0.05, time_dim=0),
    step=backwards, prepare=lambda net, rule: net.readout.requires_grad_(False))


def regressed(net: Any, x: Tensor, i: int) -> Any:
    net.rest()
    return {"error": (net(x).mean(0) - x.mean(1)[:, :OUTPUTS]).detach()}


correct("a readout by the delta rule", net=lambda: Net(lif=LeakyIntegrator(OUTPUTS, time_dim=0)),
    rule=lambda net: la.DeltaRule(0.05, tc_readout=20.0, time_dim=0), step=regressed,
    inputs=("error",))


# ====================================================================== rules of rates
def run_rates(net: Any, x: Tensor, i: int) -> None:
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
    "winner takes all": lambda: LIF(OUTPUTS, inhibition=WinnerTakeAll(3), time_dim=0),
    "a refractory period": lambda: LIF(OUTPUTS, refractory=3.0, time_dim=0),
    "a competition": lambda: Competition(LIF(OUTPUTS, time_dim=0), OUTPUTS, time_dim=0),
    "surrogate neurons": lambda: SurrogateLIF(OUTPUTS, time_dim=0),
}.items():
    correct(name, net=partial(lambda neuron: Net(neuron()), neuron))


class Threshold(nn.Module):
    """A neuron of one's own, which keeps no state."""

    def forward(self, x: Tensor) -> Tensor:
        return (x > 0.4).float()


class Slow(nn.Module):
    """A neuron of one's own, which forgets between calls."""

    def forward(self, x: Tensor) -> Tensor:
        v, spikes = torch.zeros_like(x[0]), []
        for current in x:
            v = 0.9 * v + current
            spikes.append((v > 1.0).float())
            v = v * (v <= 1.0)
        return torch.stack(spikes)


correct("a neuron without a state", net=lambda: Net(Threshold()))
correct("a neuron of one's own", net=lambda: Net(Slow()))


class Snn(Net):
    """A neuron of snnTorch, whose potential the caller keeps."""

    def __init__(self, **options: Any) -> None:
        super().__init__(pytest.importorskip("snntorch").Leaky(beta=0.9, **options))

    def run(self, x: Tensor) -> None:
        mem = self.lif.init_leaky()
        for each in x.transpose(0, 1):
            _, mem = self.lif(self.fc(each), mem)


class SnnHidden(Snn):
    """It keeps its potential itself."""

    def __init__(self) -> None:
        super().__init__(init_hidden=True)

    def run(self, x: Tensor) -> None:
        self.lif.reset_mem()
        for each in x.transpose(0, 1):
            self.lif(self.fc(each))


class NorseSteps(Net):
    """A cell of Norse, whose state the caller keeps."""

    def __init__(self) -> None:
        super().__init__(pytest.importorskip("norse.torch").LIFCell())
        uniform(self.fc, 0.0, 2.0)

    def run(self, x: Tensor) -> None:
        state = None
        for each in x.transpose(0, 1):
            _, state = self.lif(self.fc(each), state)


class NorseSequences(NorseSteps):
    def __init__(self) -> None:
        super().__init__()
        self.lif = pytest.importorskip("norse.torch").LIF()

    def run(self, x: Tensor) -> None:
        self.lif(self.fc(x.transpose(0, 1)))


class Jelly(Net):
    """A neuron of SpikingJelly, in single-step or multi-step mode."""

    def __init__(self, mode: str) -> None:
        neurons = pytest.importorskip("spikingjelly.activation_based.neuron")
        super().__init__(neurons.LIFNode(tau=2.0, step_mode=mode))
        self.mode = mode
        uniform(self.fc, 0.0, 1.0)

    def run(self, x: Tensor) -> None:
        self.lif.reset()
        if self.mode == "m":
            self.lif(self.fc(x.transpose(0, 1)))
        else:
            for each in x.transpose(0, 1):
                self.lif(self.fc(each))


for name, make, time in [
    ("snnTorch", Snn, None),
    ("snnTorch with a hidden state", SnnHidden, None),
    ("Norse step by step", NorseSteps, None),
    ("Norse by sequences", NorseSequences, 0),
    ("SpikingJelly step by step", partial(Jelly, "s"), None),
    ("SpikingJelly by sequences", partial(Jelly, "m"), 0),
]:
    correct(name, net=make, rule=partial(lambda time, net: STDP(0.01, -0.008, time_dim=time), time),
        step=lambda net, x, i: net.run(x))


class Encoded(Net):
    """Encodes values as spikes."""

    def __init__(self) -> None:
        super().__init__(encode=PoissonEncoder(20, 200.0, seed=0))

    def forward(self, x: Tensor) -> Tensor:
        return self.lif(self.fc(self.encode(x).float()))


correct("a Poisson encoder", net=Encoded, data=lambda: list(torch.rand(12, BATCH, INPUTS)))


class Convolved(Net):
    """A convolution and its map of neurons."""

    def __init__(self) -> None:
        conv = uniform(Conv2d(1, 2, 3, bias=False), 0.0, 0.4)
        super().__init__(LIF((2, 4, 4), time_dim=0), conv)

    def forward(self, x: Tensor) -> Tensor:
        return self.lif(self.fc(x.transpose(0, 1)))


def images() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return list((torch.rand(8, BATCH, 10, 1, 6, 6, generator=generator) < 0.3).float())


correct("a convolution", net=Convolved, data=images)


class Recurrent(Net):
    """Neurons that drive each other."""

    def __init__(self) -> None:
        super().__init__(LIF(OUTPUTS), recurrent=RecurrentLinear(OUTPUTS))
        uniform(self.recurrent, 0.0, 0.1)

    def run(self, x: Tensor) -> None:
        self.lif.reset()
        spikes = torch.zeros(x.shape[0], OUTPUTS)
        for each in x.transpose(0, 1):
            spikes = self.lif(self.fc(each) + self.recurrent(spikes))


correct("recurrent connections", net=Recurrent, rule=lambda net: STDP(0.01, -0.008),
    cells={"in": CellSpec("fc", "lif"), "recurrent": CellSpec("recurrent", "lif")},
    step=lambda net, x, i: net.run(x))


class Deep(Net):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__(
            fc2=uniform(nn.Linear(OUTPUTS, 4, False), 0.2, 0.9), lif2=LIF(4, time_dim=0)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.lif2(self.fc2(super().forward(x)))


BOTH = {"enc": CellSpec("fc", "lif"), "top": CellSpec("fc2", "lif2")}
correct("two layers", net=Deep, cells=BOTH)


class Driven(Net):
    """Two connections drive the same neurons."""

    def __init__(self) -> None:
        super().__init__(fc2=uniform(nn.Linear(INPUTS, OUTPUTS, False), 0.0, 0.2))

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        return self.lif(self.fc(x) + self.fc2(x.flip(-1)))


correct("two connections to the same neurons", net=Driven,
    cells={"a": CellSpec("fc", "lif"), "b": CellSpec("fc2", "lif")})


class Taught(Net):
    """The neurons fire as a teacher says, whatever drives them."""

    def __init__(self) -> None:
        super().__init__(lif=nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        self.fc(x)
        return self.lif(x[..., :OUTPUTS].roll(1, 0))


correct("a teacher says when neurons fire", net=Taught)


def delayed() -> Any:
    net = Net(fc=DelayedLinear(INPUTS, OUTPUTS, 5.0, delay=2.0, time_dim=0))
    net.fc.weight.requires_grad_(False).fill_(0.3)
    return net


def delays_clamped(net: Any, rule: Any) -> None:
    attach_updater(net.fc, "delay").register_constraint(Clamp(0.0, 5.0), "delay")


correct("delays that a clamp keeps in range", net=delayed,
    rule=lambda net: la.DelayAdjustedSTDP(4.0, -4.0, params=["delay"], time_dim=0),
    prepare=delays_clamped)
correct("weights behind fixed delays",
    net=lambda: Net(fc=uniform(DelayedLinear(INPUTS, OUTPUTS, 5.0, delay=2.0, time_dim=0))),
    rule=lambda net: la.DelayAdjustedSTDP(0.01, -0.008, time_dim=0))


# ====================================================================== streams and windows
def through(net: Any, x: Tensor, i: int) -> None:
    net(x)


correct("pieces of a stream", step=through, carry=True)


def by_task(net: Any, x: Tensor, i: int) -> None:
    """A rest before each task, of four batches."""
    if i % 4 == 0:
        net.rest()
    net(x)


def cleared_by_task(net: Any, rule: Any, i: int) -> None:
    if i % 4 == 0:
        rule.clear()


correct("a rest before each task of a stream", step=by_task, carry=True)
correct("a rest before each task, and traces are cleared", step=by_task, carry=True,
    on={"batch": cleared_by_task})


def learned_in_tasks() -> dict[str, Any]:
    """The weights of each task begin as the first ones, as in meta-learning."""
    first: dict[str, Any] = {}

    def keep(net: Any, rule: Any) -> None:
        first.update(copy.deepcopy(net.fc.state_dict()))

    def meta_reset(net: Any, rule: Any, i: int) -> None:
        if i % 4 == 0:
            net.fc.load_state_dict(first)
            net.rest()
            rule.clear()

    return {"prepare": keep, "on": {"batch": meta_reset}}


correct("weights and neurons begin anew in each task", **learned_in_tasks())
correct("one long stream, step by step", alone=lambda: online(update_every=1), hosts=(HAND,))
correct("updates every few steps", alone=lambda: online(update_every=5), hosts=(HAND,))


def online(update_every: int) -> None:
    layer = la.Serial(uniform(la.nn.Linear(INPUTS, OUTPUTS, bias=False)), LIF(OUTPUTS))
    rule = STDP(0.001, -0.0008)
    rule.register_cell("enc", layer.cell)
    for x in spikes():
        layer.neuron.reset()
        rule.clear()
        learn_online(rule, layer, x.transpose(0, 1), update_every=update_every)


def each_step() -> None:
    net, rule = Net(LIF(OUTPUTS)), STDP(0.001, -0.0008)
    rule.register_cell("enc", Cell(net.fc, net.lif))
    for x in spikes(4):
        net.rest()
        rule.clear()
        for each in x.transpose(0, 1):
            net.lif(net.fc(each))
            rule()
            rule.update()


correct("the rule in each step", alone=each_step, hosts=(HAND,))
correct("windows of different length",
    data=lambda: [spikes(1, steps=steps)[0] for steps in (15, 3, 40, 1, 22, 9, 30, 12, 5, 18)],
    advice=())
correct("batches of different size",
    data=lambda: [spikes(1, batch=size)[0] for size in (4, 1, 7, 3, 4, 4, 2, 5, 1, 1)])
correct("batches of one", data=lambda: spikes(24, batch=1))
correct("a single batch", data=lambda: spikes(1), epochs=1)
correct("long windows", data=lambda: spikes(4, steps=200))
correct("sparse activity", data=lambda: spikes(24, rate=0.02), net=lambda: Net(uniform_lif()))


def uniform_lif() -> Any:
    return LIF(OUTPUTS, v_threshold=0.3, time_dim=0)


def blank(rate: float) -> Callable[[], list[Tensor]]:
    """Some batches, or some inputs, are empty."""

    def data() -> list[Tensor]:
        batches = spikes(24)
        for i, x in enumerate(batches):
            x *= float(i % 3 == 0) if rate else 1.0
            x[..., : INPUTS // 2] = 0
        return batches

    return data


correct("half of the inputs are always dark", data=blank(0.0))
correct("two of three batches are blank", data=blank(1.0))
correct("epochs of one class each",
    data=lambda: [spikes(1)[0] * (torch.arange(INPUTS) < 4) for _ in range(12)])
correct("neurons that begin to fire late",
    net=lambda: Net(LIF(OUTPUTS, v_threshold=2.0, time_dim=0)),
    data=lambda: [x * (0.2 if i < 8 else 1.0) for i, x in enumerate(spikes(24))],
    rule=lambda net: la.Homeostasis(0.01, target=100.0, time_dim=0),
    step=lambda net, x, i: whole(net, (x > 0).float(), i))

# ====================================================================== rates and schedules
correct("rates of 0 for a control", rule=lambda net: STDP(0.0, 0.0, time_dim=0))
correct("rates of 0 for a control, in pieces of a stream",
    rule=lambda net: STDP(0.0, 0.0, time_dim=0), step=through, carry=True)
correct("potentiation only, clamped", rule=lambda n: STDP(0.01, 0.0, time_dim=0),
    prepare=constrained(Clamp(0, 1)))
correct("a schedule that ends at 0",
    callback={"lr_scheduler": partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=16)},
    hosts=(CALLBACK,))
correct(
    "a warm-up",
    callback={
        "lr_scheduler": partial(
            torch.optim.lr_scheduler.LinearLR, start_factor=0.01, total_iters=12
        )
    },
    hosts=(CALLBACK,),
)
correct(
    "a schedule by epochs",
    epochs=4,
    callback={
        "lr_scheduler": partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5),
        "lr_interval": "epoch",
    },
    hosts=(CALLBACK,),
)


def decaying() -> None:
    """A loop whose scale goes down to 0, by hand."""
    net, rule = registered()
    for i in windows(net, rule):
        rule.update(scale=max(0.0, 1 - i / 12))


def decaying_in_fabric() -> None:
    net, learner = set_up()
    for i in recorded(net, learner):
        learner.step(scale=max(0.0, 1 - i / 12))
    learner.release()


correct("a scale that goes down to 0", alone=decaying, hosts=(HAND,))
correct("a scale that goes down to 0 under Fabric", alone=decaying_in_fabric, hosts=(FABRIC,))
correct("small rates, few updates", rule=lambda n: STDP(1e-5, -1e-5, time_dim=0), epochs=1)

# ====================================================================== weights
correct("weights that are clamped", prepare=constrained(Clamp(0.0, 0.4)), advice=())
correct("weights of one norm", prepare=constrained(Normalize(1.0)))
correct("weights of one norm, clamped", prepare=constrained(Clamp(0.0, None), Normalize(1.0)))


def softly_bound(net: Any, rule: Any) -> None:
    attach_updater(net.fc, "weight").weight.fullbound(bound_power, 1.0, 0.0, power=1.0)


def sharply_bound(net: Any, rule: Any) -> None:
    attach_updater(net.fc, "weight").weight.fullbound(bound_sharp, 0.3, 0.0)


correct("soft bounds", prepare=softly_bound)
correct("weights partly at sharp bounds", prepare=sharply_bound)
correct("weights that reach their limits and stay", rule=lambda net: STDP(1.0, 1.0, time_dim=0),
    prepare=constrained(Clamp(0.0, 0.5)), epochs=4)
correct("weights in float64",
    net=lambda: Net(fc=uniform(nn.Linear(INPUTS, OUTPUTS, False).double())),
    step=lambda net, x, i: whole(net, x.double(), i))
correct("weights in bfloat16, with large rates",
    net=lambda: Net(fc=uniform(nn.Linear(INPUTS, OUTPUTS, False).bfloat16())),
    rule=lambda net: STDP(0.1, -0.1, time_dim=0),
    step=lambda net, x, i: whole(net, x.bfloat16(), i))
correct("mixed precision", trainer={"precision": "bf16-mixed"}, hosts=(CALLBACK,))
correct(
    "pruned weights stay at 0",
    prepare=lambda net, rule: constrained(
        lambda weight, mask=(net.fc.weight > 0.1): weight.mul_(mask)
    )(net, rule),
)
correct("weights of two values, with large rates", rule=lambda net: STDP(0.1, -0.12, time_dim=0),
    prepare=constrained(lambda weight: weight.mul_(4).round_().div_(4)))


def converge(net: Any, rule: Any) -> None:
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


correct("trained weights, which hardly move", rule=lambda net: STDP(1e-7, -1e-7, time_dim=0),
    prepare=converge, hosts=HOSTED, epochs=1)
correct("another part of the program keeps the norm after each batch",
    on={"updated": lambda net, rule, i: net.fc.weight.data.div_(net.fc.weight.data.norm())})


def averaged() -> dict[str, Any]:
    """Weights become an average after each epoch."""
    before: dict[str, Tensor] = {}

    def begin(net: Any, rule: Any) -> None:
        before["weight"] = net.fc.weight.detach().clone()

    def average(net: Any, rule: Any, i: int) -> None:
        net.fc.weight.data.lerp_(before["weight"], 0.5)
        before["weight"] = net.fc.weight.detach().clone()

    return {"prepare": begin, "on": {"epoch": average}, "epochs": 4}


correct("weights are averaged after each epoch", **averaged())


def cycle(rate: float, *factors: float) -> dict[str, Any]:
    """Three batches again and again, whose updates cancel each other in each epoch."""

    def step(net: Any, x: Tensor, i: int) -> None:
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


def rounded(net: Any, rule: Any, i: int) -> None:
    net.fc.weight.data.mul_(256).round_().div_(256)


correct("weights settle in a cycle", **cycle(2**-8, 1.0, 1.0, -2.0))
correct("weights settle in a cycle up to rounding", **cycle(0.0123, 1.1, 0.9, -2.0))
correct("weights in such a cycle are rounded after each epoch", on={"epoch": rounded},
    **cycle(0.0123, 1.1, 0.9, -2.0))


def best() -> dict[str, Any]:
    """The best weights are loaded again when all is over."""
    kept: dict[str, Any] = {}

    def keep(net: Any, rule: Any, i: int) -> None:
        if i == 9:
            kept.update(copy.deepcopy(net.state_dict()))

    def load(net: Any, rule: Any, i: int) -> None:
        net.load_state_dict(kept)

    return {"on": {"updated": keep, "end": load}}


correct("the best weights are loaded at the end", **best())


# ====================================================================== parts that rest
def half_asleep(net: Any, rule: Any) -> None:
    net.fc2.eval(), net.lif2.eval()


def rests_later(net: Any, rule: Any, i: int) -> None:
    net.lif.eval(), net.fc.eval()


correct("a frozen layer beside one that learns", net=Deep, cells=BOTH, prepare=half_asleep)
correct("a layer that rests after its first epoch", on={"epoch": rests_later}, epochs=3,
    hosts=HOSTED)


def in_turn(net: Any, rule: Any, i: int) -> None:
    """One layer learns in even epochs, the other one in odd ones."""
    first = i // 8 % 2 == 0
    for module in (net.fc, net.lif):
        module.train(first)
    for module in (net.fc2, net.lif2):
        module.train(not first)


correct("layers that learn in turn", net=Deep, cells=BOTH, on={"batch": in_turn}, epochs=4)


def tested(net: Any, rule: Any, i: int) -> None:
    """A test in evaluation mode, and with the rule asleep too."""
    net.eval()
    for x in spikes(20):
        whole(net, x, i)
    net.train()
    net.rest()


correct("a test after each epoch", on={"epoch": tested})


# ====================================================================== optimizers beside rules
class Headed(Net):
    """A readout that an optimizer trains."""

    def __init__(self) -> None:
        super().__init__(head=nn.Linear(OUTPUTS, 2))


def classified(net: Any, x: Tensor, i: int) -> Any:
    net.rest()
    label = (x.sum((1, 2)) > x.sum((1, 2)).median()).long()
    return {"loss": nn.functional.cross_entropy(net.head(net(x).mean(0).detach()), label)}


HEADED: dict[str, Any] = {
    "net": Headed,
    "step": classified,
    "optimizer": lambda net: torch.optim.Adam(net.head.parameters()),
}
correct("an optimizer of the readout", **HEADED)
correct("updates of several batches", every=4)
correct("gradients of several batches", **HEADED, trainer={"accumulate_grad_batches": 4},
    hosts=(CALLBACK,))
correct("clipped gradients", **HEADED, trainer={"gradient_clip_val": 0.1}, hosts=(CALLBACK,))


class Several(Lit):
    """Manual optimization with two optimizers and its own UpdateOptimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(OUTPUTS, 2), nn.Linear(OUTPUTS, 2)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        rates = self(batch).mean(0).detach()
        a, b, local = self.optimizers()
        for layer, optimizer in ((self.a, a), (self.b, b)):
            optimizer.zero_grad()
            self.manual_backward(layer(rates).square().mean())
            optimizer.step()
        local.step()

    def configure_optimizers(self) -> Any:
        return [
            torch.optim.Adam(self.a.parameters()),
            torch.optim.SGD(self.b.parameters(), 0.1),
            UpdateOptimizer(self.fc.parameters()),
        ]


class Rarely(Lit):
    """Steps its own UpdateOptimizer after every fourth batch."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)
        if batch_idx % 4 == 3:
            self.optimizers().step()

    def configure_optimizers(self) -> Any:
        return UpdateOptimizer(self.fc.parameters())


class Automatic(Lit):
    """Automatic optimization without a loss."""

    automatic = True


class ByLoss(Lit):
    """A readout by a loss, in automatic optimization."""

    automatic = True

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(OUTPUTS, 2)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.head(self(batch).mean(0)).square().mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("loss", self.training_step(batch, batch_idx), batch_size=len(batch))

    test_step = validation_step

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self(batch)

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.head.parameters())


class Exports(Lit):
    """Hands its updates over to SGD."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        sgd = self.optimizers()
        sgd.zero_grad()
        super().training_step(batch, batch_idx)
        self.trainer.callbacks[0].updates_as_gradients()
        sgd.step()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.fc.parameters(), lr=1.0, momentum=0.5)


def exported() -> None:
    net, rule = registered()
    adam = torch.optim.Adam(net.fc.parameters(), lr=1e-3)
    for _i in windows(net, rule):
        adam.zero_grad()
        updates_as_gradients(rule.updater_of("enc"))
        adam.step()


def exported_in_fabric() -> None:
    net, use = set_up()
    sgd = torch.optim.SGD(net.fc.parameters(), lr=1.0)
    for _i in recorded(net, use):
        sgd.zero_grad()
        use.updates_as_gradients()
        sgd.step()
    use.release()


def in_callback(name: str, program: Callable[[], object], **more: Any) -> None:
    """Adds a program with a Trainer of its own."""
    correct(name, alone=program, hosts=(CALLBACK,), **more)


def in_loop(name: str, program: Callable[[], object], **more: Any) -> None:
    """Adds a program that calls its rule by hand."""
    correct(name, alone=program, hosts=(HAND,), **more)


in_callback("several optimizers, by hand", lambda: fit(Several(), learner()))
in_callback("the module's own optimizer steps rarely", lambda: fit(Rarely(), learner()))
in_callback("automatic optimization without a loss", lambda: fit(Automatic(), learner()))
in_callback("updates as gradients in a fit", lambda: fit(Exports(), learner()))
in_loop("updates as gradients, by hand", exported)
correct("updates as gradients under Fabric", alone=exported_in_fabric, hosts=(FABRIC,))


def by_optimizer() -> None:
    net, rule = registered()
    optimizer = UpdateOptimizer(net.fc.parameters(), updaters=[rule.updater_of("enc")])
    for _i in windows(net, rule):
        optimizer.step()


in_loop("an UpdateOptimizer, by hand", by_optimizer)


# ====================================================================== fits
def control(learn: bool) -> None:
    """A control run makes its learner, and leaves it out."""
    use = learner()
    fit(ByLoss(), *([use] if learn else []))


def ablation() -> None:
    """A table of variants, of which some are never run."""
    variants = {rate: learner(STDP(rate, -rate, time_dim=0)) for rate in (0.001, 0.01, 0.1)}
    fit(ByLoss())
    fit(Lit(), variants[0.01])


def folds() -> None:
    """Each fold trains copies of a prototype."""
    prototype, use = Lit(), learner()
    for fold in range(3):
        fit(copy.deepcopy(prototype), copy.deepcopy(use), data=spikes(8 + fold))


def again() -> None:
    """Several fits of one module, with a learner each."""
    net = Lit()
    for _ in range(3):
        fit(net, learner())


def again_with_one() -> None:
    net, use = Lit(), learner()
    for _ in range(2):
        fit(net, use)


def of_other_modules() -> None:
    use = learner()
    for _ in range(2):
        fit(Lit(), use)


def resumed() -> None:
    """A fit is saved, and goes on in another process."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/fit.ckpt"
        fit(Lit(), learner()).save_checkpoint(path)
        quiet_trainer(learner(), max_epochs=4).fit(Lit(), loader(), ckpt_path=path)
        quiet_trainer(learner(), max_epochs=4).fit(Lit(), loader(), ckpt_path=path)


class Fails(Lit):
    """Raises an error in its first fit."""

    fails = True

    def training_step(self, batch: Any, batch_idx: int) -> None:
        super().training_step(batch, batch_idx)
        if self.fails and batch_idx == 5:
            raise OSError


def interrupted() -> None:
    net = Fails()
    with contextlib.suppress(OSError):
        fit(net, learner())
    net.fails = False
    fit(net, learner())


def interrupted_at_once() -> None:
    class AtOnce(Lit):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            self(batch)
            raise OSError

    with contextlib.suppress(OSError):
        fit(AtOnce(), learner())


def validated() -> None:
    trainer = quiet_trainer(learner(), max_epochs=2, num_sanity_val_steps=2)
    net = ByLoss()
    trainer.fit(net, loader(), loader())
    trainer.test(net, loader(), verbose=False)
    trainer.predict(net, loader())


def never_fitted() -> None:
    """Only looks at what a model answers."""
    trainer, net = quiet_trainer(learner()), ByLoss()
    trainer.validate(net, loader(), verbose=False)
    trainer.predict(net, loader())


def layer_by_layer() -> None:
    """The second layer learns when the first one has."""

    class Two(Lit):
        def __init__(self) -> None:
            super().__init__()
            self.fc2, self.lif2 = (
                uniform(nn.Linear(OUTPUTS, 4, False), 0.2, 0.9),
                LIF(4, time_dim=0),
            )

        def forward(self, x: Tensor) -> Tensor:
            spikes = super().forward(x)
            self.lif2.reset()
            return self.lif2(self.fc2(spikes))

    net = Two()
    fit(net, learner())
    fit(net, learner(cells={"top": CellSpec("fc2", "lif2")}))


def swa() -> None:
    average = pl.callbacks.StochasticWeightAveraging(0.01, swa_epoch_start=1)
    fit(ByLoss(), learner(), average, max_epochs=3)


def ema() -> None:
    kind = getattr(pl.callbacks, "EMAWeightAveraging", None)
    if kind is None:
        pytest.skip("older Lightning")
    fit(Lit(), learner(), kind(decay=0.9))


def stopped_early() -> None:
    class Worse(ByLoss):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("loss", float(self.current_epoch), batch_size=len(batch))

    trainer = quiet_trainer(learner(), pl.callbacks.EarlyStopping("loss", patience=1), max_epochs=8)
    trainer.fit(Worse(), loader(), loader())


class Unending(torch.utils.data.IterableDataset[Tensor]):
    """A stream without a length."""

    def __iter__(self) -> Any:
        return itertools.cycle(spikes())


def unending() -> None:
    data = torch.utils.data.DataLoader(Unending(), batch_size=None)
    quiet_trainer(learner(), max_steps=12, max_epochs=-1).fit(Lit(), data)


def both_networks() -> None:
    """Two learners, of two layers, in one fit."""

    class Pair(Lit):
        def __init__(self) -> None:
            super().__init__()
            self.fc2, self.lif2 = uniform(nn.Linear(INPUTS, 4, False)), LIF(4, time_dim=0)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            super().training_step(batch, batch_idx)
            self.lif2.reset()
            self.lif2(self.fc2(batch.transpose(0, 1)))

    other = learner(la.TripletSTDP(0.0005, 0.001, -0.004, -0.001, time_dim=0), TOP)
    fit(Pair(), learner(), other)


TOP = {"top": CellSpec("fc2", "lif2")}
in_callback("a control run that never fits its learner", lambda: control(learn=False))
in_callback("the same program with its learner", lambda: control(learn=True))
in_callback("an ablation with learners to spare", ablation)
in_callback("copies of a prototype for each fold", folds)
in_callback("several fits of one module", again)
in_callback("several fits with one learner", again_with_one)
in_callback("one learner for several modules", of_other_modules)
in_callback("a fit that is saved and resumed, twice", resumed)
in_callback("a fit that fails and is begun again", interrupted)
in_callback("a fit that fails in its first batch", interrupted_at_once)
in_callback("validation, test and prediction", validated)
in_callback("a model that is only validated", never_fitted)
in_callback("layer by layer", layer_by_layer)
in_callback("stochastic weight averaging", swa)
in_callback("a running average of the weights", ema)
in_callback("a fit that is stopped early", stopped_early)
in_callback("a stream without end, and max_steps", unending)
in_callback("two learners in one fit", both_networks)
in_callback("fast_dev_run", lambda: fit(Lit(), learner(), fast_dev_run=True))
in_callback("limit_train_batches", lambda: fit(Lit(), learner(), limit_train_batches=2))
in_callback("no logs and no summary", lambda: fit(Lit(), learner(log=False, summary=False)))


# ====================================================================== loops and notebooks
def looked_at() -> None:
    """A rule that is made, and never used."""
    repr(STDP(0.01, -0.008)), repr(registered()), repr(learner())


def tried() -> None:
    """A few windows, to see what would change."""
    net, rule = registered()
    list(windows(net, rule, 4))
    assert rule.updater_of("enc").weight.pos is not None


def ran_only() -> None:
    """A network that runs a few times while a rule records it."""
    net, _rule = registered()
    for x in spikes(1):
        net.rest()
        net(x[:, :4])


def measured() -> None:
    """Measures the change of each pair of spikes, from the same weights."""
    net, rule = registered()
    first, changes = net.fc.weight.detach().clone(), []
    for i, x in enumerate(spikes(24)):
        net.fc.weight.data.copy_(first)
        whole(net, x, i)
        rule(carry=False)
        rule.update()
        changes.append(net.fc.weight.detach() - first)


def read_and_dropped() -> None:
    """Reads what would change, and drops it."""
    net, rule = registered()
    for _i in windows(net, rule):
        weight = rule.updater_of("enc").weight
        assert weight.pos is not None
        net.fc.weight.data += 0.5 * (weight.pos - weight.neg)
        weight.clear()


def rejected_now_and_then() -> None:
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


def copied() -> None:
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


def learned_once() -> None:
    """All batches make one update."""
    net, rule = registered()
    list(windows(net, rule))
    rule.update()


def trials() -> None:
    """Steps of a trial, and one call with the reward at its end."""
    net, rule = Net(LIF(OUTPUTS)), la.MSTDPET(0.01, -0.008)
    rule.register_cell("enc", Cell(net.fc, net.lif))
    for i, x in enumerate(spikes(24)):
        stepwise(net, x, i)
        rule(reward=(-1.0) ** i, carry=False)
        rule.update()


def without_reset() -> None:
    """A new network in each of many short runs."""
    for seed in range(4):
        torch.manual_seed(seed)
        net, rule = registered()
        for i, x in enumerate(spikes(10)):
            whole(net, x, i)
            rule(carry=False)
            rule.update()


class OwnRule(pl.LightningModule):
    """Calls its rule by hand in a fit without a callback."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.net = Net()
        self.rule = STDP(0.01, -0.008, time_dim=0)
        self.rule.register_cell("enc", Cell(self.net.fc, self.net.lif))

    def training_step(self, batch: Any, batch_idx: int) -> None:
        whole(self.net, batch, batch_idx)
        self.rule(carry=False)
        self.rule.update()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        whole(self.net, batch, batch_idx)

    def configure_optimizers(self) -> None:
        return None


def own_rule() -> None:
    quiet_trainer(max_epochs=2, num_sanity_val_steps=2).fit(OwnRule(), loader(), loader())


def asleep_in_tests() -> None:
    """Calls the rule in a test too, in which nothing is recorded."""
    net, rule = registered()
    for i, x in enumerate(spikes(24)):
        both = nn.ModuleList([net, rule]).train(i % 4 < 2)
        whole(net, x, i)
        rule(carry=False)
        rule.update()
    both.eval()


def ignored() -> None:
    """Some updates with Inf are dropped, and counted."""
    net, rule = Net(), la.MSTDP(0.01, -0.008, time_dim=0)
    attach_updater(net.fc, "weight", nonfinite="skip")
    rule.register_cell("enc", Cell(net.fc, net.lif))
    for i, x in enumerate(spikes(24)):
        whole(net, x, i)
        rule(reward=float("inf") if i == 11 else (-1.0) ** i, carry=False)
        rule.update()


def plain_updater() -> None:
    """Assigns changes of its own, and applies them."""
    fc = nn.Linear(INPUTS, OUTPUTS)
    updater = attach_updater(fc, "weight")
    for _ in range(40):
        updater.weight = 1e-3 * torch.randn(OUTPUTS, INPUTS)
        updater()


for name, program in {
    "a rule that is looked at": looked_at,
    "a few windows whose change is read": tried,
    "a network that runs while a rule records it": ran_only,
    "changes that are measured from the same weights": measured,
    "changes that are read, applied and dropped": read_and_dropped,
    "trials that are not learned": rejected_now_and_then,
    "copies in the midst of learning": copied,
    "one update of all batches": learned_once,
    "trials of steps": trials,
    "many short runs": without_reset,
    "a rule by hand in a fit": own_rule,
    "a rule that is called in tests too": asleep_in_tests,
    "an update that is dropped": ignored,
    "changes of one's own": plain_updater,
}.items():
    in_loop(name, program)


def parts() -> None:
    """Batches that are evaluated in parts, and applied together."""
    net, use = set_up()
    for i in recorded(net, use):
        use.accumulate()
        if i % 3 == 2:
            use.step()
    use.release()


def left() -> None:
    """A loop that is not released."""
    net, use = set_up()
    for _i in recorded(net, use):
        use.step()


def set_up_only() -> None:
    use = FabricCellTrainer(STDP(0.01, -0.008, time_dim=0), ENC)
    use.setup(Net())
    use.release()


def restored() -> None:
    """A loop goes on from a state."""
    first = None
    net = Net()
    for _ in range(2):
        use = FabricCellTrainer(STDP(0.01, -0.008, time_dim=0), ENC)
        use.setup(net)
        if first is not None:
            use.load_state_dict(first)
        for i, x in enumerate(spikes(12)):
            with use.batch():
                whole(net, x, i)
            use.step()
        first = use.state_dict()
        use.release()


for name, program in {
    "parts of a batch under Fabric": parts,
    "a loop under Fabric that is not released": left,
    "a learner that is set up and released": set_up_only,
    "a loop under Fabric that goes on from a state": restored,
}.items():
    correct(name, alone=program, hosts=(FABRIC,))


# ====================================================================== advice, and no warning
correct("advice: neurons that spike in most steps",
    net=lambda: Net(LIF(OUTPUTS, v_threshold=0.05, time_dim=0)),
    advice=("`enc`", "spike in", "of the steps"), hosts=HOSTED)
correct("advice: an input that spikes in most steps", data=lambda: spikes(8, rate=0.8),
    advice=("input of `enc`", "spikes in"), hosts=HOSTED)
correct("advice: neurons that fall silent", rule=lambda net: STDP(0.001, -0.3, time_dim=0),
    prepare=constrained(Clamp(0.0, 1.0)), epochs=4, advice=("`enc`", "fired at first"),
    hosts=HOSTED)
correct("advice: single steps", data=lambda: spikes(40, steps=1, rate=0.8),
    prepare=lambda net, rule: nn.init.uniform_(net.fc.weight, 0.2, 0.6),
    advice=("`enc`", "single step"), hosts=HOSTED)
correct("advice: a rate of 0", rule=lambda net: STDP(0.0, 0.0, time_dim=0),
    advice=("enc", "unchanged", "0"), hosts=HOSTED)
correct("advice: weights hardly moved", rule=lambda net: STDP(1e-8, -0.8e-8, time_dim=0), epochs=3,
    advice=("enc", "by a share of"), hosts=HOSTED)
correct("advice: weights that grow", rule=lambda net: STDP(0.5, 0.0, time_dim=0), epochs=4,
    advice=("norm", "enc", "grew"), hosts=HOSTED)
correct("advice: a reward that is always the same", rule=mstdp, inputs=("reward",),
    step=rewarded(lambda i: 1.0), advice=("`reward`", "was 1"), hosts=HOSTED)
correct("advice: a reward that is never negative", rule=mstdp, inputs=("reward",),
    step=rewarded(lambda i: float(i % 2)), epochs=8, advice=("`reward`", "below 0"), hosts=HOSTED)
correct("advice: negative outputs under BCM",
    net=lambda: Net(nn.Identity(), fc=uniform(nn.Linear(INPUTS, OUTPUTS, False), -1.0, 0.5)),
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
    advice=("`enc`", "same weights"), hosts=HOSTED)
correct("advice: delays that stay in their step", net=lambda: delayed(),
    rule=lambda net: la.DelayAdjustedSTDP(1e-4, -1e-4, params=["delay"], time_dim=0),
    prepare=delays_clamped, advice=("delay", "step"), hosts=HOSTED)
correct("advice: a layer that rests from the beginning", net=Deep, cells=BOTH, prepare=half_asleep,
    advice=("`top`", "evaluation mode"), hosts=HOSTED)
correct("advice: a rate that leaves its target",
    rule=lambda net: la.Homeostasis(-1e-3, target=300.0, time_dim=0), epochs=8,
    advice=("`enc`", "target"), hosts=HOSTED)
correct(
    "advice: a clamp over first weights that are negative",
    prepare=lambda net, rule: (
        nn.init.uniform_(net.fc.weight, -0.5, 0.5),
        constrained(Clamp(0.0, 1.0))(net, rule),
    ),
    advice=("enc", "limits"),
    hosts=HOSTED,
)

"""The workloads of BindsNET's own benchmark, in both libraries.

Those of its `examples/benchmark/hot_path_bench.py`: networks, constants and input are BindsNET's,
250 steps. Here, the neurons, traces, rates, limits and normalization are the same; a spike reaches
the neurons in its own step, and there a step later. In the network of Diehl and Cook, the
inhibitory neurons are an inhibition of the layer: by as much as there, or as winner take all, which
`learn_online` has in its loop. The local connection is sparse, from a population that passes the
input on; or, once for all steps, a convolution of patches with a group for each place. BindsNET
changes weights at every step; this package does so too, or once for all steps. Both take turns in
one process.

    python benchmarks/bindsnet_workloads.py [--smoke] [--turns 9] [--threads 2]
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import types
from typing import Any, NamedTuple

import torch
from _measure import goals, middle, setting, table, timed
from _rival_optimizers import bare
from torch import Tensor, nn

from lightning_accum import MSTDP, STDP, Clamp, Populations, RuleTrainer, Serial
from lightning_accum.nn import (
    LIF,
    AdaptiveLIF,
    Conv1d,
    Inhibition,
    LateralInhibition,
    Linear,
    SparseLinear,
    WinnerTakeAll,
)
from lightning_accum.rules import learn_online

TC_MEM, REST, THRESHOLD, REFRACTORY, NORM = 100.0, -65.0, -52.0, 5.0, 78.4  # ms, mV
NEURON = {"tc_mem": TC_MEM, "v_rest": REST, "v_threshold": THRESHOLD, "refractory": REFRACTORY}
LR_PRE, LR_POST, LR_REWARDED = 1e-4, 1e-2, 1e-3
SIDE = 28  # of the input's picture
KERNEL, STRIDE, FILTERS = 8, 4, 16
ONLINE = "ours, at every step"


class Work(NamedTuple):
    """A workload: its network, and what it is shown."""

    name: str
    kind: str
    neurons: int
    batch: int = 1

    @property
    def local(self) -> bool:
        return self.kind == "local"

    @property
    def cook(self) -> bool:
        return self.kind in ("cook", "winner")

    def draw(self, steps: int) -> Tensor:
        """Spikes ``[T, B, ...]`` in bytes, by BindsNET's encoder."""
        shape = (1, SIDE, SIDE) if self.local or self.cook else (SIDE * SIDE,)
        poisson = importlib.import_module("bindsnet.encoding").poisson
        spikes: Tensor = poisson(torch.rand(self.batch, *shape) * 128, time=steps)
        return spikes


WORKS = [
    Work("Diehl and Cook, 784 → 400", "cook", 400),
    Work("Diehl and Cook, 784 → 400, batch 16", "cook", 400, 16),
    Work("the same, winner take all", "winner", 400),
    Work("the same, winner take all, batch 16", "winner", 400, 16),
    Work("`PostPre`, 784 → 1000", "pairs", 1000),
    Work("`PostPre`, 784 → 1000, batch 16", "pairs", 1000, 16),
    Work("`PostPre`, local, 28 × 28, kernel 8, stride 4, 16 filters", "local", FILTERS * 36),
    Work("`MSTDP`, 784 → 500", "rewarded", 500),
]


class Theirs:
    """A network of BindsNET."""

    def __init__(self, work: Work, spikes: Tensor) -> None:
        from bindsnet.network import Network, nodes, topology  # before its rules, or it is a circle

        rules = importlib.import_module("bindsnet.learning")
        self.spikes, self.given = spikes, {}
        shape, inputs = spikes.shape[2:], spikes[0, 0].numel()
        if work.cook:
            models = importlib.import_module("bindsnet.models")
            self.net = models.DiehlAndCook2015(
                inputs, n_neurons=work.neurons, batch_size=work.batch, inpt_shape=shape
            )
            self.names = "X", "Ae"
            return
        traces, size = work.kind != "rewarded", {"n": work.neurons}
        if work.local:
            side = (shape[-1] - KERNEL) // STRIDE + 1
            size = {"shape": [FILTERS, side, side]}
        source = nodes.Input(shape=shape, traces=traces)
        target = nodes.LIFNodes(**size, traces=traces)
        limits = {"wmin": 0, "wmax": 1}
        if work.local:
            connection = topology.LocalConnection2D(
                source, target, KERNEL, STRIDE, FILTERS,
                nu=(LR_PRE, LR_POST), update_rule=rules.PostPre, **limits,
            )  # fmt: skip
        elif work.kind == "rewarded":
            self.given = {"reward": 1.0}
            connection = topology.Connection(
                source, target, nu=LR_REWARDED, update_rule=rules.MSTDP, **limits
            )
        else:
            connection = topology.Connection(
                source, target, nu=(LR_PRE, LR_POST), update_rule=rules.PostPre, norm=NORM, **limits
            )
        self.net, self.names = Network(dt=1.0, batch_size=work.batch), ("in", "out")
        self.net.add_layer(source, "in")
        self.net.add_layer(target, "out")
        self.net.add_connection(connection, "in", "out")

    def run(self) -> None:
        """As the benchmark does: the batch, and back to rest."""
        first, _ = self.names
        self.net.run({first: self.spikes}, time=len(self.spikes), **self.given)
        self.net.reset_state_variables()

    def rate(self) -> float:
        """Spikes a step of one more batch."""
        counts: list[float] = []
        layer = self.net.layers[self.names[1]]
        self.net.monitors["out"] = types.SimpleNamespace(
            record=lambda: counts.append(layer.s.float().mean().item()),
            reset_state_variables=lambda: None,
        )
        self.run()
        del self.net.monitors["out"]
        return statistics.mean(counts)


def patches(spikes: Tensor) -> Tensor:
    """Returns what each place of a local connection sees, ``[T, B, places * kernel, 1]``."""
    seen = spikes.squeeze(2).unfold(-2, KERNEL, STRIDE).unfold(-2, KERNEL, STRIDE)
    return seen.flatten(2).unsqueeze(-1)


def places_seen() -> Tensor:
    """Returns the neurons of a local connection and the inputs that they see, ``[2, synapses]``."""
    places = torch.arange(SIDE**2).view(1, 1, 1, SIDE, SIDE)
    seen = patches(places).view(-1, KERNEL**2).repeat(FILTERS, 1)
    return torch.stack((torch.arange(len(seen)).repeat_interleave(KERNEL**2), seen.flatten()))


class OneSpike:
    """At most one spike in a step, which lowers the potential of all others."""

    select = staticmethod(WinnerTakeAll(0).select)
    suppress = staticmethod(LateralInhibition(17.5).suppress)


class Ours:
    """The same in this package; ``online`` learns at every step, otherwise once for all steps."""

    def __init__(self, work: Work, spikes: Tensor, online: bool) -> None:
        time_dim = None if online else 0
        options: dict[str, Any] = {**NEURON, "time_dim": time_dim, "spike_dtype": torch.bool}
        inputs, self.neurons = spikes[0, 0].numel(), work.neurons
        connection: Conv1d | Linear | SparseLinear = Linear(inputs, work.neurons, bias=False)
        size: tuple[int, ...] = (work.neurons,)
        self.spikes = spikes.bool().flatten(2)
        if work.local and online:
            nothing = self.spikes.new_zeros(len(spikes), 1, work.neurons)
            self.spikes = torch.cat((self.spikes, nothing), 2).float()
            connection = SparseLinear(inputs, work.neurons, indices=places_seen(), bias=False)
        elif work.local:
            self.spikes, size = patches(spikes.bool()), (work.neurons, 1)
            places = work.neurons // FILTERS
            connection = Conv1d(places * KERNEL**2, *size, groups=places, bias=False)
        connection.weight = nn.Parameter(torch.rand_like(connection.weight), False)
        neuron: nn.Module = LIF(size, v_reset=REST, **options)
        if work.cook:
            connection.weight.mul_(0.3)
            inhibition: Inhibition = OneSpike() if work.kind == "cook" else WinnerTakeAll(2)
            neuron = AdaptiveLIF(
                work.neurons, theta_plus=0.05 * work.batch, tc_theta=1e7, v_reset=-60.0,
                inhibition=inhibition, **options,
            )  # fmt: skip
        rewarded = work.kind == "rewarded"
        nearest = STDP(LR_POST, -LR_PRE, trace_mode="nearest")
        rule = MSTDP(LR_REWARDED, -LR_REWARDED) if rewarded else nearest
        how = "mean" if rewarded else "sum"
        self.trainer = RuleTrainer(rule, time_dim=time_dim, batch_reduction=how)
        self.layer: Serial | Populations = Serial(connection, neuron)
        self.reset, self.online, cell = neuron.reset, online, self.layer.cell
        if isinstance(connection, SparseLinear):
            passes_on = LIF(inputs, tc_mem=1.0, v_threshold=0.5, spike_dtype=torch.bool)
            pair = "in", "out"
            self.layer = Populations({"in": passes_on, "out": neuron}, {pair: connection})
            self.reset, cell = self.layer.reset, self.layer.cell(*pair)
        self.given = {"reward": 1.0} if rewarded else {}
        self.normalized = work.cook or work.kind == "pairs"
        self.trainer.register_cell("cell", cell)
        updater = self.trainer.updater_of("cell")
        updater.register_constraint(Clamp(0.0, 1.0), "weight")
        updater.weight.keep_parts = False  # as in a Trainer: nothing reads the parts

    @torch.no_grad()
    def run(self) -> Tensor:
        """A batch from rest, after which the weights are normalized."""
        self.reset()
        self.trainer.clear()
        if self.online:
            out = learn_online(self.trainer, self.layer, self.spikes, **self.given)
        else:
            out = self.layer(self.spikes)
            self.trainer(**self.given)
            self.trainer.update()
        if self.normalized:
            weight = self.layer.connection.weight
            weight.mul_(NORM / weight.sum(1, keepdim=True))
        return out

    def rate(self) -> float:
        """Spikes a step of one more batch."""
        return self.run()[..., -self.neurons :].float().mean().item()


def main() -> None:
    """Prints a row for each workload."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="few steps, just to see it run")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1 if args.smoke else args.threads)
    print(setting("bindsnet"))
    if not bare("bindsnet"):
        print("\nNot run: BindsNET is not installed.")
        return
    steps, turns = (5, 1) if args.smoke else (250, args.turns)
    rows, reached = [], []
    for work in WORKS:
        torch.manual_seed(0)
        spikes = work.draw(steps)
        nets = {
            "BindsNET": Theirs(work, spikes),
            ONLINE: Ours(work, spikes, True),
            "ours, once for all steps": Ours(work, spikes, False),
        }
        for net in nets.values():
            net.run()
        times: dict[str, list[float]] = {name: [] for name in nets}
        for _ in range(turns):
            for name, net in nets.items():
                times[name].append(timed(net.run))
        ratio = statistics.median(times["BindsNET"]) / statistics.median(times[ONLINE])
        rates = [f"{net.rate():.1%}" for net in nets.values()]
        rows.append([work.name, *map(middle, times.values()), f"{ratio:.1f}×", ", ".join(rates)])
        reached.append([work.name, f"{ratio:.2f}×", "1×"])
    print("\nms of a batch, median:\n")
    table(["workload", *nets, "BindsNET over ours, at every step", "spikes a step, in this order"],
          rows)  # fmt: skip
    goals("To reach", ["workload", "BindsNET over ours", "at least"], reached)


if __name__ == "__main__":
    main()

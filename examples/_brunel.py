"""The network of Brunel 2000, whose excitatory synapses learn: parts, drive, and statistics.

8 of 10 neurons are excitatory. Every neuron has synapses from a tenth of the neurons of both kinds,
and Poisson spikes from outside. Time is in ms, potentials are in mV.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from lightning_accum import STDP, Clamp, Populations, RuleTrainer, get_updater
from lightning_accum.cells import own_neurons
from lightning_accum.nn import LIF, SparseLinear
from lightning_accum.rules import learn_online

SHARE, DENSITY = 0.8, 0.1  # of excitatory neurons; of the neurons of a kind that a neuron hears
PIECE = 500  # steps that are drawn and simulated at a time


@dataclass(frozen=True)
class Brunel:
    """Settings: asynchronous irregular activity at about 9 Hz.

    Args:
        neurons: number of neurons.
        g: inhibitory weight over excitatory weight.
        eta: spikes from outside, over the rate that brings neurons to threshold on average.
        lr: potentiation by a pair of spikes without delay, over ``w_max``.
        depression: of a pair, over potentiation.
    """

    neurons: int = 10_000
    g: float = 8.0
    eta: float = 2.0
    lr: float = 0.01
    depression: float = 1.05
    tc_mem: float = 20.0
    tc_trace: float = 20.0
    threshold: float = 20.0
    reset: float = 10.0
    refractory: float = 2.0
    delay: int = 2

    @property
    def sizes(self) -> dict[str, int]:
        """Number of neurons of each kind."""
        excitatory = round(SHARE * self.neurons)
        return {"E": excitatory, "I": self.neurons - excitatory}

    @property
    def w_exc(self) -> float:
        """Excitatory weight: 0.2 mV for 800 synapses, and their sum is the same for others."""
        return 160.0 / (DENSITY * self.sizes["E"])

    @property
    def w_max(self) -> float:
        """Largest weight of a synapse that learns."""
        return 2 * self.w_exc

    @property
    def drive(self) -> float:
        """Spikes from outside that a neuron gets in a step."""
        return self.eta * self.threshold / (self.w_exc * self.tc_mem)


def make(p: Brunel) -> tuple[Populations, RuleTrainer]:
    """Returns the network and the trainer of its synapses from excitatory to excitatory neurons.

    If there is a process group, each process has its share of the neurons and of the synapses.
    """
    split = dist.is_initialized()
    own = {kind: own_neurons(size) for kind, size in p.sizes.items()}
    options = {"v_threshold": p.threshold, "v_reset": p.reset, "refractory": p.refractory}
    neurons = {
        kind: LIF(len(each), p.tc_mem, **options, spike_dtype=torch.bool)
        for kind, each in own.items()
    }
    ends = [(source, target) for source in p.sizes for target in p.sizes]
    connections = {
        (source, target): SparseLinear(
            p.sizes[source],
            p.sizes[target],
            DENSITY,
            bias=False,
            **({"seed": i, "targets": own[target]} if split else {}),  # the same in any number
        )
        for i, (source, target) in enumerate(ends)
    }
    for (source, _), connection in connections.items():
        weight = p.w_exc if source == "E" else -p.g * p.w_exc
        torch.nn.init.constant_(connection.weight, weight)
    network = Populations(neurons, connections, p.delay, split)
    rate = p.lr * p.w_max
    stdp = STDP(rate, -p.depression * rate, tc_post=p.tc_trace, tc_pre=p.tc_trace)
    trainer = RuleTrainer(stdp)
    trainer.register_cell("E to E", network.cell("E", "E"))
    get_updater(connections["E", "E"]).register_constraint(Clamp(0.0, p.w_max))
    return network, trainer


class Drive:
    """Draws the current from outside, Poisson spikes times their weight.

    A number is one of 65,536 quantiles of the distribution: ten times faster than `torch.poisson`.
    """

    def __init__(self, p: Brunel, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.neurons = sum(len(own_neurons(size)) for size in p.sizes.values())
        counts = torch.arange(math.ceil(p.drive + 12 * math.sqrt(p.drive) + 12), dtype=torch.double)
        logs = counts * math.log(p.drive) - p.drive - torch.lgamma(counts + 1)
        levels = (torch.arange(1 << 16, dtype=torch.double) + 0.5) / (1 << 16)
        self.table = p.w_exc * torch.searchsorted(logs.exp().cumsum(0), levels).float()

    def __call__(self, steps: int) -> Tensor:
        """Returns ``[steps, 1, neurons]`` of this process."""
        size = steps * self.neurons
        words = torch.empty(-(-size // 4), dtype=torch.int64)
        words.random_(-(2**63), None, generator=self.generator)
        places = words.view(torch.int16)[:size].int().add_(1 << 15)
        return self.table.index_select(0, places).view(steps, 1, self.neurons)


def simulate(network: Populations, trainer: RuleTrainer, drive: Drive, ms: int) -> Iterator[Tensor]:
    """Runs the network, which learns, and gives its spikes ``[steps, neurons]`` piece by piece."""
    for start in range(0, ms, PIECE):
        yield learn_online(trainer, network, drive(min(PIECE, ms - start))).squeeze(1)


def rates(spikes: Tensor, p: Brunel) -> tuple[float, ...]:
    """Returns the mean rates of excitatory and inhibitory neurons, in Hz."""
    kinds = spikes.split(list(p.sizes.values()), 1)
    return tuple(1000 * float(kind.sum()) / max(1, kind.numel()) for kind in kinds)


def irregularity(spikes: Tensor) -> float:
    """Returns the mean coefficient of variation of neurons' intervals: 1 for a Poisson process."""
    neuron, time = spikes.T.nonzero(as_tuple=True)
    same, interval = neuron.diff() == 0, time.diff().double()
    neuron, interval = neuron[1:][same], interval[same]
    count, first, second = (
        torch.zeros(spikes.shape[1], dtype=torch.double).index_add_(0, neuron, interval**k)
        for k in range(3)
    )
    enough = count >= 5
    mean = first[enough] / count[enough]
    variance = (second[enough] / count[enough] - mean**2).clamp(min=0)
    return float((variance.sqrt() / mean).mean())

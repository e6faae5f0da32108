"""A spiking network learns XOR of two spike trains from reward alone, by MSTDP and by MSTDPET.

The experiment is the temporally coded one of Florian (2007, doi:10.1162/neco.2007.19.6.1468). Zero
and one are two spike trains, each 50 spikes at random in 500 ms, that are drawn once for a seed.
Each of two inputs sends one or the other, so that no rate tells the patterns apart. Every spike of
the output is rewarded where the answer should be one, and punished where it should be zero. In the
right order {0,1} and {1,0} both make the output fire more than {0,0} and {1,1} do; the result is by
how much, or 0. The controls have a rate of 0, or the same rewards, dealt to the patterns anew in
every epoch.

Sizes, bounds, epochs and rates of learning are those of an earlier reproduction, with BindsNET (its
issue 217). Patterns are presented side by side; changes are applied every 50 ms, not every ms.

    python examples/reward_xor_temporal.py [--seeds 15] [--short]
"""

from __future__ import annotations

import argparse

import torch
from _experiment import Short, report
from _xor_evaluation import PATTERNS, XOR, Delay, compare, draw, head
from reward_xor import PRESENTED, present
from torch import Tensor, nn

from lightning_accum import MSTDP, MSTDPET, Cell, Clamp, Rule, RuleTrainer, attach_updater
from lightning_accum.nn import LIF

HIDDEN, SPIKES, STRONGEST = 20, 50, 10.0  # weights are bounded, in mV
RULES = {"MSTDP": MSTDP(0.01, -0.01), "MSTDPET": MSTDPET(0.25, -0.25, tc_eligibility=25.0)}


def connect(inputs: int, outputs: int, low: float, generator: torch.Generator) -> nn.Linear:
    """A connection with random weights between ``low`` and the strongest."""
    connection = nn.Linear(inputs, outputs, bias=False).requires_grad_(False)
    nn.init.uniform_(connection.weight, low, STRONGEST, generator=generator)
    attach_updater(connection, "weight").register_constraint(Clamp(low, STRONGEST))
    return connection


def trains(generator: torch.Generator) -> Tensor:
    """The spikes of both inputs for each pattern, ``[T, 4, 2]``."""
    drawn = torch.zeros(PRESENTED, 2)
    for code in range(2):
        drawn[torch.randperm(PRESENTED, generator=generator)[:SPIKES], code] = 1.0
    return drawn[:, PATTERNS.long()]


@torch.no_grad()
def learn(
    rule: Rule, epochs: int, seed: int, rewards: Tensor = XOR, shuffled: bool = False
) -> Tensor:
    """Trains a network, and gives its output's rate for each pattern in Hz, ``[epochs, 4]``."""
    generator = torch.Generator().manual_seed(seed)
    neurons = [LIF(size, tc_mem=20.0, v_threshold=16.0, time_dim=0) for size in (HIDDEN, 1)]
    into, out = connect(2, HIDDEN, -STRONGEST, generator), connect(HIDDEN, 1, 0.0, generator)
    network = nn.Sequential(into, Delay(), neurons[0], out, Delay(), neurons[1])
    trainer = RuleTrainer(rule, time_dim=0, batch_reduction="sum")
    trainer.register_cell("hidden", Cell(into, neurons[0]))
    trainer.register_cell("output", Cell(out, neurons[1]))
    spikes = trains(generator)
    rates = []
    for _ in range(epochs):
        dealt = rewards[torch.randperm(4, generator=generator)] if shuffled else rewards
        rates.append(present(network, trainer, spikes, dealt))
    return torch.stack(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--picture", default="reward_xor_temporal.png", help="where to draw to")
    parser.add_argument("--short", action=Short, help="one seed, 20 epochs")
    args = parser.parse_args()
    if args.short:
        args.seeds, args.epochs = 1, 20
    torch.set_num_threads(1)
    head(args.epochs, "right order")
    found, *results = compare(learn, RULES, args.epochs, args.seeds, args.seeds)
    report(*results)
    draw(found, args.picture)


if __name__ == "__main__":
    main()

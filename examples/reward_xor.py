"""A spiking network learns XOR from reward alone, by MSTDP and by MSTDPET.

The experiment is the rate-coded one of Florian (2007, doi:10.1162/neco.2007.19.6.1468). 60 input,
60 hidden and one output neuron; half of the inputs code for either bit, by Poisson spikes at 40 Hz
for one and by silence for zero; every other input is inhibitory. In an epoch the four patterns are
presented for 500 ms each. Every output spike is rewarded where the answer should be one, and
punished where it should be zero; nothing else tells the network what to do. It has learned if {0,1}
and {1,0} both make the output fire more than {1,1}; {0,0} makes it fire not at all. The result is
by how much they do, or 0. The controls have a rate of 0, or the same rewards, but dealt to the four
patterns anew in every epoch.

Time constants, bounds and MSTDPET's rate are the paper's, as two published reproductions have them;
MSTDP's rate was not checked. What differs: the four patterns are presented side by side, as a
batch, instead of one after the other; and changes are applied every 50 ms instead of every ms, for
the weights stand still in a window of the rule.

    python examples/reward_xor.py [--seeds 15] [--controls 15] [--short]
"""

from __future__ import annotations

import argparse
from functools import partial

import torch
from _experiment import Short, report
from _xor_evaluation import PATTERNS, XOR, Delay, compare, draw, head
from torch import Tensor, nn

from lightning_accum import MSTDP, MSTDPET, Cell, Rule, RuleTrainer, attach_updater
from lightning_accum.functional import poisson_encode
from lightning_accum.nn import LIF

INPUTS, HIDDEN = 60, 60
RATE = 40.0  # of an input that codes for one, in Hz
PRESENTED, WINDOW = 500, 50  # ms, of 1 ms a step: an epoch, and between changes of weights
STRONGEST = 5.0  # weight, in mV

RULES = {"MSTDP": MSTDP(0.1, -0.1), "MSTDPET": MSTDPET(0.625, -0.625, tc_eligibility=25.0)}


def connect(sign: Tensor, outputs: int, generator: torch.Generator) -> nn.Linear:
    """A connection with random weights, which keep their inputs' sign and stay within bounds."""
    connection = nn.Linear(len(sign), outputs, bias=False).requires_grad_(False)
    nn.init.uniform_(connection.weight, 0.0, STRONGEST, generator=generator).mul_(sign)
    bound = STRONGEST * sign
    within = partial(torch.clamp_, min=bound.clamp(max=0), max=bound.clamp(min=0))
    attach_updater(connection, "weight").register_constraint(within)
    return connection


def network(generator: torch.Generator) -> nn.Sequential:
    """Input → hidden neurons → output neuron, ``[T, B, INPUTS]`` to ``[T, B, 1]``."""
    every_other = torch.tensor([1.0, -1.0]).repeat(INPUTS // 2)
    return nn.Sequential(
        connect(every_other, HIDDEN, generator),
        Delay(),
        LIF(HIDDEN, tc_mem=20.0, v_threshold=16.0, time_dim=0),  # above rest, in mV
        connect(torch.ones(HIDDEN), 1, generator),
        Delay(),
        LIF(1, tc_mem=20.0, v_threshold=16.0, time_dim=0),
    )


def present(net: nn.Sequential, trainer: RuleTrainer, spikes: Tensor, rewards: Tensor) -> Tensor:
    """Presents all patterns, ``[T, 4, inputs]``, and learns; gives the output's rates in Hz."""
    for delay_or_neurons in (net[1], net[2], net[4], net[5]):
        delay_or_neurons.reset()
    trainer.clear()
    count = torch.zeros(4)
    for window in spikes.split(WINDOW):
        answers = net(window).squeeze(-1)
        trainer(reward=answers * rewards)  # [T, B], for both connections
        trainer.update()
        count += answers.sum(0)
    return count / PRESENTED * 1000


@torch.no_grad()
def learn(
    rule: Rule, epochs: int, seed: int, rewards: Tensor = XOR, shuffled: bool = False
) -> Tensor:
    """Trains a network, and gives its output's rate for each pattern in Hz, ``[epochs, 4]``."""
    generator = torch.Generator().manual_seed(seed)
    net = network(generator)
    trainer = RuleTrainer(rule, time_dim=0, batch_reduction="sum")
    trainer.register_cell("hidden", Cell(net[0], net[2]))
    trainer.register_cell("output", Cell(net[3], net[5]))
    intensity = PATTERNS.repeat_interleave(INPUTS // 2, 1)
    rates = []
    for _ in range(epochs):
        dealt = rewards[torch.randperm(4, generator=generator)] if shuffled else rewards
        spikes = poisson_encode(intensity, PRESENTED, RATE / 1000, generator).float()
        rates.append(present(net, trainer, spikes, dealt))
    return torch.stack(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--controls", type=int, default=15, help="seeds with shuffled rewards")
    parser.add_argument("--picture", default="reward_xor.png", help="where to draw to")
    parser.add_argument("--short", action=Short, help="one seed, 25 epochs")
    args = parser.parse_args()
    if args.short:
        args.seeds, args.controls, args.epochs = 1, 1, 25
    torch.set_num_threads(1)
    head(args.epochs, "learned")
    found, *results = compare(learn, RULES, args.epochs, args.seeds, args.controls)
    report(*results)
    draw(found, args.picture)


if __name__ == "__main__":
    main()

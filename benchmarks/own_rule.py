"""An own rule of one term beside the package's Hebb, on spikes: a window, a step, and online.

What a stranger writes in five lines takes the way of the package's rules. All rules take turns in
a random order, and each is compared with Hebb's turn. A window and a step are the rule's evaluation
and update, after the layer has run; a step of `learn_online` is one of a sequence, the layer's too.

    python benchmarks/own_rule.py [--smoke] [--turns 51] [--threads 1]
"""

from __future__ import annotations

import argparse
import random
import statistics

import torch
from _measure import setting, table, timed
from _stdp_work import TC, Load
from torch import nn

import lightning_accum as la
from lightning_accum.engine import Window
from lightning_accum.nn import LIF, Linear
from lightning_accum.rules import learn_online

LR = 1e-7  # so small that neurons go on as they are


class Own(la.Rule):
    """Activity of both sides, of which each value counts, as in Hebb's rule."""

    spikes = False
    lr: float

    def terms(self, window: Window) -> la.Term:
        return la.Term(self.lr, window.post, window.pre)


class OnSpikes(Own):
    """The same of spikes only, which is the default of own rules."""

    spikes = True


RULES = {"Hebb": la.Hebb(LR), "own": Own(LR), "own, on spikes": OnSpikes(LR)}
WINDOW, STEP, ONLINE = "a window", "a step", "a step of `learn_online`"
LOADS = {WINDOW: Load(100, 50), STEP: Load(100, 100), ONLINE: Load(400, 350, batch=1)}
SMOKE = Load(8, 30, 0.2, 2, 16)


class Net:
    """A layer that learns by a rule, and what it is shown."""

    def __init__(self, rule: la.Rule, way: str, load: Load) -> None:
        torch.manual_seed(0)
        time_dim = 0 if way == WINDOW else None
        neurons = LIF(load.neurons, TC, time_dim=time_dim, spike_dtype=torch.bool)
        self.layer = la.Serial(Linear(load.inputs, load.neurons, bias=False), neurons)
        # neurons fire in about 3% of the steps
        weight = self.layer.connection.weight.requires_grad_(False)
        nn.init.uniform_(weight, 0.0, 2.5 / (20 * load.inputs * load.density))
        self.trainer = la.RuleTrainer(rule, time_dim=time_dim)
        self.trainer.register_cell("cell", self.layer.cell)
        self.trainer.updater_of("cell").weight.keep_parts = False  # as in a Trainer
        self.way, self.weight = way, weight
        self.input = torch.rand(load.steps, load.batch, load.inputs) < load.density
        self.times: list[float] = []  # in µs

    def learn(self) -> None:
        self.trainer()
        self.trainer.update()

    @torch.no_grad()
    def turn(self) -> None:
        """Learns from the input, from rest, and notes how long a window or a step takes."""
        self.layer.neuron.reset()
        self.trainer.clear()
        if self.way == WINDOW:
            self.layer(self.input)
            spent = timed(self.learn)
        elif self.way == STEP:
            spent = 0.0
            for step in self.input:
                self.layer(step)
                spent += timed(self.learn)
            spent /= len(self.input)
        else:
            spent = timed(lambda: learn_online(self.trainer, self.layer, self.input))
            spent /= len(self.input)
        self.times.append(1e3 * spent)


def measure(way: str, load: Load, turns: int) -> list[str]:
    """The row of a table: the median times of all rules, and those of own rules over Hebb's."""
    nets = {name: Net(rule, way, load) for name, rule in RULES.items()}
    order = list(nets.values())
    for _ in range(turns + 1):
        random.shuffle(order)
        for net in order:
            net.turn()
    hebb, *own = nets.values()
    for net in own:
        torch.testing.assert_close(net.weight, hebb.weight, rtol=1e-5, atol=1e-9)
    times = [net.times[1:] for net in nets.values()]  # the first turn warms up
    ratios = [
        statistics.median(a / b for a, b in zip(each, times[0], strict=True)) for each in times[1:]
    ]
    found = [f"{statistics.median(each):.1f}" for each in times]
    return [way, str(load), *found, *(f"{ratio:.2f}" for ratio in ratios)]


def main() -> None:
    """Prints a row for each way of learning."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a tiny load, just to see it run")
    parser.add_argument("--turns", type=int, default=51)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    random.seed(0)
    print(f"{setting()}; µs, median\n")
    rows = [
        measure(way, SMOKE if args.smoke else load, 2 if args.smoke else args.turns)
        for way, load in LOADS.items()
    ]
    over = [f"{name}, over Hebb" for name in RULES if name != "Hebb"]
    table(["what", "load", *RULES, *over], rows)


if __name__ == "__main__":
    main()

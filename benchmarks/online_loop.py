"""Learning after every step by each rule that `learn_online` runs in one loop, and step by step.

784 inputs at 2 %; a reward for each step and sample, most of them zero. Each network takes its
turns, by the loop, by the loop in one thread, and by a call of the layer and the rule in each step.

    python benchmarks/online_loop.py [--smoke] [--turns 9] [--threads 2]
"""

from __future__ import annotations

import argparse
import statistics
from functools import partial

import torch
from _measure import setting, table, timed
from _stdp_work import LR_POST, LR_PRE, TC, Load
from torch import Tensor, nn

import lightning_accum as la
from lightning_accum.nn import LIF, AdaptiveLIF, Linear, WinnerTakeAll
from lightning_accum.rules import learn_online, why_step_by_step

PAIR = {"lr_post": LR_POST, "lr_pre": LR_PRE}
RULES: dict[str, la.Rule] = {
    "STDP": la.STDP(**PAIR),
    "STDP, a soft bound": la.STDP(**PAIR),
    "STDP, winner take all": la.STDP(**PAIR),
    "TripletSTDP": la.TripletSTDP(LR_POST, LR_POST, LR_PRE, LR_PRE),
    "WeightDependentSTDP": la.WeightDependentSTDP(**PAIR, w_min=-1.0),
    "MSTDP": la.MSTDP(**PAIR),
    "MSTDPET": la.MSTDPET(**PAIR),
}
LOADS = [Load(400, 200, batch=1), Load(400, 50, batch=32)]
SMOKE = [Load(8, 10, 0.2, 2, 16)]


class Net:
    """A layer, its rule, and a sequence."""

    def __init__(self, name: str, load: Load) -> None:
        torch.manual_seed(0)
        competing = "winner" in name
        neurons = AdaptiveLIF(load.neurons, TC, inhibition=WinnerTakeAll(5)) if competing else None
        self.layer = la.Serial(
            Linear(load.inputs, load.neurons, bias=False), neurons or LIF(load.neurons, TC)
        )
        self.weight = self.layer.connection.weight
        # neurons fire in about 3% of the steps
        nn.init.uniform_(self.weight, 0.0, 2.5 / (20 * load.inputs * load.density))
        self.start = self.weight.detach().clone()
        updater = la.attach_updater(self.layer.connection, "weight")
        if "bound" in name:
            updater.weight.fullbound("multiplicative", 1.0, -1.0)
        self.trainer = la.RuleTrainer(RULES[name])
        self.trainer.register_cell("cell", self.layer.cell)
        shape = load.steps, load.batch
        self.input = (torch.rand(*shape, load.inputs) < load.density).float()
        reward = torch.randn(shape) * (torch.rand(shape) < 0.1)
        self.given = {"reward": reward} if "MSTDP" in name else {}
        why = why_step_by_step(self.trainer, self.layer, self.input, **self.given)
        assert why is None, why

    @torch.no_grad()
    def begin(self) -> None:
        self.weight.copy_(self.start)
        self.layer.neuron.reset()
        self.trainer.clear()

    def loop(self, threads: int) -> Tensor:
        torch.set_num_threads(threads)
        return learn_online(self.trainer, self.layer, self.input, **self.given)

    @torch.no_grad()
    def steps(self, threads: int) -> None:
        torch.set_num_threads(threads)
        for t, step in enumerate(self.input):
            self.layer(step)
            self.trainer(**{name: each[t : t + 1] for name, each in self.given.items()})
            self.trainer.update()


def microseconds(net: Net, threads: int, turns: int) -> list[float]:
    """Median times of a step: by the loop, by the loop in one thread, and step by step."""
    ways = partial(net.loop, threads), partial(net.loop, 1), partial(net.steps, threads)
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(turns + 1):
        for way, found in zip(ways, times, strict=True):
            net.begin()
            found.append(1e3 * timed(way) / len(net.input))
    return [statistics.median(found[1:]) for found in times]


def main() -> None:
    """Prints a table for each load."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a tiny load, just to see it run")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(setting())
    for load in SMOKE if args.smoke else LOADS:
        rows = []
        for name in RULES:
            found = microseconds(Net(name, load), args.threads, 1 if args.smoke else args.turns)
            ratio = f"{found[2] / found[0]:.1f}×"
            rows.append([name, *(f"{each:.0f}" for each in found), ratio])
        print(f"\n{load}; µs a step, median:\n")
        table(["rule", "one loop", "the same, 1 thread", "step by step", "faster"], rows)


if __name__ == "__main__":
    main()

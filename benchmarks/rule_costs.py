"""What every rule costs, in time relative to pair STDP and in memory.

Each rule evaluates one recorded window, in turn with pair STDP. Two things are asserted: no tensor
``[batch, out, in]`` is made for a sum or a mean, and the memory of a window of 10,000 steps is
bounded.

    python benchmarks/rule_costs.py [--smoke]
"""

from __future__ import annotations

import argparse
import statistics
from typing import NamedTuple

import torch
from _measure import middle, peak_memory, print_peak, setting, table, timed
from torch import nn

import lightning_accum as la
from lightning_accum.functional import ExponentialKernel


class Load(NamedTuple):
    inputs: int
    outputs: int
    batch: int
    steps: int
    most: float = float("inf")  # MB of peak memory


TIMED = Load(784, 400, 32, 250)
SMOKE = Load(16, 8, 4, 10)
# A tensor of [batch, out, in] alone would be 512 MB.
WIDE = Load(1000, 1000, 128, 8, most=128)
# Traces of both sides alone, all steps at once, would be 328 MB, and a rule makes several such.
LONG = Load(512, 512, 8, 10_000, most=384)

PAIR = {"lr_post": 0.01, "lr_pre": -0.005}
RULES: dict[str, la.Rule] = {
    "STDP": la.STDP(**PAIR),
    "STDP, nearest": la.STDP(**PAIR, trace_mode="nearest"),
    "TripletSTDP": la.TripletSTDP(0.01, 0.01, -0.005, -0.005),
    "MSTDP": la.MSTDP(**PAIR),
    "MSTDPET": la.MSTDPET(**PAIR),
    "KernelSTDP": la.KernelSTDP(ExponentialKernel(**PAIR)),
    "DelayAdjustedSTDP": la.DelayAdjustedSTDP(0.01, -0.005),
    "Homeostasis": la.Homeostasis(0.01, 20.0),
    "Hebb": la.Hebb(0.01),
    "Covariance": la.Covariance(0.01),
    "Oja": la.Oja(0.01),
    "Sanger": la.Sanger(0.01),
    "BCM": la.BCM(0.01),
    "WTAHebb": la.WTAHebb(0.01),
    "SoftHebb": la.SoftHebb(0.01),
}


class Run:
    """A rule, and the activity that it is shown."""

    def __init__(self, name: str, load: Load) -> None:
        rule, self.neuron = RULES[name], nn.Identity()  # cells are held weakly
        self.trainer = la.RuleTrainer(rule, time_dim=0)
        self.fc = nn.Linear(load.inputs, load.outputs, bias=False)
        self.fc.register_buffer("delay", torch.rand(load.outputs, load.inputs) * 5)
        self.trainer.register_cell("cell", la.Cell(self.fc, self.neuron))
        generator = torch.Generator().manual_seed(0)
        self.pre, self.post = (
            torch.rand(load.steps, load.batch, n, generator=generator) for n in load[:2]
        )
        if rule.spikes:
            self.pre, self.post = self.pre < 0.02, self.post < 0.018
        self.reward = {} if "MSTDP" not in name else {"reward": torch.randn(load.batch)}
        self.recorders = [monitor.reducer for _, monitor in self.trainer.named_monitors_of("cell")]

    def show(self) -> None:
        """Fills the recorders, as monitors would."""
        for recorder, activity in zip(self.recorders, (self.pre, self.post), strict=True):
            recorder(activity)

    def evaluate(self) -> None:
        self.trainer(carry=False, **self.reward)
        la.get_updater(self.fc).clear()


def evaluation(run: Run) -> float:
    run.show()
    return timed(run.evaluate)


def memory_of(name: str, load: Load) -> None:
    """Prints the MB that an evaluation adds at its peak to what is recorded."""
    run = Run(name, load)
    run.show()
    print_peak(run.evaluate)


def bounded(name: str, load: Load) -> float:
    """Its peak memory in MB, held to the most that the load allows."""
    peak = peak_memory(__file__, name, *map(str, load))
    if peak > load.most:
        raise AssertionError(f"{name} should take at most {load.most} MB for {load}. Took {peak}.")
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny loads, just to see it run")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--memory-of", nargs=6, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(1 if args.smoke else 2)
    if args.memory_of:
        name, *sizes, most = args.memory_of
        memory_of(name, Load(*map(int, sizes), float(most)))
        return
    load = SMOKE if args.smoke else TIMED
    print(f"{setting()}; {load.inputs} → {load.outputs}, batch {load.batch}, {load.steps} steps\n")
    runs = {name: Run(name, load) for name in RULES}
    times: dict[str, list[float]] = {name: [] for name in RULES}
    for turn in range(1 + (2 if args.smoke else args.repeats)):
        for name, run in runs.items():
            elapsed = evaluation(run)
            if turn:  # the first turn warms up
                times[name].append(elapsed)
    del runs
    rows = []
    for name in RULES:
        ratio = statistics.median(
            one / other for one, other in zip(times[name], times["STDP"], strict=True)
        )
        loads = (load,) if args.smoke else (load, WIDE, LONG)
        if args.smoke and name != "STDP":  # a process for each takes its time
            rows.append([name, middle(times[name]), f"{ratio:.2f}", "–"])
            continue
        peaks = [f"{bounded(name, each):.0f}" for each in loads]
        rows.append([name, middle(times[name]), f"{ratio:.2f}", *peaks])
    memory = ["peak MB", "wide, MB", "10,000 steps, MB"][: len(loads)]
    table(["rule", "ms", "of pair", *memory], rows)


if __name__ == "__main__":
    main()

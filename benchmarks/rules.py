"""What every rule costs, in time beside pair STDP and in memory.

Each rule is fed with recorded activity, sparse spikes or rates, and evaluated once for the window;
all are interleaved in one process, against pair STDP in the same turn. Peak memory is measured in a
process for each rule. Two things are asserted: that no tensor of the size ``[batch, out, in]`` is
made for a sum or a mean, and that the memory of a window of 10,000 steps is bounded.

    python benchmarks/rules.py [--smoke]
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
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
RULES: dict[str, tuple[Callable[[], la.Rule], bool]] = {
    "STDP": (lambda: la.STDP(**PAIR, time_dim=0), True),
    "STDP, nearest": (lambda: la.STDP(**PAIR, trace_mode="nearest", time_dim=0), True),
    "TripletSTDP": (lambda: la.TripletSTDP(0.01, 0.01, -0.005, -0.005, time_dim=0), True),
    "MSTDP": (lambda: la.MSTDP(**PAIR, time_dim=0), True),
    "MSTDPET": (lambda: la.MSTDPET(**PAIR, time_dim=0), True),
    "KernelSTDP": (lambda: la.KernelSTDP(ExponentialKernel(**PAIR), time_dim=0), True),
    "DelayAdjustedSTDP": (lambda: la.DelayAdjustedSTDP(0.01, -0.005, time_dim=0), True),
    "Homeostasis": (lambda: la.Homeostasis(0.01, 20.0, time_dim=0), True),
    "Hebb": (lambda: la.Hebb(0.01, time_dim=0), False),
    "Covariance": (lambda: la.Covariance(0.01, time_dim=0), False),
    "Oja": (lambda: la.Oja(0.01, time_dim=0), False),
    "Sanger": (lambda: la.Sanger(0.01, time_dim=0), False),
    "BCM": (lambda: la.BCM(0.01, time_dim=0), False),
    "WTAHebb": (lambda: la.WTAHebb(0.01, time_dim=0), False),
    "SoftHebb": (lambda: la.SoftHebb(0.01, time_dim=0), False),
}


class Run:
    """A rule, and the activity that it is shown."""

    def __init__(self, name: str, load: Load) -> None:
        make, spikes = RULES[name]
        self.rule, self.neuron = make(), nn.Identity()  # cells are held weakly
        self.fc = nn.Linear(load.inputs, load.outputs, bias=False)
        self.fc.register_buffer("delay", torch.rand(load.outputs, load.inputs) * 5)
        self.rule.register_cell("cell", la.Cell(self.fc, self.neuron))
        generator = torch.Generator().manual_seed(0)
        self.pre, self.post = (
            torch.rand(load.steps, load.batch, n, generator=generator) for n in load[:2]
        )
        if spikes:
            self.pre, self.post = self.pre < 0.02, self.post < 0.018
        self.reward = {} if "MSTDP" not in name else {"reward": torch.randn(load.batch)}
        self.recorders = [monitor.reducer for _, monitor in self.rule.named_monitors_of("cell")]

    def show(self) -> None:
        """Fills the recorders, as monitors would."""
        for recorder, activity in zip(self.recorders, (self.pre, self.post), strict=True):
            recorder(activity)

    def evaluate(self) -> None:
        self.rule(carry=False, **self.reward)
        la.get_updater(self.fc).clear()


def timed(run: Run) -> float:
    run.show()
    start = time.perf_counter()
    run.evaluate()
    return 1e3 * (time.perf_counter() - start)


def resident(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field))


def memory_of(name: str, load: Load) -> None:
    """Prints the MB that an evaluation adds at its peak to what is recorded."""
    run = Run(name, load)
    run.show()
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmHWM")
    run.evaluate()
    print((resident("VmHWM") - before) / 1024)


def peak_memory(name: str, load: Load) -> float:
    """MB in a process of its own; NaN but on Linux."""
    if not Path("/proc/self/clear_refs").exists():
        return float("nan")
    command = [sys.executable, __file__, "--memory-of", name, *map(str, load)]
    peak = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if peak > load.most:
        raise AssertionError(f"{name} should take at most {load.most} MB for {load}. Took {peak}.")
    return peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny loads, just to see it run")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--memory-of", nargs=6, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(2)
    if args.memory_of:
        name, *sizes, most = args.memory_of
        memory_of(name, Load(*map(int, sizes), float(most)))
        return
    load = SMOKE if args.smoke else TIMED
    malloc = {k: v for k, v in os.environ.items() if k.startswith("MALLOC_")} or "default"
    print(f"torch {torch.__version__}, {platform.machine()}, {torch.get_num_threads()} threads,"
          f" malloc {malloc}; {load.inputs} → {load.outputs}, batch {load.batch},"
          f" {load.steps} steps\n")  # fmt: skip
    runs = {name: Run(name, load) for name in RULES}
    times: dict[str, list[float]] = {name: [] for name in RULES}
    for turn in range(1 + (2 if args.smoke else args.repeats)):
        for name, run in runs.items():
            elapsed = timed(run)
            if turn:  # the first turn warms up
                times[name].append(elapsed)
    del runs
    print("| rule | ms (quartiles) | of pair | peak MB | wide, MB | 10,000 steps, MB |")
    print("|---|---|---|---|---|---|")
    for name in RULES:
        low, middle, high = statistics.quantiles(times[name], n=4)
        ratio = statistics.median(
            one / other for one, other in zip(times[name], times["STDP"], strict=True)
        )
        loads = (load,) if args.smoke else (load, WIDE, LONG)
        peaks = " | ".join(f"{peak_memory(name, each):.0f}" for each in loads)
        print(f"| {name} | {middle:.1f} ({low:.1f}–{high:.1f}) | {ratio:.2f} | {peaks} |")


if __name__ == "__main__":
    main()

"""The distance to the machine: the same batch by a program in C that does nothing else.

`bound.c` finds the input's spikes, integrates the neurons and learns by pair STDP, without anything
of this package, of Python or of torch; its spikes and weights are the same. Both take turns, in
wall time, with the threads that torch takes by default and with one.

    python benchmarks/bound.py [--smoke] [--turns 41]
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch
from _measure import middle, setting, table, timed
from _ours import Native, Online
from _work import DECAY, LR_POST, LR_PRE, Load, matched, weights
from torch import Tensor

LOADS = {
    "100": Load(100, 250),
    "400": Load(400, 250),
    "1600": Load(1600, 250),
    "256, batch 48": Load(256, 120, 0.05, 48),
    "400, one sample": Load(400, 350, 0.03, 1),
    "400, at every step": Load(400, 350, 0.03, 1),
}
SMOKE = {"8": Load(8, 10, 0.2, 4, 16), "8, at every step": Load(8, 10, 0.2, 1, 16)}
FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")


class Sizes(ctypes.Structure):
    """What the program in C is told of a batch."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("steps", "batch", "inputs", "neurons")),
        *((name, ctypes.c_float) for name in ("decay", "threshold", "rate_post", "rate_pre")),
    )


def program() -> ctypes.CDLL:
    """Compiles the program for this machine."""
    if shutil.which("cc") is None:
        sys.exit("Expected a C compiler `cc`. Found none.")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "bound.so"
        source = Path(__file__).with_name("bound.c")
        subprocess.run(["cc", *FLAGS, str(source), "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


class Bound:
    """A batch by the program in C; as many threads take part as torch has."""

    def __init__(self, library: ctypes.CDLL, load: Load, start: Tensor, online: bool) -> None:
        rates = LR_POST / load.batch, LR_PRE / load.batch
        self.sizes = Sizes(load.steps, load.batch, load.inputs, load.neurons, DECAY, 1.0, *rates)
        self.weight = start.t().contiguous()
        self.spikes = torch.empty(load.steps, load.batch, load.neurons, dtype=torch.bool)
        self.call = library.run_online if online else library.run_batch

    def run(self, raster: Tensor) -> None:
        tensors = (raster, self.weight, self.spikes)
        self.call(ctypes.byref(self.sizes), *(ctypes.c_void_p(t.data_ptr()) for t in tensors))


def compare(
    library: ctypes.CDLL, load: Load, online: bool, turns: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of both, in turns, each of which begins with the same weights."""
    ours = (Online if online else Native)(load, True)
    torch.manual_seed(0)
    raster = torch.rand(load.steps, load.batch, load.inputs) < load.density
    start = weights(load, matched(Native(load, False), load))
    bound = Bound(library, load, start, online)
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(turns + 1):
        ours.weight.data.copy_(start)
        bound.weight.copy_(start.t())
        seen: list[Tensor] = []
        took = timed(partial(ours.run, raster, seen.append)), timed(partial(bound.run, raster))
        if not turn:
            same = (seen[0].view_as(bound.spikes).bool() == bound.spikes).float().mean().item()
            moved = (ours.weight - start).abs().max().item()
            error = (ours.weight - bound.weight.t()).abs().max().item()
            assert same > 0.999, same
            assert error < 0.05 * moved, (error, moved)
        else:
            times[0].append(took[0]), times[1].append(took[1])
    return times


def main() -> None:
    """Prints a row for each load."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny loads, just to see it run")
    parser.add_argument("--turns", type=int, default=41)
    args = parser.parse_args()
    threads, library, rows = torch.get_num_threads(), program(), []
    print(setting())
    for name, load in (SMOKE if args.smoke else LOADS).items():
        cells = [name]
        for count in (threads, 1):
            torch.set_num_threads(count)
            ours, bound = compare(library, load, "every" in name, 3 if args.smoke else args.turns)
            ratio = statistics.median(ours) / statistics.median(bound)
            cells += [middle(ours, 2), middle(bound, 2), f"{ratio:.2f}"]
        torch.set_num_threads(threads)
        rows.append(cells)
    both = [f"{who}, {count}" for count in (f"{threads} threads", "1 thread")
            for who in ("ours", "C", "ours / C")]  # fmt: skip
    print("\nms of a batch, median:\n")
    table(["neurons", *both], rows)


if __name__ == "__main__":
    main()

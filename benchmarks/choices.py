"""How close the choice of a path is to the fastest one, over grids of windows.

Each rule is evaluated for the same window by every path, on one thread. The ratio is the processor
time of the chosen path over that of the fastest, without and with the time to choose. Constants
were fitted to the first grid only.

    python benchmarks/choices.py [--smoke] [--seconds 0.1]
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import subprocess
import sys

import torch
from _evaluation_paths import NET, RULES, Found, Window, measure
from _measure import goals, setting, table

from lightning_accum.sparse.kernel_library import SWITCH, has_kernel

FITTED = [
    Window(784, neurons, batch, steps, density)
    for neurons, batch, steps, density in itertools.product(
        (10, 100, 400, 1600), (1, 32), (50, 250), (0.02, 0.1)
    )
]
HELD_OUT = [
    Window(350, 12, 24, 90, 0.04),
    Window(600, 30, 3, 300, 0.12),
    Window(150, 64, 48, 70, 0.02),
    Window(900, 120, 20, 160, 0.01),
    Window(450, 500, 5, 40, 0.06),
    Window(320, 320, 1, 600, 0.03),
    Window(1500, 800, 10, 45, 0.008),
    Window(96, 1500, 14, 110, 0.18),
    Window(2000, 250, 40, 25, 0.05),
    Window(640, 640, 2, 130, 0.3),
    Window(784, 100, 32, 50, 0.05, fires=0.8),
    Window(500, 200, 16, 120, 0.3, fires=0.01),
    Window(300, 600, 24, 60, 0.02, fires=0.2),
    Window(250, 250, 40, 100, 0.5, fires=0.6),
]
STEPS = [
    Window(300, 10, 16, 1, 0.05),
    Window(784, 400, 1, 1, 0.02),
    Window(512, 700, 64, 1, 0.03),
]
MAPS = [Window(2, 24, 6, 20, 0.03, 20), Window(16, 8, 4, 12, 0.08, 14)]
NETS = [name + NET for name in ("STDP", "MSTDPET", "TripletSTDP")]
GRIDS = {
    "fitted": (FITTED, [*RULES]),
    "held out": (HELD_OUT, [*RULES, *NETS]),
    "held out, single steps": (STEPS, [*RULES, *NETS]),
    "held out, convolutions": (MAPS, ["STDP", "MSTDP", "TripletSTDP", *NETS]),
}
SMOKE = {"smoke": ([Window(20, 8, 2, 4, 0.2), Window(2, 3, 2, 4, 0.2, 6)], ["STDP", *NETS])}
FAR = 1.1


def summary(grid: str, found: list[Found]) -> list[str]:
    """A row of how far the choices of a grid are from the fastest paths."""
    row = [grid, str(len(found))]
    for ratios in ([each.ratio for each in found], [each.whole for each in found]):
        near = sum(ratio < FAR for ratio in ratios) / len(ratios)
        row += [f"{near:.0%}", f"{statistics.median(ratios):.2f}", f"{max(ratios):.2f}"]
    return row


def row(grid: str, found: Found) -> list[str]:
    times = (f"{found.paths[path]:.2f}" if path in found.paths else "–" for path in PATHS)
    chosen = f"{found.chosen:.2f}"
    return [grid, str(found.window), found.rule, chosen, *times, f"{found.ratio:.2f}"]


PATHS = "dense", "pre", "post"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny windows, just to see it run")
    parser.add_argument("--seconds", type=float, default=0.1, help="for each rule and window")
    args = parser.parse_args()
    torch.set_num_threads(1)
    kernel = has_kernel(torch.device("cpu"), torch.float32)
    if kernel:
        print(setting())
    print(f"\n### {'With' if kernel else 'Without'} the compiled kernel\n")
    found = {
        grid: measure(windows, rules, 0.0 if args.smoke else args.seconds)
        for grid, (windows, rules) in (SMOKE if args.smoke else GRIDS).items()
    }
    columns = f"within {FAR - 1:.0%}", "median", "worst"
    head = "grid", "choices", *columns, *(f"{each}, with choosing" for each in columns)
    table(head, [summary(*each) for each in found.items()])
    far = [row(grid, each) for grid, all in found.items() for each in all if each.ratio >= FAR]
    head = "grid", "window", "rule", "with choosing, ms", *(f"{path}, ms" for path in PATHS)
    goals(f"Choices {FAR} times as slow as the fastest path", [*head, "chosen / fastest"], far)
    if kernel:
        sys.stdout.flush()
        subprocess.run([sys.executable, *sys.argv], env={**os.environ, SWITCH: "0"}, check=True)


if __name__ == "__main__":
    main()

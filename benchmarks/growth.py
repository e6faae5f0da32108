"""How a batch that learns grows with its steps, samples, neurons and spikes.

Four networks, swept around one load. The picture adds the limits of this machine: one dense product
of all steps, and reading all spikes and reading and writing the weights once.

    python benchmarks/growth.py [--smoke] [--picture FILE]
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from _growth_picture import Lines, draw
from _measure import ROOT, bandwidth, setting, table, timed
from _ours import Native, PerStepProduct
from _rival_layers import Norse, SpikingJelly
from _side_by_side import Pair
from _stdp_work import Load, Make, matched, weights

CONTENDERS: dict[str, Make] = {
    "ours": Native,
    "a product per step": PerStepProduct,
    "SpikingJelly": SpikingJelly,
    "Norse": Norse,
}
SIDES = ("dense", "pre", "post")
FORCED = {f"ours, {side} alone": partial(Native, path=side) for side in SIDES}
BASE, SMOKE = Load(200, 100, 0.02, 16), Load(8, 6, 0.2, 2, 16)
SWEEPS: dict[str, tuple[float, ...]] = {
    "steps": (12, 25, 50, 100, 200, 400, 800),
    "batch": (1, 2, 4, 8, 16, 32, 64, 128),
    "neurons": (25, 50, 100, 200, 400, 800, 1600),
    "density": (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
}
SMOKE_SWEEPS: dict[str, tuple[float, ...]] = {"steps": (4, 8), "density": (0.1, 0.3)}
SLOWEST = 2500.0  # ms of a batch, beyond which a line is left off


def limits(load: Load, flops: float, bytes_a_second: float) -> dict[str, float]:
    """Milliseconds that the machine allows at best, by what bounds them."""
    samples, size = load.steps * load.batch, load.neurons * load.inputs
    spikes = samples * (load.neurons + load.inputs)  # a byte each
    return {
        "limit: one dense product": 1e3 * 2 * samples * size / flops,
        "limit: memory read once": 1e3 * (spikes + 8 * size) / bytes_a_second,
    }


def product_speed(n: int = 1024, repeats: int = 9) -> float:
    """Floating-point operations a second of a matrix product."""
    a, b = torch.rand(n, n), torch.rand(n, n)
    times = [timed(lambda: a @ b) for _ in range(repeats)]
    return 2e3 * n**3 / statistics.median(times)


def measure(make: Make, load: Load, start: torch.Tensor, turns: int) -> tuple[float, float, float]:
    """Medians of plasticity and of the whole batch, and the whole's least, in ms."""
    pair = Pair(make, load, start)
    for _ in range(turns):
        pair.turn()
    plasticity = statistics.median(pair.plasticity)
    seen = plasticity if plasticity > 0 else math.nan
    return seen, statistics.median(pair.whole), min(pair.whole)


def sweep(
    base: Load, name: str, values: tuple[float, ...], turns: int, most: Callable[[Load], object]
) -> dict[str, Lines]:
    """For every network the values, and what was measured there."""
    found: dict[str, Lines] = {}
    contenders = CONTENDERS | (FORCED if name == "density" else {})
    stopped: set[str] = set()
    for value in values:
        load = base._replace(**{name: value})
        start = weights(load, matched(Native(load, False), load))
        for network, make in contenders.items():
            if network in stopped:
                continue
            plasticity, whole, least = measure(make, load, start, turns)
            found.setdefault(network, []).append((value, plasticity, whole))
            if least > SLOWEST:
                stopped.add(network)
        for limit, cost in most(load).items():
            found.setdefault(limit, []).append((value, cost, math.nan))
    return found


def number(value: float, digits: int) -> str:
    """A dash for what was not to be seen beside the simulation's noise."""
    return f"{value:.{digits}f}" if value == value else "–"


def crossing(first: Lines, second: Lines) -> float:
    """Where the one line overtakes the other, between the points and logarithmically; or NaN."""
    gaps = [(x, math.log(a / b)) for (x, a, _), (_, b, _) in zip(first, second, strict=False)]
    for (x, gap), (after, then) in itertools.pairwise(gaps):
        if gap < 0 <= then:
            return math.exp(math.log(x) + math.log(after / x) * gap / (gap - then))
    return math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny loads, just to see it run")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--picture", type=Path, help="where to; docs/pictures but in a smoke run")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1 if args.smoke else args.threads)
    base, sweeps = (SMOKE, SMOKE_SWEEPS) if args.smoke else (BASE, SWEEPS)
    speed, memory = product_speed(), 1e9 * bandwidth()
    print(setting("spikingjelly", "norse"))
    print(f"\nAround {base}; {speed / 1e9:.0f} GFLOP/s, {memory / 1e9:.1f} GB/s.")
    most = partial(limits, flops=speed, bytes_a_second=memory)
    panels = {}
    for name, values in sweeps.items():
        panels[name] = found = sweep(base, name, values, 1 if args.smoke else args.turns, most)
        print(f"\n### Plasticity, ms, by {name}\n")
        rows = []
        for network in CONTENDERS:
            line = found[network]
            cells = [number(plasticity, 1) for _, plasticity, _ in line]
            rows.append([network, *cells, *["–"] * (len(values) - len(cells))])
        table(["network", *(f"{value:g}" for value in values)], rows)
    dense, pre, post = (panels["density"][name] for name in FORCED)
    others = [min(ways, key=lambda way: way[1]) for ways in zip(dense, post, strict=False)]
    cross = crossing(pre, others)
    print(f"\nA visit of input spikes is the cheapest way up to a density of {number(cross, 3)}.")
    picture = args.picture or (None if args.smoke else ROOT / "docs/pictures/bench_growth.svg")
    draw(panels, cross, picture)
    if picture:
        print(f"\n![Plasticity by steps, batch, neurons and density](pictures/{picture.name})")


if __name__ == "__main__":
    main()

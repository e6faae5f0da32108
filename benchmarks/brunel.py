"""Ten million plastic synapses: the seconds that a biological second takes, here and in NEST.

The network of ``examples/brunel.py`` at two rates: 8,000 excitatory and 2,000 inhibitory neurons,
1,000 synapses each, those among excitatory neurons plastic by additive pair STDP, steps of 1 ms.
NEST 3.10 has ``iaf_psc_delta``, ``stdp_synapse`` and ``poisson_generator`` with the same settings,
and its own synapses and spikes from outside. Its delays are dendritic, those here axonal; spikes of
one step are a pair here and not there. As neurons are not quite independent, weights would drift
apart by that, so the learning rate is small here: a change costs the same. Each run is a separate
process, in turn; times are medians, with the spikes from outside and without the network's
construction. Bytes a synapse are what the process keeps, and has at its peak as the network runs,
beyond what it had before.

NEST can do more than is measured: other neurons, and spikes between steps.

    python benchmarks/brunel.py [--smoke] [--ms 1000] [--turns 3] [--nest PYTHON]

NEST is looked for in the environment that `make references` makes.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from _brunel_picture import draw
from _measure import ROOT, goal, resident, seconds_of, setting, table

sys.path.insert(0, str(ROOT / "examples"))
from _brunel import Brunel, Drive, irregularity, make, rates, simulate

LR = 1e-4  # so small that the weights, and the rates, are alike: it costs what another one does
RATES = {"about 9 Hz": Brunel(lr=LR), "about 35 Hz": Brunel(g=5.0, eta=2.4, lr=LR)}
SIZES = (1_000, 3_162, 10_000, 31_623)  # neurons: 10^5 to 10^8 synapses
SMOKE = Brunel(200, lr=LR), (200, 400)
SETTLE = 200  # ms
NOTICED = 8192  # KiB, below which the growth of a process tells nothing of the network
MOST_IN_NEST = 10_000  # neurons, as more would not be done in minutes


def ours(p: Brunel, threads: int, ms: int) -> dict[str, Any]:
    """Runs the network here, in this process."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    drive = Drive(p, seed=0)
    list(simulate(*make(Brunel(200)), Drive(Brunel(200), 0), 20))  # brings in all code
    give_back_freed_memory()
    before, start = resident("VmRSS"), time.perf_counter()
    network, trainer = make(p)
    built, most = time.perf_counter() - start, resident("VmHWM")
    give_back_freed_memory()
    list(simulate(network, trainer, drive, SETTLE))
    start = time.perf_counter()
    spikes = list(simulate(network, trainer, drive, ms))
    seconds = time.perf_counter() - start
    peak = resident("VmHWM")
    give_back_freed_memory()
    kept = resident("VmRSS") - before - (sum(each.nbytes for each in spikes) >> 10)
    synapses = sum(len(each.weight) for each in network.connections.values())
    whole = torch.cat(spikes)
    return {
        "build": built,
        "seconds": seconds,
        "rates": dict(zip("EI", rates(whole, p), strict=True)),
        "CV": irregularity(whole),
        "MB": max(most, peak) / 1024,
        "bytes": 1024 * kept / synapses if kept > NOTICED else math.nan,
        "peak": 1024 * (peak - before) / synapses if kept > NOTICED else math.nan,
        "synapses": synapses,
    }


def give_back_freed_memory() -> None:
    """Returns freed memory to the system, which then counts the peak again."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")


def in_nest(p: Brunel, threads: int, ms: int, python: Path) -> dict[str, Any]:
    """Runs the network in NEST."""
    names = ("neurons", "g", "lr", "depression", "tc_mem", "tc_trace", "threshold", "reset")
    given = {name: getattr(p, name) for name in (*names, "refractory", "w_exc", "w_max", "drive")}
    given |= {"delay": float(p.delay), "threads": threads, "ms": float(ms), "seed": 0}
    script = Path(__file__).with_name("_brunel_nest.py")
    return printed([str(python), str(script), json.dumps({**given, "settle": float(SETTLE)})])


def in_own_process(p: Brunel, threads: int, ms: int) -> dict[str, Any]:
    """Runs the network here, in another process."""
    one = json.dumps([p.neurons, p.g, p.eta, p.lr, threads, ms])
    return printed([sys.executable, __file__, "--one", one])


def printed(command: list[str]) -> dict[str, Any]:
    """Runs a program, and returns the JSON that it prints in its last line."""
    env = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command[:2])} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def has_nest(python: Path) -> bool:
    """Whether an interpreter can import NEST."""
    if not python.exists():
        return False
    done = subprocess.run([str(python), "-c", "import nest"], capture_output=True, check=False)
    return done.returncode == 0


def side_by_side(p: Brunel, threads: list[int], ms: int, turns: int, nest: Path | None) -> None:
    """Prints a table of one rate."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for _ in range(turns):
        for count in threads:
            runs.setdefault(f"ours, {count} threads", []).append(in_own_process(p, count, ms))
            if nest:
                runs.setdefault(f"NEST, {count} threads", []).append(in_nest(p, count, ms, nest))
    seconds = seconds_of(runs, ms)
    rows = []
    for name, found in runs.items():
        last = found[-1]
        cv = f"{last['CV']:.2f}" if "CV" in last else "–"
        other = seconds.get(name.replace("ours", "NEST")) if "ours" in name else None
        rows.append([
            name.replace("1 threads", "1 thread"), f"{seconds[name]:.2f}",
            f"{last['rates']['E']:.1f} and {last['rates']['I']:.1f}", cv,
            f"{last['build']:.1f}", f"{last['MB']:.0f}",
            "–" if other is None else f"{other / seconds[name]:.0f}×",
        ])  # fmt: skip
        if other is not None:
            goal(f"{name}: {other / seconds[name]:.1f} times as fast as NEST, of 10 times")
    head = ["", "s per biological second", "rates E and I, Hz", "CV of intervals"]
    table([*head, "s to build", "peak MB", "faster than NEST"], rows)


def growth(
    sizes: tuple[int, ...], threads: list[int], ms: int, nest: Path | None
) -> dict[str, list[tuple[float, float, float]]]:
    """Prints a table over sizes; returns for each line synapses, seconds and bytes a synapse."""
    lines: dict[str, list[tuple[float, float, float]]] = {}
    rows = []
    for neurons in sizes:
        p = Brunel(neurons, lr=LR)
        found: dict[str, Any] = {}
        for count in threads:
            found = in_own_process(p, count, ms)
            if "error" in found:
                break
            point = found["synapses"], 1000 / ms * found["seconds"], found["bytes"]
            lines.setdefault(f"ours, {count} thread{'s' * (count > 1)}", []).append(point)
        if "error" in found:
            print(f"\n{neurons:,} neurons: {found['error']}\n")
            continue
        rate = (4 * found["rates"]["E"] + found["rates"]["I"]) / 5
        cells = [f"{line[-1][1]:.3g}" for line in lines.values() if line[-1][0] == point[0]]
        events = 1e9 * point[1] / (found["synapses"] * rate)
        other = "–"
        if nest and neurons <= MOST_IN_NEST:
            there = in_nest(p, threads[-1], ms, nest)
            seconds = 1000 / ms * there["seconds"]
            line = lines.setdefault(f"NEST, {threads[-1]} threads", [])
            line.append((found["synapses"], seconds, 2**20 * there["MB"] / found["synapses"]))
            other = f"{seconds:.3g}"
        rows.append([
            f"{found['synapses']:,}", f"{rate:.1f}", *cells, other, f"{events:.2f}",
            memory(found), f"{found['build']:.1f}",
        ])  # fmt: skip
    ways = [f"{n} thread{'s' * (n > 1)}" for n in threads]
    head = ["synapses", "rate, Hz", *(f"s, {way}" for way in ways), f"s, NEST, {ways[-1]}"]
    table(
        [
            *head,
            f"ns a spike and synapse, {ways[-1]}",
            "bytes a synapse, at the peak",
            "s to build",
        ],
        rows,
    )
    return lines


def memory(run: dict[str, Any]) -> str:
    """Bytes of a synapse that are kept, and at the peak, of a network that is large enough."""
    return "–" if math.isnan(run["bytes"]) else f"{run['bytes']:.1f}, {run['peak']:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny networks, just to see it run")
    parser.add_argument("--ms", type=int, default=1000, help="of biological time")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="neurons, for growth")
    parser.add_argument("--nest", type=Path, default=ROOT / ".references/bin/python")
    parser.add_argument("--picture", type=Path, help="where to; docs/pictures but in a smoke run")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        neurons, g, eta, lr, threads, ms = json.loads(args.one)
        try:
            print(json.dumps(ours(Brunel(neurons, g, eta, lr), threads, ms)))
        except MemoryError as error:
            print(json.dumps({"error": str(error)}))
        return
    nest = args.nest if has_nest(args.nest) else None
    print(setting() if nest else f"{setting()}. NEST was left out: `{args.nest}` does not have it.")
    loads = {"smoke": SMOKE[0]} if args.smoke else RATES
    threads, ms, turns = ([1], 100, 1) if args.smoke else (args.threads, args.ms, args.turns)
    for name, p in loads.items():
        print(f"\n### {p.neurons:,} neurons, {name}\n")
        side_by_side(p, threads, ms, turns, nest)
    print("\n### Growth from 100,000 to 100 million synapses\n")
    lines = growth(SMOKE[1] if args.smoke else tuple(args.sizes), threads, ms, nest)
    picture = args.picture or (None if args.smoke else ROOT / "docs/pictures/bench_brunel.svg")
    draw(lines, picture)
    if picture:
        print(f"\n![Time and memory by the number of synapses](pictures/{picture.name})")


if __name__ == "__main__":
    main()

"""Brunel's network in several processes, beside one process and NEST, and a model of larger ones.

The network is that of ``benchmarks/brunel.py``. Turns are interleaved: one process of two threads,
two processes of one thread over gloo, and NEST with two threads, or with two MPI processes if
``--mpi`` names a command that starts them. Time in the exchange is that of ``all_gather``, in which
a process also waits for the slower one. Bytes are those of the rows that every process receives.

The model takes the time of a spike at a synapse from the run of one thread, and the time of an
exchange from two sizes. It assumes what is printed with it, of machines that were not measured.

    python benchmarks/brunel_processes.py [--smoke] [--ms 1000] [--turns 3] [--mpi 'mpirun -n 2']
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _measure import ROOT, goal, resident, seconds_of, setting, table

sys.path.insert(0, str(ROOT / "examples"))
from _brunel import Brunel, Drive, make, rates, simulate

LR, SETTLE = 1e-4, 200
BANDWIDTH, HOP = 10e9, 5e-6  # bytes/s and s a hop between machines, assumed


def run_share(p: Brunel, rank: int, processes: int, threads: int, ms: int, place: str) -> None:
    """Runs the share of one process, and prints what it took."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    if processes > 1:
        dist.init_process_group("gloo", init_method=place, rank=rank, world_size=processes)
    start = time.perf_counter()
    network, trainer = make(p)
    built = time.perf_counter() - start
    drive = Drive(p, seed=rank)
    list(simulate(network, trainer, drive, SETTLE))
    found, gather = {"exchange": 0.0, "bytes": 0, "exchanges": 0}, dist.all_gather

    def timed_gather(rows: list[torch.Tensor], row: torch.Tensor) -> None:
        began = time.perf_counter()
        gather(rows, row)
        found["exchange"] += time.perf_counter() - began
        found["bytes"] += row.nbytes * len(rows)
        found["exchanges"] += 1

    dist.all_gather = timed_gather
    if processes > 1:
        dist.barrier()
    start = time.perf_counter()
    spikes = torch.cat(list(simulate(network, trainer, drive, ms)))
    seconds = time.perf_counter() - start
    own = sum(len(each.weight) for each in network.connections.values())
    synapses, whole = own * processes, network.gather(spikes)
    if rank == 0:
        values = {"seconds": seconds, "built": built, "synapses": synapses}
        values |= {"rates": rates(whole, p), "MB": resident("VmHWM") / 1024}
        print(json.dumps({**values, **found}), flush=True)
    if processes > 1:
        dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # beside gloo's threads an exit now and then aborts


def ours(p: Brunel, processes: int, threads: int, ms: int) -> dict[str, Any]:
    """Runs the network in processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        place = (Path(folder) / "place").as_uri()
        more = ["--ms", str(ms), "--place", place]
        own = [[*settings(p), rank, processes, threads] for rank in range(processes)]
        commands = [[sys.executable, __file__, "--one", json.dumps(each), *more] for each in own]
        env = {**os.environ, "OMP_NUM_THREADS": str(threads), "LOCAL_WORLD_SIZE": str(processes)}
        started = [
            subprocess.Popen(each, stdout=subprocess.PIPE, text=True, env=env) for each in commands
        ]
        texts = [each.communicate()[0] for each in started]
    if any(each.returncode for each in started):
        sys.exit("A process failed.")
    found: dict[str, Any] = json.loads(texts[0].splitlines()[-1])
    return found


def settings(p: Brunel) -> list[float]:
    return [p.neurons, p.g, p.eta, p.lr]


def in_nest(p: Brunel, ms: int, nest: Path, mpi: str | None) -> dict[str, Any]:
    """Runs the network in NEST: in two MPI processes of one thread, or in two threads."""
    names = ("neurons", "g", "lr", "depression", "tc_mem", "tc_trace", "threshold", "reset")
    given = {name: getattr(p, name) for name in (*names, "refractory", "w_exc", "w_max", "drive")}
    given |= {"delay": float(p.delay), "threads": 1 if mpi else 2, "ms": float(ms), "seed": 0}
    script = str(Path(__file__).with_name("_brunel_nest.py"))
    command = [*shlex.split(mpi or ""), str(nest), script, json.dumps({**given, "settle": SETTLE})]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return {**found, "built": found["build"], "rates": list(found["rates"].values())}


def model(one: dict[str, Any], small: dict[str, Any], large: dict[str, Any], ms: int) -> None:
    """Prints times and memory of larger networks, by figures of this run and what is assumed."""
    rate = sum(share * hz for share, hz in zip((0.8, 0.2), one["rates"], strict=True))
    of_spike = one["seconds"] / ms * 1000 / (one["synapses"] * rate)  # s a spike at a synapse
    each = [run["exchange"] / run["exchanges"] for run in (small, large)]
    sizes = [run["bytes"] / run["exchanges"] for run in (small, large)]
    more = sizes[1] - sizes[0]
    per_byte = max(0.0, (each[1] - each[0]) / more) if more > 0.1 * sizes[0] else 0.0
    fixed = max(0.0, each[0] - per_byte * sizes[0])
    print(
        f"\nFitted: {1e9 * of_spike:.2f} ns a spike and synapse on one thread;"
        f" {1e6 * fixed:.0f} µs and {1e9 * per_byte:.2f} ns a byte an exchange of two processes on"
        f" this machine. Assumed: {rate:.0f} Hz, steps of 1 ms and delays of 2, an exchange of"
        f" {1e6 * HOP:.0f} µs for each doubling of processes and {BANDWIDTH / 1e9:.0f} GB/s between"
        " machines, beside the fixed part; one nanosecond for eight neurons whose spikes are looked"
        " at, in each of four connections; 20 bytes a synapse, 40 a source in each connection.\n"
    )
    rows = []
    for synapses, degree in ((1e9, 1e3), (1e11, 1e4)):
        neurons = synapses / degree
        for processes in (8, 64, 512, 4096):
            local = 1000 * 4 * neurons / 8 * 1e-9 + of_spike * synapses * rate / processes
            spikes = neurons * rate / 500  # in an exchange, of which there are 500 a second
            apart = 500 * (fixed + HOP * math.log2(processes) + 4 * spikes / BANDWIDTH)
            memory = 20 * synapses / processes + 4 * 40 * neurons
            rows.append([
                f"{synapses:.0e}", f"{neurons:.0e}", str(processes), f"{local:.2f}", f"{apart:.2f}",
                f"{local + apart:.2f}", f"{memory / 1e9:.1f}",
            ])  # fmt: skip
    head = ["synapses", "neurons", "threads, one a process", "s of own work a biological second"]
    table([*head, "s of exchange", "s in all", "GB a process"], rows)


def measured(
    p: Brunel, ms: int, turns: int, nest: Path, mpi: str | None
) -> dict[str, list[dict[str, Any]]]:
    """Returns what each way took in each turn."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for _ in range(turns):
        for name, processes, threads in (
            ("one process, 1 thread", 1, 1),
            ("one process, 2 threads", 1, 2),
            ("2 processes, 1 thread", 2, 1),
        ):
            runs.setdefault(name, []).append(ours(p, processes, threads, ms))
        if nest.exists():
            name = "NEST, 2 processes" if mpi else "NEST, 2 threads"
            runs.setdefault(name, []).append(in_nest(p, ms, nest, mpi))
    return runs


def show(runs: dict[str, list[dict[str, Any]]], ms: int) -> None:
    """Prints the table of all ways."""
    seconds = seconds_of(runs, ms)
    rows = []
    for name, found in runs.items():
        last = found[-1]
        share, sent = last.get("exchange", 0.0) / last["seconds"], last.get("bytes", 0) / ms
        rows.append([
            name, f"{seconds[name]:.3f}", f"{100 * share:.0f} %", f"{sent:,.0f}",
            " and ".join(f"{rate:.1f}" for rate in last["rates"]), f"{last['built']:.1f}",
            f"{last['MB']:.0f}",
        ])  # fmt: skip
    head = ["", "s per biological second", "of it in the exchange", "bytes a step"]
    table([*head, "rates E and I, Hz", "s to build", "peak MB of a process"], rows)
    ratio = seconds["2 processes, 1 thread"] / seconds["one process, 2 threads"]
    goal(f"two processes take {ratio:.2f} times as long as two threads")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a tiny network, to see it run")
    parser.add_argument("--ms", type=int, default=1000, help="of biological time")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--nest", type=Path, default=ROOT / ".references/bin/python")
    parser.add_argument("--mpi", help="such as 'mpirun -n 2', if NEST has MPI")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--place", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        *own, rank, processes, threads = json.loads(args.one)
        run_share(Brunel(*own), rank, processes, threads, args.ms, args.place)
    p, ms, turns = Brunel(lr=LR), args.ms, args.turns
    if args.smoke:
        p, ms, turns = Brunel(400, lr=LR), 100, 1
    print(setting())
    runs = measured(p, ms, turns, args.nest, args.mpi)
    synapses = runs["one process, 1 thread"][0]["synapses"]
    print(f"\n### {p.neurons:,} neurons, {synapses:,} synapses\n")
    show(runs, ms)
    small = ours(Brunel(p.neurons // 4, lr=LR), 2, 1, ms)
    model(runs["one process, 1 thread"][-1], small, runs["2 processes, 1 thread"][-1], ms)


if __name__ == "__main__":
    main()

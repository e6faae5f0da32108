"""Milliseconds to compute many accumulators over two processes, together and one by one.

Two processes of one machine, over gloo, in turns.

    python benchmarks/metric_synchronization.py [--smoke]
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from _measure import setting, table
from torchmetrics import MeanMetric, Metric

from lightning_accum.accumulators import Mean, synchronize

COUNTS, SMOKE_COUNTS = (1, 10, 100), (1, 3)


def filled(kind: Callable[[], Metric], count: int) -> list[Metric]:
    metrics = [kind() for _ in range(count)]
    for i, metric in enumerate(metrics):
        metric.update(torch.tensor(float(i + dist.get_rank())))
    return metrics


def together(count: int) -> float:
    metrics = filled(Mean, count)
    return timed(lambda: (synchronize(metrics), [metric.compute() for metric in metrics]))


def one_by_one(kind: Callable[[], Metric]) -> Callable[[int], float]:
    def run(count: int) -> float:
        metrics = filled(kind, count)
        return timed(lambda: [metric.compute() for metric in metrics])

    return run


def timed(call: Callable[[], object]) -> float:
    dist.barrier()
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


WAYS: dict[str, Callable[[int], float]] = {
    "synchronize(Mean, ...)": together,
    "Mean.compute() each": one_by_one(Mean),
    "torchmetrics.MeanMetric.compute() each": one_by_one(MeanMetric),
}


def work(rank: int, port: int, smoke: bool) -> None:
    """Measures in one of two processes; the first prints what it found."""
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{port}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    rows = []
    for count in SMOKE_COUNTS if smoke else COUNTS:
        times: dict[str, list[float]] = {name: [] for name in WAYS}
        for turn in range(4 if smoke else 22):
            for name, way in WAYS.items():
                elapsed = way(count)
                if turn > 1:  # the first turns warm up
                    times[name].append(elapsed)
        rows.append((count, {name: statistics.median(found) for name, found in times.items()}))
    if rank == 0:
        print(json.dumps(rows), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # an exit beside gloo's threads now and then aborts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="few accumulators, to see it run")
    parser.add_argument("--work", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(*args.work, args.smoke)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    started = [
        subprocess.Popen(
            [sys.executable, __file__, "--work", str(rank), port, *["--smoke"] * args.smoke],
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit("A process failed.")
    torch.set_num_threads(1)  # as in the processes
    print(f"{setting('torchmetrics')}; 2 processes, gloo, medians\n")
    rows = [
        [str(count), *(f"{found[name]:.2f}" for name in WAYS)]
        for count, found in json.loads(printed[0])
    ]
    table(["accumulators", *(f"{name}, ms" for name in WAYS)], rows)


if __name__ == "__main__":
    main()

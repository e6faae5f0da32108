"""What it costs to sum pending updates over processes, in bytes and in time.

For ``k`` parameters with ``n`` elements of ``s`` bytes together, an apply moves ``(2 n + k) s``
bytes, of which each of ``R`` processes in a ring sends ``2 (R - 1) / R``; the bytes are asserted. A
line is fitted to the lower quartiles of the time. Processes share one machine, over gloo.

    python benchmarks/all_reduce.py [--smoke]
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
from _measure import middle, setting, table
from torch import Tensor

from lightning_accum.distributed.world import Share, exchange
from lightning_accum.updates.pending import Pending

RANKS, SMOKE_RANKS = (2, 4), (2,)
# name: parameters, and elements of each
LOADS = {
    "1 of 1,000": (1, 1_000),
    "100 of 1,000": (100, 1_000),
    "1 of 100,000": (1, 100_000),
    "784 → 400": (1, 784 * 400),
    "1 of 1,000,000": (1, 1_000_000),
    "10 of 1,000,000": (10, 1_000_000),
}
SMOKE = {"1 of 1,000": (1, 1_000), "10 of 100": (10, 100), "1 of 50,000": (1, 50_000)}


def shares_of(count: int, size: int) -> list[Share]:
    return [Share(Pending(torch.Size((size,))), torch.zeros(size), 8) for _ in range(count)]


def pend(shares: list[Share]) -> None:
    for share in shares:
        share.pending.clear()
        share.pending.add(*torch.ones(2, 1).expand(2, share.param.numel()))


def one_by_one(shares: list[Share]) -> None:
    """What the one all-reduce stands in for: each part by itself."""
    for share in shares:
        for part in share.pending.parts(share.param):
            assert part is not None
            dist.all_reduce(part)


def timed(repeats: int, prepare: Callable[[], object], run: Callable[[], object]) -> list[float]:
    times = []
    for turn in range(repeats + 2):
        prepare()
        dist.barrier()
        start = time.perf_counter()
        run()
        if turn > 1:  # the first ones warm up
            times.append(1e3 * (time.perf_counter() - start))
    return times


def moved(shares: list[Share]) -> int:
    """Bytes of what ``exchange`` gives to the all-reduce."""
    found: list[int] = []
    inner = dist.all_reduce

    def counting(tensor: Tensor, *args: object, **options: object) -> object:
        found.append(tensor.numel() * tensor.element_size())
        return inner(tensor, *args, **options)

    dist.all_reduce = counting
    try:
        pend(shares)
        exchange(shares)
    finally:
        dist.all_reduce = inner
    if len(found) != 1:
        raise AssertionError(f"An exchange should be one all-reduce. Found {len(found)}.")
    return found[0]


def work(rank: int, ranks: int, port: int, smoke: bool) -> None:
    """Measures in one process of several; the first prints what it found."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks
    )
    rows = []
    for name, (count, size) in (SMOKE if smoke else LOADS).items():
        shares = shares_of(count, size)
        total = moved(shares)
        expected = (2 * count * size + count) * 4
        if total != expected:
            raise AssertionError(f"Load `{name}` should move {expected} bytes. Found {total}.")
        repeats = 5 if smoke else 50 if total < 4e6 else 15
        flat = torch.zeros(total // 4)

        def ready(shares: list[Share] = shares) -> None:
            pend(shares)

        whole = timed(repeats, ready, lambda own=shares: exchange(own))
        bare = timed(repeats, flat.zero_, lambda own=flat: dist.all_reduce(own))
        each = timed(5, ready, lambda own=shares: one_by_one(own))
        rows.append((name, total, whole, bare, each))
    if rank == 0:
        print(json.dumps(rows), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # an exit beside gloo's threads now and then aborts


def measure(ranks: int, smoke: bool) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, __file__, "--work", "{}", str(ranks), str(port)]
    command += ["--smoke"] if smoke else []
    started = [
        subprocess.Popen(
            [part.format(rank) for part in command],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for rank in range(ranks)
    ]
    printed = [process.communicate()[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"A process of {ranks} failed.")
    print(f"\n### {ranks} processes\n")
    points, rows = [], []
    for name, total, *kinds in json.loads(printed[0]):
        low = statistics.quantiles(kinds[0], n=4)[0]
        bare, each = (statistics.median(times) for times in kinds[1:])
        sent = 2 * (ranks - 1) / ranks * total / 1e6
        points.append((total / 1e6, low))
        rows.append(
            [name, f"{total / 1e6:.3f}", f"{sent:.3f}", middle(kinds[0], 2), f"{bare:.2f}",
             f"{each:.2f}"]
        )  # fmt: skip
    table(["parameters", "MB", "sent by each", "ms", "only the all-reduce", "part by part"], rows)
    slope, begin = fitted(points)
    print(f"\n{begin:.2f} ms to begin, and {slope:.2f} ms for each MB")


def fitted(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Slope and intercept, by the least squares of what is missed beside what was measured."""
    x, y = torch.tensor(points, dtype=torch.float64).unbind(1)
    design = torch.stack([x, torch.ones_like(x)], 1) / y[:, None]
    slope, begin = torch.linalg.lstsq(design, torch.ones_like(y)).solution.tolist()
    return slope, begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny loads, just to see it run")
    parser.add_argument("--work", nargs=3, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        work(*args.work, args.smoke)
        return
    torch.set_num_threads(1)  # as in the processes
    print(f"{setting()}; {os.cpu_count()} cores, gloo")
    for ranks in SMOKE_RANKS if args.smoke else RANKS:
        measure(ranks, args.smoke)


if __name__ == "__main__":
    main()

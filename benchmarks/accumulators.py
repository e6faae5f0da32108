"""Microseconds of one ``update``, compared with ``torchmetrics.SumMetric`` and ``MeanMetric``.

Scalar tensors, one thread, processor time, in short interleaved rounds.

    python benchmarks/accumulators.py [--smoke]
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from _measure import middle, setting, table
from torchmetrics import MeanMetric, Metric, SumMetric

from lightning_accum import accumulators as acc

MADE: dict[str, Callable[[], Metric]] = {
    "torchmetrics.SumMetric": SumMetric,
    "torchmetrics.MeanMetric": MeanMetric,
    "Sum": acc.Sum,
    "Mean": acc.Mean,
    "Max": acc.Max,
    "Min": acc.Min,
    "Variance": acc.Variance,
    "EMA": acc.EMA,
    "Window(100)": lambda: acc.Window(100),
    "List": acc.List,
    "Except(Sum(), begin=2)": lambda: acc.Except(acc.Sum(), begin=2),
}


def round_of(call: Callable[[torch.Tensor], object], value: torch.Tensor, calls: int) -> float:
    """Microseconds of CPU time of one call, the mean over a round."""
    start = time.process_time()
    for _ in range(calls):
        call(value)
    return 1e6 * (time.process_time() - start) / calls


def measure(method: str, rounds: int, calls: int) -> dict[str, list[float]]:
    """Every accumulator's rounds; the first, which warms up, is left out."""
    metrics = {name: make() for name, make in MADE.items()}
    value = torch.tensor(1.5)
    times: dict[str, list[float]] = {name: [] for name in metrics}
    for turn in range(rounds + 1):
        for name, metric in metrics.items():
            elapsed = round_of(getattr(metric, method), value, calls)
            metric.reset()
            if turn:
                times[name].append(elapsed)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="a few calls, just to see it run")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--calls", type=int, default=500)
    args = parser.parse_args()
    rounds, calls = (2, 10) if args.smoke else (args.rounds, args.calls)
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    print(f"{setting('torchmetrics')}, {rounds} rounds of {calls} calls\n")
    updates, forwards = (measure(method, rounds, calls) for method in ("update", "forward"))
    base = statistics.median(updates["torchmetrics.SumMetric"])
    rows = []
    for name in MADE:
        ratio = statistics.median(updates[name]) / base
        rows.append([name, middle(updates[name]), f"{ratio:.2f}", middle(forwards[name])])
    table(["accumulator", "`update` µs", "of SumMetric", "called µs"], rows)


if __name__ == "__main__":
    main()

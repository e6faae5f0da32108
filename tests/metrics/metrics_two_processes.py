"""Metrics of two processes: `python metrics_two_processes.py RANK RENDEZVOUS`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.testing import assert_close

from lightning_accum.metrics import FiringStatistics, MaxRateClassifier, UpdateStatistics

# Also imported where docstrings' examples are looked for.
RANK = int(sys.argv[1]) if __name__ == "__main__" else 0


def updates() -> list[dict[str, Any]]:
    """Seven updates within limits, two of them with NaN or Inf."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for i in range(7):
        w, pos, neg = (torch.rand(3, 4, generator=generator) for _ in range(3))
        if i in (1, 5):
            pos[0, : min(i, 4)] = float("nan") if i == 1 else float("inf")
        after = (w + pos - neg).clamp(0, 1)
        found.append(
            {"before": w, "after": after, "pos": pos, "neg": neg, "lower": 0.0, "upper": 1.0}
        )
    return found


def spikes() -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(5, b, 2, 3, generator=generator) < 0.03 for b in (4, 4, 4, 1, 2)]


def alone(kind: type[Any], inputs: list[Any]) -> Any:
    """The result of one process that sees all inputs."""
    return fed(kind(sync_on_compute=False), inputs).compute()


def fed(metric: Any, inputs: list[Any]) -> Any:
    for each in inputs:
        metric.update(**each) if isinstance(each, dict) else metric.update(each)
    return metric


def updates_of_each_process_are_averaged_together() -> None:
    every = updates()
    own = every[:2] if RANK == 0 else every[2:]
    metric = UpdateStatistics()
    found, expected = fed(metric, own).compute(), alone(UpdateStatistics, every)
    assert_close(found, expected)
    # One NaN in a part and so in the weights, and four Inf that the limits kept out of them.
    assert_close(found["nonfinite"], torch.tensor((1 + 1 + 4) / 7))
    # What it holds is its own again, and goes on.
    metric.update(**own[0])
    again = [*every, every[0], every[2]]
    assert_close(metric.compute(), alone(UpdateStatistics, again))


def the_same_updates_in_each_process_count_as_one() -> None:
    metric = UpdateStatistics()
    assert_close(fed(metric, updates()).compute(), alone(UpdateStatistics, updates()))


def a_process_without_updates_takes_part() -> None:
    metric = UpdateStatistics()
    fed(metric, updates() if RANK else [])
    metric._update_count = max(metric._update_count, 1)  # torchmetrics warns of none
    assert_close(metric.compute(), alone(UpdateStatistics, updates()))


def spikes_of_each_process_are_counted_together() -> None:
    every = spikes()
    metric = FiringStatistics()
    found = fed(metric, every[RANK::2]).compute()
    assert_close(found, alone(FiringStatistics, every))
    assert 0 < found["silent_share"] < alone(FiringStatistics, every[:1])["silent_share"]


def classes_are_those_of_all_samples() -> None:
    generator = torch.Generator().manual_seed(2)
    rates, labels = torch.rand(24, 6, generator=generator), torch.arange(24) % 3
    every = [
        {"rates": rates[i : i + 4], "labels": labels[i : i + 4]} for i in range(0, len(rates), 4)
    ]
    whole = fed(MaxRateClassifier(6, 3, sync_on_compute=False), every)
    metric = fed(MaxRateClassifier(6, 3), every[:1] if RANK == 0 else every[1:])
    assert metric.assignments.tolist() == whole.assignments.tolist()
    assert metric.predict(rates).tolist() == whole.predict(rates).tolist()


def checks() -> Iterator[Any]:
    yield updates_of_each_process_are_averaged_together
    yield the_same_updates_in_each_process_count_as_one
    yield a_process_without_updates_takes_part
    yield spikes_of_each_process_are_counted_together
    yield classes_are_those_of_all_samples


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=sys.argv[2], rank=RANK, world_size=2)
    for check in checks():
        check()
        print(check.__name__, flush=True)
    dist.barrier()
    # Beside gloo's threads an exit now and then aborts.
    os._exit(0)

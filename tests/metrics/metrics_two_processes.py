"""Metrics of two processes: `python metrics_two_processes.py RANK RENDEZVOUS FOLDER`."""

import sys

import torch
from torch.testing import assert_close
from two_processes import make_all

from lightning_accum.metrics import FiringStatistics, MaxRateClassifier, UpdateStatistics

# Also imported where docstrings' examples are looked for.
RANK = int(sys.argv[1]) if __name__ == "__main__" else 0


def updates():
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


def spikes():
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(5, b, 2, 3, generator=generator) < 0.03 for b in (4, 4, 4, 1, 2)]


def alone(kind, inputs):
    """The result of one process that sees all inputs."""
    return fed(kind(sync_on_compute=False), inputs).compute()


def fed(metric, inputs):
    for each in inputs:
        metric.update(**each) if isinstance(each, dict) else metric.update(each)
    return metric


def updates_of_each_process_are_averaged_together():
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


def the_same_updates_in_each_process_count_as_one():
    metric = UpdateStatistics()
    assert_close(fed(metric, updates()).compute(), alone(UpdateStatistics, updates()))


def a_process_without_updates_takes_part():
    metric = UpdateStatistics()
    fed(metric, updates() if RANK else [])
    metric._update_count = max(metric._update_count, 1)  # torchmetrics warns of none
    assert_close(metric.compute(), alone(UpdateStatistics, updates()))


def spikes_of_each_process_are_counted_together():
    every = spikes()
    metric = FiringStatistics()
    found = fed(metric, every[RANK::2]).compute()
    assert_close(found, alone(FiringStatistics, every))
    assert 0 < found["silent_share"] < alone(FiringStatistics, every[:1])["silent_share"]


def classes_are_those_of_all_samples():
    generator = torch.Generator().manual_seed(2)
    rates, labels = torch.rand(24, 6, generator=generator), torch.arange(24) % 3
    every = [
        {"rates": rates[i : i + 4], "labels": labels[i : i + 4]} for i in range(0, len(rates), 4)
    ]
    for vote in ("assigned", "proportional", "bayes"):
        whole = fed(MaxRateClassifier(6, 3, vote, sync_on_compute=False), every)
        metric = fed(MaxRateClassifier(6, 3, vote), every[:1] if RANK == 0 else every[1:])
        assert metric.predict(rates).tolist() == whole.predict(rates).tolist()
        assert metric.assignments.tolist() == whole.assignments.tolist()


CHECKS = [
    updates_of_each_process_are_averaged_together,
    the_same_updates_in_each_process_count_as_one,
    a_process_without_updates_takes_part,
    spikes_of_each_process_are_counted_together,
    classes_are_those_of_all_samples,
]

if __name__ == "__main__":
    make_all(CHECKS)

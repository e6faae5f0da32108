"""Streams of random values, and what each accumulator has to make of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn

from lightning_accum import accumulators as acc

SHAPES = [(), (1,), (3,), (1, 1), (2, 3), (0,)]


def stream(count, shape=(), seed=0):
    """Values far from zero, where an unstable variance would fail."""
    generator = torch.Generator().manual_seed(seed)
    return list(5 + torch.randn((count, *shape), generator=generator, dtype=torch.float64))


def ema(values, decay=0.9):
    weights = (decay ** torch.arange(len(values) - 1, -1, -1, dtype=torch.float64)).to(values)
    return torch.tensordot(weights, values, 1) / weights.sum()


def variance(values, correction=1):
    return (values - values.mean(0)).abs().square().sum(0) / (len(values) - correction)


def stacked(found):
    """Returns the result of an accumulator, with the values of a list in one tensor."""
    return torch.stack(found) if isinstance(found, list) else found


def written(folder):
    """Steps and values of each tag in a folder of event files."""
    events = EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }


class Logging(nn.Module):
    """What a LightningModule has for a pipe."""

    current_epoch = 0

    def __init__(self):
        super().__init__()
        self.logged, self.options = [], {}

    def log(self, name, value, **options):
        self.logged.append((name, value))
        self.options = options

    def values(self, name):
        return [float(value) for key, value in self.logged if key == name]


class Product(acc.CustomAccumulator):
    """Written as the source document has it."""

    def __init__(self):
        super().__init__()
        self.reset()

    def forward(self, data):
        self.data = self.data * data

    def calculate(self):
        return self.data

    def reset(self):
        self.data = torch.tensor(1.0)


class Case(NamedTuple):
    """An accumulator, and what it computes of all its values, stacked."""

    make: Callable[[], acc.StreamAccumulator]
    reference: Callable[[Tensor], Tensor]


CASES = {
    "Sum": Case(acc.Sum, lambda x: x.sum(0)), "Mean": Case(acc.Mean, lambda x: x.mean(0)),
    "Max": Case(acc.Max, lambda x: x.amax(0)), "Min": Case(acc.Min, lambda x: x.amin(0)),
    "Variance": Case(acc.Variance, variance),
    "Variance0": Case(lambda: acc.Variance(correction=0), lambda x: variance(x, correction=0)),
    "EMA": Case(acc.EMA, ema), "Window": Case(lambda: acc.Window(3), lambda x: x[-3:].mean(0)),
    "List": Case(acc.List, lambda x: x),
    "Except": Case(
        lambda: acc.Except(acc.Sum(), begin=2), lambda x: x[torch.arange(len(x)) % 3 != 2].sum(0)
    ),
}  # fmt: skip
# Those whose result does not depend on how their values were divided.
MERGED = ["Sum", "Mean", "Max", "Min", "Variance", "Variance0", "List"]

"""What one applied update did, and how the neurons fired, by the names under which it is logged."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from lightning_accum.functional.statistics import spike_counts, update_statistics
from lightning_accum.learn.host import CellHost
from lightning_accum.observe import WindowRecorder
from lightning_accum.updates import Updater
from lightning_accum.updates.shards import whole

Values = dict[str, Tensor]


class Activity(NamedTuple):
    """What the neuron of a cell gave out in a window."""

    window: Tensor
    counts: Tensor

    @property
    def rates(self) -> Tensor:
        """Spikes in a step of one sample, of each neuron."""
        return self.counts / (self.window.shape[0] * self.window.shape[1])

    def values(self) -> Values:
        """Firing rate and share of silent neurons, by name."""
        return {
            "firing_rate": self.rates.mean(),
            "silent_share": (self.counts == 0).float().mean(),
        }


def activities(host: CellHost) -> dict[str, Activity]:
    """What the neurons gave out since the rule was last evaluated, by cell."""
    found = {}
    for (cell, name), monitor in host.trainer.named_monitors:
        recorder = monitor.reducer
        if name != "post" or not isinstance(recorder, WindowRecorder):
            continue
        window = recorder.window()
        if window is not None:
            found[cell] = Activity(window, spike_counts(window))
    return found


class Before(NamedTuple):
    """A parameter before an update is applied to it."""

    cell: str
    name: str
    updater: Updater
    param: Tensor
    value: Tensor
    parts: tuple[Tensor | None, Tensor | None]

    def values(self) -> Values:
        """The statistics of what was applied since, by name."""
        lower, upper = self.updater.limits(self.name)
        found = update_statistics(self.value, whole(self.param), *self.parts, lower, upper)
        return {statistic: value.float() for statistic, value in found.items()}


class Measurement:
    """The parameters before an update is applied, to be compared with what they are afterwards.

    Args:
        host: whose updaters are about to be applied.
        ids: the ``id`` of every parameter to which they will be.
    """

    def __init__(self, host: CellHost, ids: set[int]) -> None:
        self.taken: list[Before] = []
        for cell, updater in host.updaters.items():
            for name in updater.names:
                if id(getattr(updater.parent, name)) not in ids:
                    continue
                accumulator = updater._getacc_(updater, name)
                param = getattr(updater.parent, name).detach()
                parts = accumulator.pos, accumulator.neg
                value = whole(param).clone()
                self.taken.append(Before(cell, name, updater, param, value, parts))

"""What one applied update did, and how the neurons fired, by the names under which it is logged."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum.callbacks._host import CellHost
from lightning_accum.distributed.gather import CAPACITY, gather_bytes
from lightning_accum.distributed.packing import from_bytes, to_bytes
from lightning_accum.distributed.shards import whole
from lightning_accum.distributed.world import processes
from lightning_accum.functional.statistics import spike_counts, update_statistics
from lightning_accum.observe import WindowRecorder
from lightning_accum.updates import Updater

Values = dict[str, Tensor]


class Activity(NamedTuple):
    """What the neuron of a cell gave out in a window.

    Attributes:
        window: the activity of this process' samples.
        counts: spikes of each neuron, in all processes together.
        slots: in how many steps of a sample, in all processes together.
    """

    window: Tensor
    counts: Tensor
    slots: int

    @property
    def rates(self) -> Tensor:
        """Spikes in a step of one sample, of each neuron."""
        return self.counts / max(self.slots, 1)

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
        if window is not None and window.ndim > 2:  # or else the rule says what is missing
            slots = window.shape[0] * window.shape[1]
            found[cell] = Activity(window, spike_counts(window), slots)
    return _together(found) if processes() > 1 else found


def _together(found: dict[str, Activity]) -> dict[str, Activity]:
    """The same with what all processes have counted; on logging steps alone, for it waits."""
    own = {cell: (activity.counts.cpu(), activity.slots) for cell, activity in found.items()}
    device = next((a.counts.device for a in found.values()), torch.device("cpu"))
    rows = [from_bytes(row) for row in gather_bytes(to_bytes(own), CAPACITY, device)]
    return {
        cell: activity._replace(
            counts=sum(row[cell][0] for row in rows if cell in row).to(activity.counts),
            slots=sum(row[cell][1] for row in rows if cell in row),
        )
        for cell, activity in found.items()
    }


class Before(NamedTuple):
    """A parameter before an update is applied to it."""

    cell: str
    name: str
    updater: Updater
    param: Tensor
    value: Tensor
    parts: tuple[Tensor | None, Tensor | None]

    def after(self) -> Tensor:
        """The parameter as it is now, whole; every process has to ask for it."""
        return whole(self.param)

    def values(self, after: Tensor) -> Values:
        """The statistics of what was applied since, by name.

        Args:
            after: the parameter as it is now.
        """
        lower, upper = self.updater.limits(self.name)
        found = update_statistics(self.value, after, *self.parts, lower, upper)
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
                target = updater.target(name)
                if id(target) not in ids:
                    continue
                accumulator, param = updater._getacc_(updater, name), target.detach()
                parts = accumulator.pos, accumulator.neg
                value = whole(param).clone()
                self.taken.append(Before(cell, name, updater, param, value, parts))

"""Measurements of one applied update, and of the activity of neurons in one window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from lightning_accum.callbacks._host import CellHost
from lightning_accum.distributed.shards import whole
from lightning_accum.distributed.world import (
    CAPACITY,
    from_bytes,
    gather_bytes,
    processes,
    to_bytes,
)
from lightning_accum.functional.statistics import update_statistics
from lightning_accum.sparse.search import fast_count_statistics, fast_spike_counts
from lightning_accum.sparse.statistics import fast_lost_change, summed_statistics

Values: TypeAlias = Mapping[str, Tensor | float]
"""Measurements by name: numbers that the kernel has summed, or tensors without dimensions."""


class Activity(NamedTuple):
    """The activity of a cell's neuron in a window.

    Attributes:
        window: the output of the neuron in this process, ``[T, B, ...]``.
        counts: the number of spikes of each neuron, ``[N]``, summed over processes.
        slots: the number of steps times samples, summed over processes.
    """

    window: Tensor
    counts: Tensor
    slots: int

    @property
    def rates(self) -> Tensor:
        """The spikes of each neuron per step of a sample."""
        return self.counts / max(self.slots, 1)

    def values(self) -> Values:
        """Returns the firing rate and the share of silent neurons, by name."""
        return fast_count_statistics(self.counts, self.slots)


def activities(host: CellHost) -> dict[str, Activity]:
    """Returns the activity of the neurons since the rule was last evaluated, by cell.

    Args:
        host: the host of the cells.
    """
    found = {}
    for cell, monitor in host.trainer.monitors_named("post"):
        window = monitor.reducer.window()
        if window is not None and window.ndim > 2:  # otherwise the rule raises an error
            slots = window.shape[0] * window.shape[1]
            found[cell] = Activity(window, fast_spike_counts(window), slots)
    return _summed_over_processes(found) if processes() > 1 else found


def _summed_over_processes(found: dict[str, Activity]) -> dict[str, Activity]:
    """Returns the activities with counts and slots summed over processes; waits for the device."""
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
    """A parameter before an update.

    Attributes:
        cell: name of the cell.
        name: name of the parameter.
        param: the parameter, which the update changes.
        value: a copy of the whole parameter.
        parts: the potentiating and the depressing part of the pending change, until it is applied
            and others are accumulated.
        limits: the lower and the upper limit of the parameter.
    """

    cell: str
    name: str
    param: Tensor
    value: Tensor
    parts: tuple[Tensor | None, Tensor | None]
    limits: tuple[float | None, float | None]

    def after(self) -> Tensor:
        """Returns the current value of the whole parameter; every process has to call this."""
        return whole(self.param.detach())

    def values(self, after: Tensor) -> Values:
        """Returns the statistics of the update, by name.

        Args:
            after: the whole parameter after the update.
        """
        measured = self.value, after, *self.parts, *self.limits
        found = summed_statistics(*measured)
        if found is None:
            return {name: value.float() for name, value in update_statistics(*measured).items()}
        return found

    def lost(self, after: Tensor) -> tuple[Tensor, Tensor] | tuple[float, float]:
        """Returns how much of the pending change had no effect, and how much there was.

        Weights near a limit or beyond it do not count: what a limit or a soft bound holds back is
        not lost.

        Args:
            after: the whole parameter after the update.
        """
        if any(part is not None and part.shape != after.shape for part in self.parts):
            return 0.0, 0.0  # only a shard of it is here
        return fast_lost_change(self.value, after, self.parts, self.limits)


def parameters_before(host: CellHost, ids: set[int] | None = None) -> list[Before]:
    """Returns copies of the parameters that are about to be updated.

    Those that no cell trains are left out, unless something else has accumulated changes of them.

    Args:
        host: the host of the cells.
        ids: the ``id`` of every parameter to which updates will be applied. Default: all.
    """
    found, params_of = [], host.trainer.params_of
    trained = {
        (key, param)
        for key, (_, cells) in host.trainer.updaters.items()
        for cell in cells
        for param in params_of(cell)
    }
    for cell, updater in host.updaters.items():
        for name in updater.names:
            target, pending = updater.target(name), getattr(updater, name)
            learns = (id(updater), name) in trained or not pending.empty
            if learns and (ids is None or id(target) in ids):
                value = whole(target.detach()).clone()
                # A bound is the user's, and may write to the parts.
                bounded = pending.bounded
                parts = (pending.pos, pending.neg) if bounded else pending.known_parts()
                found.append(Before(cell, name, target, value, parts, updater.limits(name)))
    return found

"""Neurons that are divided over processes: which a process has, and how spikes are exchanged."""

import os
from collections.abc import Callable
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

from lightning_accum.distributed.world import processes


def own_neurons(size: int) -> range:
    """Returns which neurons of a population this process has; all if there is one process.

    Each process has as many, up to one.

    Args:
        size: the number of neurons in all processes.

    Raises:
        ValueError: if there are fewer neurons than processes.

    Example:
        >>> own_neurons(100)
        range(0, 100)
    """
    count = processes()
    if size < count:
        raise ValueError(
            "A population should have a neuron for each process. Found"
            f" {size} neurons and {count} processes: start fewer processes."
        )
    rank = dist.get_rank() if count > 1 else 0
    return range(size * rank // count, size * (rank + 1) // count)


def processes_here() -> int:
    """Returns how many processes share the memory of this machine, as ``torchrun`` says."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", 1))


def of_all(value: Any) -> list[Any]:
    """Returns a value of each process, by rank; every process has to call it."""
    found: list[Any] = [value] * processes()
    if len(found) > 1:
        dist.all_gather_object(found, value)
    return found


@final
class SpikeExchange:
    """Gathers lists of spikes of any length from all processes, as a rule in one ``all_gather``.

    A row of a table has the number of a process's spikes, and their places. If a row is too short,
    all processes see it, and repeat with longer rows.
    """

    def __init__(self) -> None:
        self.room = 255  # places in a row

    def __call__(
        self, collect: Callable[[Tensor, int], object], scatter: Callable[[Tensor, int], int]
    ) -> None:
        """Exchanges spikes.

        Args:
            collect: writes the number and the places of the own spikes into a row, int32
                ``[1 + room]``, as far as there is room.
            scatter: takes the rows of all processes, and returns the largest number in them.
        """
        if processes() == 1:
            return
        while True:
            room = self.room
            row = torch.empty(1 + room, dtype=torch.int32)
            rows = torch.empty(processes(), 1 + room, dtype=torch.int32)
            collect(row, room)
            dist.all_gather(list(rows.unbind()), row)
            most = scatter(rows, room)
            if most <= room:
                return
            self.room = most + most // 4

    def fill(self, raster: Tensor) -> None:
        """Adds the spikes of the others to booleans that have the own: the plain form."""
        flat = raster.view(-1)
        places = flat.nonzero().flatten().int()

        def collect(row: Tensor, room: int) -> None:
            row[0], few = len(places), places[:room]
            row[1 : 1 + len(few)] = few.cpu()

        def scatter(rows: Tensor, room: int) -> int:
            for row in rows:
                flat[row[1 : 1 + int(row[0])].long().to(flat.device)] = True
            return int(rows[:, 0].max())

        self(collect, scatter)

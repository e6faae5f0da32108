"""Neurons that are divided over processes: which a process has, and how spikes are exchanged."""

from typing import final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from lightning_accum._checks import check_value
from lightning_accum.distributed.world import processes, rank


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
    should = f"at least {count}, a neuron for each process"
    check_value(size >= count, "size", size, should, "start fewer processes")
    return range(size * rank() // count, size * (rank() + 1) // count)


@final
class SpikeExchange:
    """Gathers lists of spikes of any length from all processes, as a rule in one ``all_gather``."""

    # A row of a table has the number of a process's spikes, and their places. If a row is too
    # short, all processes see it, and repeat with longer rows.

    def __init__(self) -> None:
        self.room = 255  # places in a row

    def __call__(self, raster: Tensor) -> None:
        """Adds the spikes of the others to booleans that have the own; fewer than 2^31."""
        if processes() == 1:
            return
        flat = raster.view(-1)
        places = torch.from_numpy(np.flatnonzero(flat.cpu().numpy()))
        while True:
            row = torch.empty(1 + self.room, dtype=torch.int32)
            rows = row.new_empty(processes(), len(row))
            row[0], few = len(places), places[: self.room]
            row[1 : 1 + len(few)] = few
            dist.all_gather(list(rows.unbind()), row)
            most = int(rows[:, 0].max())
            if most <= self.room:
                break
            self.room = most + most // 4
        for row in rows:
            flat[row[1 : 1 + int(row[0])].long().to(flat.device)] = True

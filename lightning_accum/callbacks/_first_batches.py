"""What is watched in the first batches of a fit, and nowhere afterwards."""

from __future__ import annotations

from typing import Protocol

from torch import nn

from lightning_accum.callbacks._carried_state import CarriedState
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._wiring import Wiring


class Watch(Protocol):
    """Watches modules in the first batches, by hooks of its own."""

    def batch_ended(self) -> bool:
        """Returns whether to watch on; warns of mistakes otherwise."""
        ...

    def remove(self) -> None:
        """Removes the hooks."""


def first_watches(host: CellHost, model: nn.Module | None) -> list[Watch]:
    """Begins to watch.

    Args:
        host: the host of the cells.
        model: the model that is trained, if it is known.
    """
    found: list[Watch] = [] if model is None else [Wiring(host.trainer, model)]
    return found if host.carry else [*found, CarriedState(host.trainer)]

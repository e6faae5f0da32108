"""Checks that watch modules in the first batches of a fit, and remove their hooks afterwards."""

from __future__ import annotations

from typing import Protocol

from torch import nn

from lightning_accum.callbacks._carried_state import CarriedState
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._wiring import Wiring


class Watch(Protocol):
    """Watches modules in the first batches, by hooks that it registers."""

    def batch_ended(self) -> bool:
        """Returns whether to go on watching; if not, it has warned of mistakes."""
        ...

    def remove(self) -> None:
        """Removes the hooks."""


def first_watches(host: CellHost, model: nn.Module | None) -> list[Watch]:
    """Registers the hooks of all such checks, and returns these.

    Args:
        host: the host of the cells.
        model: the model that is trained, if it is known.
    """
    found: list[Watch] = [] if model is None else [Wiring(host.trainer, model)]
    return found if host.carry else [*found, CarriedState(host.trainer)]

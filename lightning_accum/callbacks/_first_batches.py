"""Checks that watch modules in the first batches of a fit, and remove their hooks afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import nn

from lightning_accum.callbacks._carried_state import CarriedState
from lightning_accum.callbacks._forgotten_state import ForgottenState
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._other_weights import OtherWeights
from lightning_accum.callbacks._passed_state import PassedState
from lightning_accum.callbacks._wiring import Wiring


class Watch(Protocol):
    """Watches modules in the first batches, by hooks."""

    def register(self) -> None:
        """Registers the hooks."""

    def batch_ended(self) -> bool:
        """Returns whether to go on watching; if not, it has warned of mistakes."""
        ...

    def remove(self) -> None:
        """Removes the hooks."""


def first_watches(
    host: CellHost, model: nn.Module | None, hosts: Sequence[CellHost]
) -> list[Watch]:
    """Returns all checks of the first batches; their hooks are not registered yet.

    Args:
        host: the host of the cells.
        model: the model that is trained, if it is known.
        hosts: the hosts of all callbacks of the fit; the first one watches the rest of the model.
    """
    found: list[Watch] = [OtherWeights(host.trainer), ForgottenState(host.trainer)]
    if model is not None:
        found.append(Wiring(host.trainer, model))
    if host.carry:
        return found
    rest = model if not hosts or hosts[0] is host else None
    others = [each.trainer for each in hosts if each is not host]
    return [*found, CarriedState(host.trainer, rest, others), PassedState(host.trainer)]

"""The checks of a module as a whole, which only the first callback of a Trainer makes."""

from __future__ import annotations

from collections.abc import Sequence

import lightning.pytorch as pl
from torch.optim import Optimizer

from lightning_accum.callbacks._epoch_watch import EpochWatch
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._idle_constraints import idle_constraints
from lightning_accum.callbacks._untrained import IdleParameters, check_gradients, untrained_layers


class ModuleChecks:
    """Checks the parameters that no cell trains, and sums up the epochs of a fit.

    Args:
        hosts: the hosts of all callbacks of the fit, whose cells are bound.
        pl_module: the LightningModule.
        epochs: counts the batches of its epochs.
    """

    def __init__(
        self, hosts: Sequence[CellHost], pl_module: pl.LightningModule, epochs: EpochWatch
    ) -> None:
        self._hosts, self._module, self._epochs = hosts, pl_module, epochs
        self._idle: IdleParameters | None = IdleParameters(hosts, pl_module)

    def note_gradients(self, optimizer: Optimizer) -> None:
        """Warns of parameters of an optimizer without gradients, when its first step begins."""
        if check_gradients(optimizer, self._hosts, self._module):
            self._idle = None  # it would warn of the same parameters

    def lines(self) -> list[str]:
        """Returns the lines on what was not trained, at the end of the fit."""
        idle = [] if self._idle is None else self._idle.lines()
        untrained = untrained_layers(self._hosts, self._module)
        constraints = idle_constraints(self._hosts, self._module)
        return untrained + idle + constraints + self._epochs.lines()

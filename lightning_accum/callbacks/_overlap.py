"""The check whether gradients train a parameter that cells train too."""

from __future__ import annotations

from lightning.pytorch.utilities import rank_zero_warn
from torch.optim import Optimizer

from lightning_accum._checks import quoted
from lightning_accum.callbacks._host import CellHost
from lightning_accum.optim import UpdateOptimizer


class Overlap:
    """Warns once of parameters that both a rule and another optimizer change.

    A rule's change may have been exported to that optimizer as a gradient. Then nothing is pending
    when updates are applied, and there is no warning.

    Args:
        host: the host of the cells.
    """

    def __init__(self, host: CellHost) -> None:
        self._host = host
        self._known: set[int] = set()  # ids of the optimizers that were checked
        self._shared: list[tuple[str, str, str]] = []  # cell, parameter, optimizer

    def note(self, optimizer: Optimizer) -> bool:
        """Notes the cells' parameters that have a gradient when an optimizer begins to step.

        Args:
            optimizer: the optimizer.

        Returns:
            Whether this is its first step of the fit.
        """
        if id(optimizer) in self._known or isinstance(optimizer, UpdateOptimizer):
            return False
        self._known.add(id(optimizer))
        params = (param for group in optimizer.param_groups for param in group["params"])
        held = {id(param) for param in params if param.grad is not None}
        self._shared += [
            (cell, name, type(optimizer).__name__)
            for cell, updater in self._host.updaters.items()
            for name in updater.names
            if id(updater.target(name)) in held
        ]
        return True

    def check(self) -> None:
        """Warns if the cell of one of those parameters is about to change it too."""
        if not self._shared:
            return
        updaters = self._host.updaters
        found = [
            (f"{cell}.{name}", optimizer)
            for cell, name, optimizer in self._shared
            if not getattr(updaters[cell], name).empty
        ]
        if found:
            self._shared = []
            names = quoted((name for name, _ in found), ", ")
            rank_zero_warn(
                f"{names} should be trained by a rule or by gradients. Found that both change it,"
                f" the latter in {', '.join(sorted({each for _, each in found}))}: leave it out of"
                " that optimizer, for example with `requires_grad_(False)`, or pass the rule's"
                " change to it, with `updates_as_gradients()` of the CellTrainerCallback."
            )

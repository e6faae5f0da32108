"""The check that constraints hold for parameters whose updates become gradients."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from lightning_accum.distributed.world import is_first
from lightning_accum.updates import Updater


class ExportedConstraints:
    """Warns once of constraints on parameters whose updates an optimizer steps as gradients.

    An updater runs its constraints when it applies updates itself, so that these never run.
    """

    def __init__(self) -> None:
        self._checked = False

    def check(self, updaters: Mapping[str, Updater]) -> None:
        """Warns at the first call, when updates are about to become gradients.

        Args:
            updaters: the updaters of the cells, by name.
        """
        if self._checked:
            return
        self._checked = True
        found = [
            f"`{_called(fn)}` of `{cell}.{name}`"
            for cell, updater in updaters.items()
            for name in updater.names
            for fn in updater.constraints_of(name)
        ]
        for updater in updaters.values():
            updater.exports.told_of_constraints = True
        if found and is_first():
            warnings.warn(
                "A parameter whose updates become gradients should have no constraint on its"
                f" updater, which does not run it: the optimizer changes the parameter. Found"
                f" {', '.join(found)}: do not register it, and call it after each `step()` of the"
                " optimizer, such as `Clamp(0.0, 1.0)(fc.weight.data)`.",
                RuntimeWarning,
                stacklevel=4,
            )


def _called(constraint: object) -> str:
    name = getattr(constraint, "__qualname__", None)
    return repr(constraint) if name is None else str(name)

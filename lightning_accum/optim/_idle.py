"""Warns of steps of an :class:`UpdateOptimizer` that have nothing to apply."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

from lightning_accum._checks import quoted
from lightning_accum.updates import Updater
from lightning_accum.updates.late import Late


class IdleSteps:
    """Looks at steps until one finds a pending change; warns once of each mistake."""

    def __init__(self) -> None:
        self._without = False  # whether it has warned of steps without updaters
        self._late = Late()

    def look(self, updaters: Sequence[tuple[Updater, Iterable[str]]]) -> None:
        """Warns if changes have been applied before the steps that should apply them.

        Args:
            updaters: each with the names of its parameters that the step changes.
        """
        if self._late.over:
            return
        found = any(not getattr(updater, n).empty for updater, names in updaters for n in names)
        applied = sum(updater.applied.get(n, 0) for updater, names in updaters for n in names)
        if self._late.look(found, applied):
            labels = quoted((updater.label for updater, _ in updaters), ", ")
            warnings.warn(
                "An UpdateOptimizer should apply the changes of its updaters. Found nothing"
                f" pending in any of its steps so far, and {applied} changes of {labels} that were"
                " applied otherwise, so that `lr` and its schedule had no effect: leave out"
                " `rule.update()` and calls of the updaters.",
                RuntimeWarning,
                stacklevel=6,
            )

    def warn_of_none(self, updaters: int) -> None:
        """Warns that a step has nothing to apply, now or later.

        Args:
            updaters: how many updaters there are.
        """
        if self._without:
            return
        self._without = True
        what = f"{updaters} updaters, none of them of a parameter in its groups"
        warnings.warn(
            "An UpdateOptimizer should have updaters of its parameters to apply. Found"
            f" {what if updaters else 'none'}, so that its steps change nothing: give"
            " it the parameters that cells train, such as the `weight` of each connection, whose"
            " updaters a CellTrainerCallback attaches when a fit begins, or pass"
            " `updaters=[attach_updater(module)]`; an optimizer that replaces another during the"
            " fit has none.",
            RuntimeWarning,
            stacklevel=6,
        )

"""Warns of changes that are applied again and again, because nothing drops them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

from lightning_accum._checks import quoted
from lightning_accum.updates.accumulator import Accumulator

_AGAIN = 3  # times before a warning


class Kept:
    """Warns once of an updater that applies earlier changes with later ones."""

    def __init__(self) -> None:
        self._times = 0

    def note(
        self, module: str, names: Iterable[str], accumulators: Mapping[str, Accumulator]
    ) -> None:
        """Looks at changes that were applied with ``clear=False``.

        Args:
            module: the name of the module.
            names: the names of its parameters that changed.
            accumulators: what holds their changes, by name.
        """
        again = []
        for name in names:
            accumulator = accumulators[name]
            if 0 < accumulator.kept < accumulator.contributions:
                again.append(name)
            accumulator.kept = accumulator.contributions
        self._times += bool(again)
        if again and self._times == _AGAIN:
            named = quoted(again, ", ")
            warnings.warn(
                f"The changes of {named} of `{module}` should be dropped once they are applied."
                " Found calls with `clear=False` that applied earlier changes again with each"
                f" later one, {_AGAIN} times: leave out `clear=False`.",
                UserWarning,
                stacklevel=6,
            )

"""What has become of the changes that an updater was given."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from lightning_accum._ending import delete_at_exit, has_ended
from lightning_accum.updates.accumulator import Accumulator

_LEFT = 32  # contributions that were never applied, before it warns at their end ...
_MANY = 1 << 10  # ... and before that


class Ledger:
    """Counts what is applied; warns, at its end, of what never was.

    Args:
        label: the name of the module, for messages.
        accumulators: the accumulators of the updater, by the parameters' names.
    """

    def __init__(self, label: str, accumulators: Mapping[str, Accumulator]) -> None:
        self.label = label
        self.accumulators = accumulators
        self.applied: dict[str, int] = {}
        self.zeroed: dict[str, int] = {}  # those that were multiplied by 0
        delete_at_exit(self, last=True)  # rules and learners know more

    def note_assigned(self, name: str, accumulator: Accumulator) -> None:
        """Warns if the user has assigned many changes of a parameter, and never applied one.

        Args:
            name: the name of the parameter.
            accumulator: its accumulator.
        """
        if accumulator.contributions == _MANY:
            self._check(name, accumulator, _MANY)

    def note_applied(self, names: Iterable[str], times: int) -> None:
        """Counts that changes of parameters were applied."""
        for name in names:
            self.applied[name] = self.applied.get(name, 0) + times

    def note_zeroed(self, names: Iterable[str]) -> None:
        """Counts that applied changes of parameters were multiplied by 0."""
        for name in names:
            self.zeroed[name] = self.zeroed.get(name, 0) + 1

    def _check(self, name: str, accumulator: Accumulator, least: int) -> None:
        """Warns if changes of a parameter were accumulated, and none was ever applied."""
        unused, cleared = accumulator.unused, accumulator.cleared
        if self.applied.get(name) or unused < least:
            return
        accumulator.told = True  # so that it is said once
        found = f"{unused} and no update"
        if cleared:
            found += f", {cleared} of which were cleared"
        warnings.warn(
            f"Changes that are accumulated for `{name}` of `{self.label}` should be applied. Found"
            f" {found}: call the updater after changes were accumulated; or `update()` on the rule"
            " that made them, which should be the same rule in all batches.",
            RuntimeWarning,
            stacklevel=2,
        )

    def __del__(self) -> None:
        for name, accumulator in () if has_ended() else self.accumulators.items():
            self._check(name, accumulator, _LEFT)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "accumulators": {}}  # a copy says nothing of its own

"""What has become of the changes that an updater was given."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import nn

from lightning_accum._ending import delete_at_exit, has_ended
from lightning_accum.updates.accumulator import Accumulator
from lightning_accum.updates.tallied import count_at, forget_count

_LEFT = 32  # contributions that were never applied, before it warns at their end ...
_DROPPED = 8  # changes that were dropped, all of them, before it warns
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
        self.parent: weakref.ref[nn.Module] | None = None
        self.watched = False  # whether rules have used the updater, which tell of themselves
        self.skipped: Callable[[], dict[str, int]] = dict  # those that were dropped for NaN or Inf
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

    def _check_dropped(self) -> None:
        """Warns if all changes that were applied without a rule held NaN or Inf; waits."""
        many = {} if self.watched else {n: k for n, k in self.applied.items() if k >= _DROPPED}
        skipped = self.skipped() if many else {}
        for name, applied in many.items():
            if skipped.get(name, 0) >= applied:
                self.watched = True  # so that it is said once
                warnings.warn(
                    f"Updates should be finite. Found NaN or Inf in all {applied} updates of"
                    f" `{name}` of `{self.label}`, which were dropped: look at what is assigned to"
                    " the updater, or set `nonfinite = 'raise'` to see where it begins.",
                    RuntimeWarning,
                    stacklevel=3,
                )

    def _check_fresh(self, name: str, accumulator: Accumulator) -> None:
        """Warns if many updaters of a module ended with changes, and none of them applied any."""
        module = None if self.parent is None else self.parent()
        what = f"unapplied {name}"
        if module is None:
            return
        if self.applied.get(name):
            forget_count(module, what)
        elif self.watched or not accumulator.unused:
            return
        elif count_at(module, what) == _LEFT:
            warnings.warn(
                f"Changes that are accumulated for `{name}` of `{self.label}` should be applied."
                f" Found {_LEFT} updaters that ended with changes, and no update: make one with"
                " `attach_updater(module)`, and call it after changes were accumulated.",
                RuntimeWarning,
                stacklevel=3,
            )

    def __del__(self) -> None:
        if has_ended():
            return
        self._check_dropped()
        for name, accumulator in self.accumulators.items():
            self._check(name, accumulator, _LEFT)
            self._check_fresh(name, accumulator)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "accumulators": {},
            "parent": None,
            "watched": True,
        }  # a copy says nothing of its own

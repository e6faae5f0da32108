"""Counts that diagnosis still reads; they go with the checks that read them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from lightning_accum._compat import in_dispatch_mode
from lightning_accum._state import CheckedState

# As text, so that a pickled module needs no class of this package to load.
_SLOT = "_lightning_accum_counts"


def count_at(module: nn.Module, what: str, times: int = 1) -> int:
    """Adds to a count that a module keeps, and returns it."""
    counts: dict[str, int] = module.__dict__.setdefault(_SLOT, {})
    counts[what] = counts.get(what, 0) + times
    return counts[what]


def forget_count(module: nn.Module, what: str) -> None:
    """Begins a count of a module from zero."""
    module.__dict__.get(_SLOT, {}).pop(what, None)


class WatchedAccumulator(CheckedState):
    """Counts contributions that nobody has used; abstract."""

    def __init__(self) -> None:
        super().__init__()
        self.cleared = 0  # contributions that were dropped
        self.told = False  # whether the user knows of those that were not applied
        self._seen_once = 0  # contributions that were read once, and then dropped
        self._seen = 0  # those that were pending when they were read last ...
        self._again = False  # ... and whether some of them had been read before

    @property
    def contributions(self) -> int:
        """The number of pending contributions."""
        raise NotImplementedError

    @property
    def unused(self) -> int:
        """The number of contributions that are pending or were dropped, and that nobody has used.

        Whoever applies them otherwise reads all that is pending, once, and then drops it; who reads
        it now and then, and drops nothing, only looks.
        """
        if self.told:
            return 0
        return max(self.contributions + self.cleared - self._seen_once - self._read_once, 0)

    @property
    def _read_once(self) -> int:
        return 0 if self._again else min(self._seen, self.contributions)

    def note_look(self) -> None:
        """Notes that someone reads what is pending."""
        if (pending := self.contributions) != self._seen:
            self._again = pending > self._seen and (self._again or self._seen > 0)
            self._seen = pending

    def note_cleared(self) -> None:
        """Notes that what is pending is about to be dropped."""
        if dropped := self.contributions:
            self.cleared += dropped
        if self._seen:
            self._seen_once += self._read_once
            self._seen, self._again = 0, False


class WatchedUpdater(CheckedState):
    """Counts what is applied; abstract."""

    _watchers: tuple[tuple[weakref.ref[object], Callable[[Any], None]], ...] = ()

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, Tensor] = {}  # what was changed last, also after the module's end
        self._times: dict[str, int] = {}
        self._zero_times: dict[str, int] = {}

    if TYPE_CHECKING:
        _parent: weakref.ref[nn.Module] | None

        def target(self, name: str) -> Tensor: ...

    @property
    def known_parent(self) -> nn.Module | None:
        """The module; ``None`` if it no longer exists, or this is a copy without its module."""
        return None if self._parent is None else self._parent()

    def call_at_end(self, owner: object, watcher: Callable[[Any], None]) -> None:
        """Calls ``watcher(self)`` when this is deleted; a copy does not."""
        alive = (known for known in self._watchers if known[0]() is not None)
        self._watchers = (*alive, (weakref.ref(owner), watcher))

    def __del__(self) -> None:
        for _, watcher in () if in_dispatch_mode() else self._watchers:
            watcher(self)

    @property
    def applied(self) -> dict[str, int]:
        """How often a change of each parameter was applied, including those that were dropped."""
        return dict(self._times)

    @property
    def zeroed(self) -> dict[str, int]:
        """How often an applied change of each parameter was multiplied by 0."""
        return dict(self._zero_times)

    @property
    def lately_skipped(self) -> dict[str, int]:
        """How often updates were dropped since a state was loaded; waits for the device."""
        counts: dict[str, int] = getattr(self, "_guard").counts_of()  # noqa: B009
        return counts

    def note_applied(self, names: Sequence[str], times: int = 1) -> None:
        """Counts that changes of parameters were applied."""
        for name in names:
            self.held[name] = self.target(name)
            self._times[name] = self._times.get(name, 0) + times

    def note_targets(self, targets: Iterable[Any], consumed: Sequence[str]) -> None:
        """Counts what was applied."""
        for target in targets:
            self.held[target.name] = target.param
            self._times[target.name] = self._times.get(target.name, 0) + 1
            if not target.factor:
                self._zero_times[target.name] = self._zero_times.get(target.name, 0) + 1
        for name in consumed:  # also what was empty: its rule may have made only changes of 0
            if name not in self.held:
                self.held[name] = self.target(name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_watchers": (), "held": {}}

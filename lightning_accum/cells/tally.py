"""Counts of the windows of a cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from torch import Tensor

from lightning_accum.cells.drops import Drops
from lightning_accum.cells.first_values import ENOUGH, FirstValues
from lightning_accum.cells.input_watch import InputWatch
from lightning_accum.cells.looks import Looks
from lightning_accum.engine.terms import Change

T = TypeVar("T")

APART = 3  # windows in a row with a mistake in their reset
_EMPTY = ENOUGH  # calls of a rule that find nothing before it warns
_TURN = 100  # such calls before it warns of one cell while others learn
# Changes that are pending, none ever applied, before it warns: of windows, of windows of one step.
_WINDOWS, _STEPS = 1 << 10, 1 << 17


class Tally:
    """Counts the windows of a cell, without waiting for the device.

    A few windows are looked at: they show it if activity is always zero or nearly always one, or
    if it ceases.

    Example:
        >>> import torch
        >>> tally = Tally()
        >>> for _ in range(3):
        ...     _ = tally.note(torch.ones(5, 1, 2), torch.zeros(5, 1, 4))
        >>> tally.windows, tally.longest, tally.looks.activity()[:2]
        (3, 5, (1.0, 0.0))
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self, watched: bool = False, clears: bool = False) -> None:
        """Begins to count from zero.

        Args:
            watched: whether a callback reads the counts and warns, instead of the rule.
            clears: whether it clears the rule between batches.
        """
        self.watched, self.clears = watched, clears
        self.windows = 0
        self.longest = 0
        self.drops = Drops()
        self.empty = 0  # calls of the rule in a row that found nothing
        self._before = 0  # windows before these calls
        self._absent = False  # whether the latest of them, in training mode, found other cells
        self.refused = False  # whether a call has raised an error
        self.joined = False  # whether traces have passed from window to window, if there are any
        self.batch = 0  # samples of the latest window
        self.resized = 0  # windows before which traces were dropped, as the batch size had changed
        self.looks = Looks()
        self.inputs = InputWatch()  # which the cells of a rule share
        self.both_signs = False  # whether the rule's terms potentiate and depress
        self.apart = 0  # the latest windows in which the neuron was reset, and traces were not
        self.cleared = 0  # the latest sequences in which traces were cleared, and the neuron not
        self._values = FirstValues()
        self._left = False
        self._told: set[str] = set()  # the kinds of mistakes that were found

    def leave(self) -> None:
        """Ends the time in which a callback reads the counts; it has said all there is to say."""
        self.watched, self._left = False, True

    def note(self, pre: Tensor, post: Tensor, windows: int = 1) -> bool:
        """Counts a window, and returns whether its activity was looked at.

        Args:
            pre: activity before the connection.
            post: activity after the neuron.
            windows: of how many windows of one step this is the activity, if not of one window.
        """
        self.windows += windows
        steps = pre.shape[0] if windows == 1 else 1
        if steps > self.longest:
            self.longest = steps
        return self.looks.note(self.windows, pre, post)

    def note_empty(self, resting: bool, others: bool = False) -> bool:
        """Counts a call that found nothing of the cell, and returns whether to warn, once.

        Args:
            resting: whether a module or the rule is in evaluation mode. After the first window,
                only twice as many such calls as there were windows are a mistake; a test is none.
            others: whether the call found activity of other cells. The turn of this one may come,
                unless it is in evaluation mode, in which it may stay.
        """
        self.empty = self.idle + 1
        self._before = self.windows
        if others:
            self._absent = not resting
            return self.empty == _TURN and self.never_recorded()
        due = self.empty == max(_EMPTY, 2 * self.windows) and (resting or not self.windows)
        return due and self.warns("silence")

    @property
    def idle(self) -> int:
        """The number of the latest calls in a row that found nothing of the cell."""
        return self.empty if self._before == self.windows else 0

    def never_recorded(self) -> bool:
        """Returns whether to warn, once, that no call has found anything of the cell but others."""
        missing = not self.windows and self.empty >= _EMPTY
        return missing and self._absent and self.warns("silence")

    def never_heard(self) -> bool:
        """Returns whether calls found nothing, and no warning says so; once."""
        heard = self.windows or self.refused or self._absent or "silence" in self._told
        return bool(self.empty and not heard) and self.warns("unheard")

    def note_apart(self, apart: bool) -> bool:
        """Counts windows in a row with a mistake in their reset, and returns whether to warn.

        Args:
            apart: whether only the neuron, or only the traces, are reset before this window.
        """
        if apart:
            self.apart += 1
        elif self.apart < APART:
            self.apart = 0
        return apart and self.apart == APART

    def warns_of_resets(self) -> bool:
        """Returns whether to warn, once, of a mistake in the resets that a single one shows."""
        first = self.apart < APART
        self.apart = max(self.apart, APART)
        return first

    def note_cleared(self, apart: bool) -> bool:
        """Counts sequences in a row before which only the traces were cleared.

        Args:
            apart: whether this is such a sequence; its neuron went on.

        Returns:
            Whether to warn, once.
        """
        self.cleared = self.cleared + 1 if apart else 0
        return self.cleared == APART and self.warns_of_resets()

    def never_called(self, steps: int) -> bool:
        """Returns whether to warn, once, that so many steps were recorded and the rule not called.

        Args:
            steps: the number of recorded steps.
        """
        called = self.windows or self.empty or self.refused
        return steps >= _EMPTY and not called and self.warns("calls")

    def never_applied(self, contributions: int) -> bool:
        """Returns whether to warn, once, that so many changes are pending and none was applied.

        Args:
            contributions: how many changes are pending.
        """
        return min(contributions, self.windows) >= _EMPTY and self.warns("updates")

    def note_signs(self, terms: Callable[[T], Sequence[Change]]) -> Callable[[T], Sequence[Change]]:
        """Returns ``terms``, which note, in the first window, whether changes have both signs.

        Args:
            terms: returns the terms of a window.
        """

        def noting(window: T) -> Sequence[Change]:
            found = terms(window)
            self.both_signs = self.both_signs or {1, -1} <= {change.sign for change in found}
            return found

        return terms if self.windows else noting

    @property
    def remembers(self) -> bool:
        """Whether parameters are to be remembered before the next window."""
        return self._values.wants(self.windows) and not self.watched

    def remember(self, name: str, param: Tensor) -> None:
        """Remembers the value of a parameter before a window, under its name."""
        self._values.keep(name, param, self.windows)

    def never_moved(self, params: Mapping[str, Tensor]) -> dict[str, int]:
        """Returns the parameters to warn of, once, that applied changes have not moved for long.

        Waits for the device.

        Args:
            params: by name, the values of those to which changes were applied.

        Returns:
            How often each parameter was found at its first value again, after it had changed.
        """
        if self.windows < _EMPTY or self._left or self.watched:
            return {}
        still = self._values.unmoved(params)
        return still if still and self.warns("weights") else {}

    @property
    def values(self) -> FirstValues | None:
        """What is remembered of parameters; ``None`` if a callback warns of these."""
        return None if self._left or self.watched else self._values

    def warns(self, kind: str) -> bool:
        """Returns whether to warn now: once of each kind of mistake, and if no callback does.

        Args:
            kind: the kind of mistake.
        """
        return self._is_first(kind) and not (self.watched or self._left)

    def applied_by_hand(self) -> bool:
        """Returns whether to warn, once, that changes are applied by hand in a callback's fit."""
        return self._is_first("by hand") and self.watched

    def first_reset(self) -> bool:
        """Returns whether the neuron was not reset within a window before."""
        return self._is_first("reset")

    def _is_first(self, kind: str) -> bool:
        first = kind not in self._told
        self._told.add(kind)
        return first

    def long_pending(self, contributions: int) -> bool:
        """Returns whether to warn, once, that so many are pending and none was ever applied."""
        most = _WINDOWS if self.longest > 1 else _STEPS
        return contributions >= most and self.warns("updates")

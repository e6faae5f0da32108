"""Counts of recorded steps that were cleared before the rule was called."""

from __future__ import annotations

_MANY, _APART = 2, 3  # calls of `clear()` before a window, and such windows in a row


class Drops:
    """Counts the steps that ``clear()`` drops, and windows before which it was called repeatedly.

    Example:
        >>> drops = Drops()
        >>> for _ in range(3):
        ...     for _ in range(2):
        ...         drops.note(10)
        ...     print(drops.window())
        False
        False
        True
        >>> drops.steps
        60
    """

    def __init__(self) -> None:
        self.steps = 0
        self._calls = 0  # that dropped steps, since the latest window
        self._windows = 0  # in a row, after several such calls

    def note(self, steps: int) -> None:
        """Counts a call that drops steps.

        Args:
            steps: how many.
        """
        self.steps += steps
        self._calls += 1

    def window(self) -> bool:
        """Counts a window, and returns whether only the last of several sequences came to it.

        It is certain after three windows, and is returned once.
        """
        self._windows = self._windows + 1 if self._calls >= _MANY else 0
        self._calls = 0
        return self._windows == _APART

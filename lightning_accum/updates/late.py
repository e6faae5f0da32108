"""Finds that changes are applied before something that should apply them looks for them."""

from __future__ import annotations

_TIMES = 3  # looks that come too late before it is certain


class Late:
    """Counts looks for pending changes until one finds some.

    Attributes:
        over: whether a look has found a change, or has returned that all of them come too late.

    Example:
        >>> late = Late()
        >>> [late.look(found=False, applied=applied) for applied in (0, 1, 2, 3)]
        [False, False, False, True]
        >>> late.over
        True
    """

    def __init__(self) -> None:
        self.over = False
        self._times = 0  # looks before which changes were applied otherwise
        self._applied: int | None = None  # how many had been applied at the latest look

    def look(self, found: bool, applied: int) -> bool:
        """Counts a look, and returns whether all of them come too late; not to be called if over.

        Args:
            found: whether changes are pending.
            applied: how many changes have been applied otherwise.
        """
        self._times += not found and self._applied is not None and applied > self._applied
        self._applied = applied
        self.over = found or self._times == _TIMES
        return self.over and not found

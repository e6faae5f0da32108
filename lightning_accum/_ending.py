"""The end of objects and of the program, at which there may be something left to say."""

from __future__ import annotations

import atexit
import sys
import weakref
from typing import Protocol


class Deletable(Protocol):
    """An object that does something when it is deleted."""

    def __del__(self) -> None:
        """Does it; it may be called before, and then is called again."""


_watched: weakref.WeakSet[Deletable] = weakref.WeakSet()
_last: weakref.WeakSet[Deletable] = weakref.WeakSet()


def delete_at_exit(thing: Deletable, last: bool = False) -> None:
    """Has ``thing.__del__()`` called when the program ends, if the object still exists then."""
    (_last if last else _watched).add(thing)


def has_ended() -> bool:
    """Returns whether the program ends, or an exception has ended it that says more."""
    return sys.is_finalizing() or getattr(sys, "last_value", None) is not None


@atexit.register
def _delete_all() -> None:
    for thing in [*_watched, *_last]:
        thing.__del__()

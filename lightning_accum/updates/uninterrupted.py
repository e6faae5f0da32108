"""Calls several functions without letting Ctrl-C interrupt between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

_CALL: Callable[[partial[Any]], Any] = partial.__call__


def call_uninterrupted(*calls: partial[Any]) -> None:
    """Calls functions written in C one after another.

    Python looks for an interrupt between its own instructions. None runs between these calls, so
    that after an interrupt either all of them were made, or none.

    Args:
        *calls: functions written in C, each with its arguments.
    """
    deque(map(_CALL, calls), maxlen=0)

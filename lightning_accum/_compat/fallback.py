"""What to do without a private name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def attempt(borrowed: Callable[..., T], *args: Any, otherwise: T) -> T:
    """Calls a function of this package, or returns a fallback if the private name has changed.

    Args:
        borrowed: the function, without which everything works, but more slowly or less finely.
        *args: its arguments.
        otherwise: the fallback.
    """
    try:
        return borrowed(*args)
    except Exception:
        return otherwise

"""What to do without a private name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
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
    except MemoryError:
        raise
    except Exception:
        return otherwise


def lacking(package: str, name: object) -> RuntimeError:
    """Returns the error of a function that cannot do without a private name.

    Args:
        package: the package that should have it.
        name: the name, or the error that tells it.
    """
    return RuntimeError(
        f"{package} should have a private name that lightning_accum needs. Found version"
        f" {version(package)}, and {name}: install an earlier version of {package}, or a later one"
        " of lightning-accum."
    )

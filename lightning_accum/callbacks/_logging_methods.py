"""What Lightning lends its callbacks for the time of a run."""

from __future__ import annotations

from typing import Any

# Lightning gives callbacks these methods of the module; they would keep it alive, and copy it.
_LENT = ("log", "log_dict")


def own_state(callback: object) -> dict[str, Any]:
    """A callback's attributes without those that are lent to it."""
    return {name: value for name, value in vars(callback).items() if name not in _LENT}


def give_back(callback: object) -> None:
    """Takes from a callback what was lent to it."""
    for name in _LENT:
        vars(callback).pop(name, None)

"""The methods that Lightning sets on its callbacks during a run."""

from __future__ import annotations

from typing import Any

# They are methods of the LightningModule: a callback that kept them would keep the module alive,
# and copy it.
_LENT = ("log", "log_dict")


def own_state(callback: object) -> dict[str, Any]:
    """Returns a callback's attributes without the methods that Lightning sets."""
    return {name: value for name, value in vars(callback).items() if name not in _LENT}


def remove_lent(callback: object) -> None:
    """Removes the methods that Lightning set on a callback."""
    for name in _LENT:
        vars(callback).pop(name, None)

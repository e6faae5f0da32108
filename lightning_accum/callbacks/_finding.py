"""The result of a check: a message about a cell."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """A message about a cell.

    Attributes:
        cell: name of the cell.
        key: identifies the finding among those of the cell.
        text: what was found, and the remedy.
        warns: whether it is a mistake, so that it deserves a warning.
    """

    cell: str
    key: str
    text: str
    warns: bool


def number(count: int, what: str) -> str:
    """Returns a count with its noun in the singular or plural."""
    plural = what + ("es" if what.endswith("tch") else "s")
    return f"{count} {what if count == 1 else plural}"

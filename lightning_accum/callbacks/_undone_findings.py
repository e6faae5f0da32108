"""The check that nothing else sets back what a cell learns."""

from __future__ import annotations

from collections.abc import Iterator

from lightning_accum.callbacks._counts import Counts, Weights
from lightning_accum.callbacks._finding import Finding

_UNDONE = 2  # updates that found the weights set back
_TAKEN = 3  # updates, each of which was taken back by ...
_MOST = 0.9  # this share at least


def undone(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds weights that something else sets back or replaces, after updates or epochs."""
    if is_undone(w):
        found = (
            "back after an epoch, to what it was when the fit began"
            if w.restored
            else "to values that have little in common with those that an update had left, before"
            f" {w.replaced} of the next updates that were looked at"
            if w.replaced >= _UNDONE
            else f"back by at least {min(w.taken):.0%} of what each update that was looked at had"
            " changed, before the next one"
            if _is_taken_back(w)
            else f"back before {w.undone} of the updates that were looked at, to what it had been"
            " before an earlier one"
        )
        yield set_back(c.cell, w.name, found)


def set_back(cell: str, name: str, found: str) -> Finding:
    """Returns the finding that something else set a parameter back or replaced it.

    Args:
        cell: name of the cell.
        name: name of the parameter.
        found: when, and to which values.
    """
    text = (
        f"Cell `{cell}` should keep what it learns. Found that something set `{name}` {found}: look"
        " for what else writes to it, such as an initialization in `forward`, or a callback that"
        " loads or copies weights, or averages them. `ModelPruning` sets them back unless"
        " `use_lottery_ticket_hypothesis=False`."
    )
    return Finding(cell, f"undone {name}", text, True)


def is_undone(w: Weights) -> bool:
    """Returns whether something else set a parameter back or replaced it.

    Weights that rest come back to earlier values, too, if a constraint rounds them up and down.
    """
    undone = w.undone >= _UNDONE and w.at_limits < 1 and not w.rests
    return w.finite and (w.restored or undone or w.replaced >= _UNDONE or _is_taken_back(w))


def _is_taken_back(w: Weights) -> bool:
    return len(w.taken) >= _TAKEN and all(_MOST <= share <= 2 - _MOST for share in w.taken)

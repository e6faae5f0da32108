"""Warns of calls of a rule that find nothing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from lightning_accum.cells.cell import Cell
from lightning_accum.cells.tally import Tally
from lightning_accum.cells.why_nothing import why_nothing
from lightning_accum.engine.recording import Given


def warn_of_silence(rule: str, cells: Mapping[str, tuple[Cell, Tally]], given: Given) -> None:
    """Counts a call that found nothing; warns after several in a row, or of what was given to it.

    Args:
        rule: the name of the rule.
        cells: by name, each cell and its counts.
        given: the arguments.
    """
    for name, (cell, tally) in cells.items():
        resting = not (cell.connection.training and cell.neuron.training)
        if tally.windows and not resting and given.unread and tally.warns("given"):
            warnings.warn(
                f"`{rule}` should be given {given.unread} with the steps that they are for. Found"
                f" a call with them, and no step of cell `{name}` since the call before, so that"
                " they change nothing: pass them to the call that evaluates the last steps.",
                UserWarning,
                stacklevel=4,
            )
        if tally.note_empty(resting):
            latest = "the latest " if tally.windows else ""
            warnings.warn(
                f"Cell `{name}` should record activity for `{rule}` to learn from. Found none in"
                f" {latest}{tally.empty} calls."
                f" {why_nothing(cell.connection, cell.neuron, dropped=tally.drops.steps)}",
                RuntimeWarning,
                stacklevel=4,
            )

"""Warns of calls of a rule that find nothing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from lightning_accum.cells.cell import Cell
from lightning_accum.cells.tally import Tally
from lightning_accum.cells.why_nothing import why_not_called, why_nothing
from lightning_accum.engine.recording import Given
from lightning_accum.rules._link import Link
from lightning_accum.updates._watch import count_at, forget_count

_LATE = 8  # cells in a row before a warning


def warn_of_silence(
    rule: str,
    cells: Mapping[str, tuple[Cell, Tally]],
    given: Given,
    training: bool = True,
    others: bool = False,
) -> None:
    """Counts a call that found nothing; warns after several in a row, or of what was given to it.

    Args:
        rule: the name of the rule.
        cells: by name, each cell of which nothing was found, and its counts.
        given: the arguments.
        training: whether the rule is in training mode.
        others: whether the call found activity of other cells.
    """
    for name, (cell, tally) in cells.items():
        active = cell.connection.training and cell.neuron.training
        if not (training or active):
            continue  # a test
        resting = not (training and active)
        if tally.windows and not (resting or others) and given.unread and tally.warns("given"):
            warnings.warn(
                f"`{rule}` should be given {given.unread} with the steps that they are for. Found"
                f" a call with them, and no step of cell `{name}` since the call before, so that"
                " they change nothing: pass them to the call that evaluates the last steps.",
                UserWarning,
                stacklevel=4,
            )
        if tally.note_empty(resting, others):
            why = why_nothing(
                *(cell.connection, cell.neuron),
                dropped=tally.drops.steps,
                rule_trains=training,
            )
            _warn(rule, name, tally, why, others)


def warn_of_absent(link: Link) -> None:
    """Warns, at the end, of a cell in training mode of which no call has found anything.

    Args:
        link: what is known of the cell.
    """
    if link.tally.never_recorded():
        _warn(link.rule, link.cell, link.tally, why_not_called(), others=True)


def warn_of_late_rules(link: Link) -> None:
    """Warns, at the end of a cell, if several in a row were called and had recorded nothing.

    Args:
        link: what is known of the cell, whose connection counts such cells.
    """
    connection = link.connection
    if connection is None:
        return
    if link.tally.windows:
        forget_count(connection, "late rules")
    elif link.tally.never_heard() and count_at(connection, "late rules") == _LATE:
        warnings.warn(
            f"Cells of `{type(connection).__name__}` should be registered before the activity that"
            f" `{link.rule}` learns from. Found {_LATE} registrations in a row, this one as"
            f" `{link.cell}`,"
            " each of which was called and had recorded nothing when it ended: make one rule,"
            " register its cells once, before the loop, and keep them for all batches.",
            RuntimeWarning,
            stacklevel=6,
        )


def _warn(rule: str, name: str, tally: Tally, why: str, others: bool) -> None:
    """Warns that a cell records nothing."""
    warnings.warn(
        f"Cell `{name}` should record activity for `{rule}` to learn from. Found none in"
        f" {'the latest ' if tally.windows else ''}{tally.empty} calls"
        f"{', which found that of other cells' if others else ''}. {why}"
        f"{' Until its turn comes, call `eval()` on them.' if others else ''}",
        RuntimeWarning,
        stacklevel=5,
    )

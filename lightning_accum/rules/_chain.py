"""Follows the activity of a cell to its weights: recorded, evaluated, applied, moved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lightning_accum._ending import has_ended
from lightning_accum.cells.tally import Tally
from lightning_accum.rules._options import RuleOptions, moving
from lightning_accum.rules._silence import warn_of_absent, warn_of_late_rules
from lightning_accum.rules._unmoved import (
    warn_of_fallen_silent,
    warn_of_nonfinite,
    warn_of_stopped,
    warn_of_unmoved,
)
from lightning_accum.rules._warnings import (
    warn_of_delays,
    warn_of_inputs,
    warn_of_single_steps,
    warn_of_unused,
)
from lightning_accum.updates import Updater


class Link(NamedTuple):
    """What is known of a cell when its rule is asked what it has learned.

    Attributes:
        cell: the name of the cell.
        h: its hyperparameters.
        tally: the counts of its windows.
        updater: the updater of its parameters; ``None`` if they do not exist any more.
        steps: how many recorded steps no call has evaluated.
    """

    cell: str
    h: RuleOptions
    tally: Tally
    updater: Updater | None
    steps: int = 0


def warn_of_break(rule: str, links: Iterable[Link]) -> None:
    """Warns, once, of each cell that learned nothing: was not recorded, evaluated or applied.

    Args:
        rule: the name of the rule.
        links: what is known of the cells.
    """
    for cell, h, tally, updater, steps in links:
        warn_of_absent(rule, cell, tally)
        module = None if updater is None else updater.known_parent
        warn_of_late_rules(rule, cell, tally, module)
        warn_of_unused(rule, cell, tally, tally.drops.steps + steps, updater, h.params)


def warn_of_still(rule: str, links: Iterable[Link]) -> None:
    """Warns, once, of each cell that applied changes have not moved, or could not well move.

    It waits for the device.

    Args:
        rule: the name of the rule.
        links: what is known of the cells.
    """
    for cell, h, tally, updater, _ in links:
        if updater is None or warn_of_single_steps(rule, cell, moving(h), tally):
            continue
        if any(each.is_meta for each in updater.held.values()):
            continue  # which has no values
        warn_of_nonfinite(cell, updater, h.params, tally)
        if moving(h):
            warn_of_unmoved(rule, cell, updater, h.params, tally)
            warn_of_stopped(rule, cell, updater, h.params, tally)
            warn_of_inputs(moving(h), tally)
        warn_of_fallen_silent(rule, cell, tally)
        if updater.known_parent is not None:
            warn_of_delays(cell, updater, h.params, tally)


def warn_of_end(rule: str, link: Link, updater: Updater) -> None:
    """Warns of a cell whose updater is deleted, unless the program ends.

    Args:
        rule: the name of the rule.
        link: what is known of the cell, except for the updater.
        updater: the updater.
    """
    if not has_ended():
        links = [link._replace(updater=updater)]
        warn_of_break(rule, links)
        warn_of_still(rule, links)

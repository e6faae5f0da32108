"""Follows the activity of a cell to its weights: recorded, evaluated, applied, moved."""

from __future__ import annotations

from collections.abc import Iterable

from lightning_accum._ending import has_ended
from lightning_accum.rules._link import Link
from lightning_accum.rules._options import moving
from lightning_accum.rules._silence import warn_of_absent, warn_of_late_rules
from lightning_accum.rules._unmoved import (
    warn_of_fallen_silent,
    warn_of_nonfinite,
    warn_of_stopped,
    warn_of_tiny_changes,
    warn_of_unmoved,
)
from lightning_accum.rules._warnings import (
    warn_of_delays,
    warn_of_inputs,
    warn_of_pending,
    warn_of_single_steps,
    warn_of_unused,
)
from lightning_accum.updates import Updater


def warn_of_break(links: Iterable[Link]) -> None:
    """Warns, once, of each cell that learned nothing: was not recorded, evaluated or applied.

    Args:
        links: what is known of the cells.
    """
    for link in links:
        warn_of_absent(link)
        warn_of_late_rules(link)
        warn_of_unused(link)


def warn_of_unapplied(link: Link) -> None:
    """Warns, once, of changes of a cell that nothing applies, or that the connection cannot keep.

    Args:
        link: what is known of the cell.
    """
    warn_of_pending(link)
    warn_of_delays(link)


def warn_of_still(links: Iterable[Link]) -> None:
    """Warns, once, of each cell that applied changes have not moved, or could not well move.

    It waits for the device.

    Args:
        links: what is known of the cells.
    """
    for link in links:
        updater = link.updater
        if updater is None or warn_of_single_steps(link):
            continue
        if any(each.is_meta for each in updater.held.values()):
            continue  # which has no values
        warn_of_nonfinite(link, updater)
        if moving(link.h):
            warn_of_unmoved(link, updater)
            warn_of_stopped(link, updater)
            warn_of_tiny_changes(link, updater)
            warn_of_inputs(link)
        warn_of_fallen_silent(link)
        warn_of_delays(link)


def warn_of_end(link: Link, updater: Updater) -> None:
    """Warns of a cell whose updater is deleted, unless the program ends.

    Args:
        link: what is known of the cell, except for the updater.
        updater: the updater.
    """
    if not has_ended():
        links = [link._replace(updater=updater)]
        warn_of_break(links)
        warn_of_still(links)

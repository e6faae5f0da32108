"""Updaters of several users of one module, each with its own pending changes."""

from __future__ import annotations

from lightning_accum.updates.updater import Updater


def claim(updater: Updater, user: object) -> Updater:
    """Returns ``updater``, or another one for the same parameters if it has another user.

    The pending changes of two users stay apart, as do the times and rates at which they apply
    them. They share constraints and bounds.

    Args:
        updater: the updater of a module.
        user: the object that accumulates; it is referenced weakly, until :func:`release`.

    Example:
        >>> from torch import nn
        >>> class Learner: ...
        >>> one, two, fc = Learner(), Learner(), nn.Linear(2, 1)
        >>> updater = Updater(fc)
        >>> claim(updater, one) is updater, claim(updater, two) is updater
        (True, False)
    """
    if updater.user is not None and updater.user is not user:
        return updater.sibling()
    updater.user = user
    return updater


def release(updater: Updater, user: object) -> None:
    """Gives up the claim of ``user`` on an updater, so that others can claim it.

    Args:
        updater: the updater of a module.
        user: the object that no longer accumulates.
    """
    if updater.user is user:
        updater.user = None

"""Counts that a module keeps for short-lived objects, each of which knows too little to warn."""

from __future__ import annotations

from torch import nn

# As text, so that a pickled module needs no class of this package to load.
_SLOT = "_lightning_accum_counts"


def count_at(module: nn.Module, what: str, times: int = 1) -> int:
    """Adds to a count that a module keeps, and returns it.

    Args:
        module: the module.
        what: what is counted.
        times: how many times are added.
    """
    counts: dict[str, int] = module.__dict__.setdefault(_SLOT, {})
    counts[what] = counts.get(what, 0) + times
    return counts[what]


def forget_count(module: nn.Module, what: str) -> None:
    """Begins a count of a module from zero.

    Args:
        module: the module.
        what: what is counted.
    """
    module.__dict__.get(_SLOT, {}).pop(what, None)

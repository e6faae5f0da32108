"""Windows of one step, in which spikes of different steps cannot be paired."""

from __future__ import annotations

from collections.abc import Iterable

from lightning_accum.cells.tally import Tally

#: Time constants of traces by which rules pair spikes of different steps.
TRACES = frozenset(
    {"tc_pre", "tc_post", "tc_pos", "tc_neg", "tc_trace"}
    | {f"tc_{side}_{speed}" for side in ("pre", "post") for speed in ("fast", "slow")}
)
_MANY = 8  # windows


def only_single_steps(tally: Tally, constants: Iterable[str]) -> bool:
    """Returns whether to warn, once, that no spikes of different steps could be paired.

    Args:
        tally: the counts of a cell's windows.
        constants: the names of its hyperparameters.
    """
    if tally.longest != 1 or tally.joined or tally.windows < _MANY or tally.watched:
        return False
    warns = not TRACES.isdisjoint(constants) and tally.warns("single steps")
    if warns:
        tally.warns("weights")  # there is no other warning, that they have not moved
    return warns

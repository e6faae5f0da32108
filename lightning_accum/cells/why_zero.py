"""Reasons why all changes of a cell were 0."""

from __future__ import annotations

from collections.abc import Sequence

from lightning_accum._checks import quoted
from lightning_accum.cells.activity import Activity


def why_zero(
    activity: Activity | None,
    undefined: bool = False,
    zeros: Sequence[str] = (),
    zeroed: bool = False,
) -> str | None:
    """Returns why every change was 0, and how to mend it; ``None`` if nothing is known of that.

    Args:
        activity: the activity of the cell.
        undefined: whether the membrane potential of its neurons is NaN.
        zeros: the inputs of the rule that were always 0.
        zeroed: whether each change was multiplied by 0 when it was applied.
    """
    if zeroed:
        return (
            "Each change was multiplied by 0 when it was applied: look at `scale`, or at the `lr`"
            " of the UpdateOptimizer."
        )
    if activity is not None and not activity.pre:
        return (
            "Its input was always 0: look at the data, and at the encoder or the neurons that it"
            " comes from."
        )
    if activity is not None and not activity.post:
        if undefined:
            return (
                "Its neurons never fired, for their membrane potential is NaN: look for NaN in the"
                " data, in the weights, and in what else enters the current."
            )
        return (
            "Its neurons never fired: lower their threshold, or raise the rate of the input or the"
            " weights."
        )
    if zeros:
        return f"{quoted(zeros)} of the rule was always 0: look at how it is computed."
    return None

"""What is known of the activity of a cell."""

from __future__ import annotations

from typing import NamedTuple


class Activity(NamedTuple):
    """The share of non-zero values on both sides of a cell.

    Attributes:
        pre: the share in the connection's input.
        post: the share in the neuron's output.
        size: the number of values of the neuron's output.
        spikes: whether the neuron's output is recorded as spikes.
        spikes_in: whether the connection's input is recorded as spikes.
        negative: the share of negative values in the neuron's output.
    """

    pre: float
    post: float
    size: int
    spikes: bool
    spikes_in: bool = False
    negative: float = 0.0


class Silence(NamedTuple):
    """The latest of the windows that were looked at, none of which had a spike.

    Attributes:
        looks: their number.
        of: the number of all windows that were looked at.
        since: the first of them, as windows are counted from 1.
    """

    looks: int
    of: int
    since: int

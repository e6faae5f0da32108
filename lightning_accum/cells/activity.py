"""What is known of the activity of a cell."""

from __future__ import annotations

from typing import NamedTuple

_QUIET = 3  # windows that were looked at, in a row


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
        expected: how many spikes they would have at the rate of the windows before.
        driven: whether the input was active in each of them.
        fed: whether it was active in any of them.
    """

    looks: int
    of: int
    since: int
    expected: float = 0.0
    driven: bool = True
    fed: bool = True

    @property
    def lasts(self) -> bool:
        """Whether the neurons were silent in several windows that were looked at."""
        return self.looks >= _QUIET

    def told(self, cell: str) -> str:
        """Returns the text of a message that neurons fell silent.

        Args:
            cell: the name of the cell.
        """
        why = (
            ": look for weights that a constraint or depression moves to zero, or a threshold that"
            " rises too far (`theta_plus`)."
            if self.fed
            else ", and their input was 0 in these: look at the data, and at the encoder or"
            " the neurons that it comes from."
        )
        return (
            f"The neurons of `{cell}` fired at first, and in none of the last {self.looks} of"
            f" {self.of} windows that were looked at{why}"
        )

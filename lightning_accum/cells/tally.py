"""Counts of what a rule has seen of a cell, and the reason if it has seen nothing."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

_EMPTY = 8  # calls in a row that find nothing
_WINDOWS, _STEPS = 1 << 10, 1 << 17  # pending and never applied; where each window is one step


class Activity(NamedTuple):
    """The share of non-zero values on both sides of a cell, and of how many.

    Attributes:
        pre: what comes into the connection.
        post: what the neuron gives out.
        size: how many values the neuron gave out.
        spikes: whether the neuron's output is kept as spikes.
        spikes_in: whether what comes in is.
    """

    pre: float
    post: float
    size: int
    spikes: bool
    spikes_in: bool = False


class Tally:
    """Counts the windows of a cell, without waiting for the device.

    Activity is counted in windows 1, 2, 4, 8 and so on: where it is always zero or nearly always
    one, a few windows show it, and the others cost nothing.

    Example:
        >>> import torch
        >>> tally = Tally()
        >>> for _ in range(3):
        ...     _ = tally.note(torch.ones(5, 1, 2), torch.zeros(5, 1, 4))
        >>> tally.windows, tally.longest, tally.activity()
        (3, 5, Activity(pre=1.0, post=0.0, size=40, spikes=False, spikes_in=False))
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self, watched: bool = False) -> None:
        """Begins to count from zero.

        Args:
            watched: whether a callback looks at the counts and warns, instead of the rule.
        """
        self.watched = watched
        self.windows = 0
        self.longest = 0
        self.empty = 0  # calls of the rule that found nothing, before the first window
        self._looks: list[tuple[Tensor, int, Tensor, int]] = []
        self._spikes = self._spikes_in = False

    def note(self, pre: Tensor, post: Tensor) -> bool:
        """Counts a window, and says whether it was one that was looked at."""
        self.windows += 1
        steps = pre.shape[0]
        if steps > self.longest:
            self.longest = steps
        if self.windows & (self.windows - 1):
            return False
        self._spikes = post.dtype == torch.bool
        self._spikes_in = pre.dtype == torch.bool
        self._looks.append((pre.count_nonzero(), pre.numel(), post.count_nonzero(), post.numel()))
        return True

    def note_empty(self) -> bool:
        """Counts a call that found nothing, and says whether it is time to warn."""
        self.empty += 1
        return self.empty == _EMPTY and not self.windows and not self.watched

    def long_pending(self, contributions: int) -> bool:
        """Whether so many changes, none of them ever applied, are more than one would collect."""
        return not self.watched and contributions >= (_WINDOWS if self.longest > 1 else _STEPS)

    def activity(self) -> Activity | None:
        """How active both sides were; ``None`` before the first window. Waits for the device."""
        if not self._looks:
            return None
        pre, pres, post, posts = (
            sum(int(n) for n in side) for side in zip(*self._looks, strict=True)
        )
        shares = pre / max(pres, 1), post / max(posts, 1)
        return Activity(*shares, posts, self._spikes, self._spikes_in)


def why_nothing(connection: nn.Module, neuron: nn.Module, lightning: bool = False) -> str:
    """Says why a cell has recorded nothing, and what to do.

    Args:
        connection: the connection of the cell.
        neuron: its neuron.
        lightning: whether a Lightning callback says when to record.
    """
    if not connection.training or not neuron.training:
        return (
            "Its modules are in evaluation mode, in which nothing is recorded: call `train()` on"
            " the model before it is trained."
        )
    when = " in `training_step`, which alone is recorded" if lightning else ""
    return (
        f"Its modules are in training mode, and were not called{when}, or without samples: call"
        " them as `fc(x)`, for hooks do not see `fc.forward(x)` or `F.linear(x, fc.weight)`. If"
        " they run inside a function that `torch.compile` has compiled before, call"
        " `torch.compiler.reset()` once the cell is registered."
    )

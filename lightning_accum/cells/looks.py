"""Looks at the activity of a cell in a few of its windows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from lightning_accum.cells.activity import Activity, Silence
from lightning_accum.sparse.kernel_search import count_events

_THIRD = 2  # looks at least in a third of a fit


class Looks:
    """Counts non-zero values in windows 1, 2, 3, 4, 6, 8, 12, 16 and so on.

    It does not wait for the device until it is asked for what it has found.
    """

    def __init__(self) -> None:
        self._found: list[tuple[int, Tensor | int, int, Tensor | int, int]] = []
        self._spikes = self._spikes_in = False
        self._below: list[Tensor] = []  # by look, the negative values of a neuron without spikes
        self._next = 1  # the window to look at
        self._inputs: dict[str, Tensor] = {}  # whether any value was not 0

    def look(self) -> None:
        """Has the next window looked at, whatever its number."""
        self._next = 0

    def note(self, window: int, pre: Tensor, post: Tensor) -> bool:
        """Looks at a window if its turn has come, and returns whether it did.

        Args:
            window: its number; of several that were simulated at once, the last one's.
            pre: activity before the connection.
            post: activity after the neuron.
        """
        if window < self._next or post.is_meta:  # which has no values
            return False
        power = 1 << (window.bit_length() - 1)
        self._next = 2 * power if 2 * window >= 3 * power or window == 1 else power + power // 2
        self._spikes, self._spikes_in = post.dtype == torch.bool, pre.dtype == torch.bool
        self._below += [] if self._spikes else [(post < 0).sum()]
        counts = count_events(pre), pre.numel(), count_events(post), post.numel()
        self._found.append((window, *counts))
        return True

    def note_inputs(self, inputs: Iterable[tuple[str, Any]]) -> None:
        """Looks at the inputs of the rule for a window, without waiting for the device.

        Args:
            inputs: their names and values.
        """
        for name, value in inputs:
            if isinstance(value, (Tensor, float, int)):
                active = torch.as_tensor(value).detach().any()
                known = self._inputs.get(name)
                self._inputs[name] = active if known is None else active | known.to(active.device)

    def zeros(self) -> list[str]:
        """Returns the inputs of the rule that were 0 in each window; waits for the device."""
        return [name for name, active in self._inputs.items() if not active]

    def activity(self) -> Activity | None:
        """Returns the activity of both sides, ``None`` before any; waits for the device."""
        if not self._found:
            return None
        pre, pres, post, posts = (
            sum(int(n) for n in side) for side in list(zip(*self._found, strict=True))[1:]
        )
        shares = pre / max(pres, 1), post / max(posts, 1)
        below = sum(map(int, self._below)) / max(posts, 1)
        return Activity(*shares, posts, self._spikes, self._spikes_in, below)

    def course(self) -> tuple[tuple[int, int], ...]:
        """Returns the non-zero values of the neuron, and the number of values, in thirds of time.

        Waits for the device; empty if too few windows were looked at.
        """
        third = len(self._found) // 3
        if third < _THIRD:
            return ()
        parts = self._found[:third], self._found[third:-third], self._found[-third:]
        return tuple((sum(int(n) for *_, n, _ in p), sum(of for *_, of in p)) for p in parts)

    def silence(self) -> Silence | None:
        """Returns since when the neuron is silent; waits for the device.

        ``None`` if it was not silent in the latest window that was looked at, or in all of them.
        """
        silent = [not int(spikes) for _, _, _, spikes, _ in self._found]
        if not silent or not silent[-1] or all(silent):
            return None
        first = len(silent) - silent[::-1].index(False)
        fired = sum(int(spikes) for *_, spikes, _ in self._found[:first])
        rate = fired / max(sum(of for *_, of in self._found[:first]), 1)
        since = self._found[first:]
        return Silence(
            len(since),
            len(silent),
            since[0][0],
            rate * sum(of for *_, of in since),
            all(int(pre) for _, pre, *_ in since),
            any(int(pre) for _, pre, *_ in since),
        )

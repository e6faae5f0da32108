"""What a recorder of spikes has taken in and not yet looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lightning_accum.observe.reducers.base import room

# Steps that are looked at together, as long as they have at most so many entries; and entries that
# are looked at in one go: they stay in cache, and their sum is exact in single precision.
_STEPS, _STAGED, _CHUNK = 16, 1 << 18, 1 << 16


class Evidence:
    """Looks whether what is taken for spikes is 0 or 1, several steps at a time.

    On the CPU it raises at the latest after 16 steps. On an accelerator nothing may wait: a flag
    there says whether there was anything else, until :meth:`confirm` reads it.

    Args:
        label: where the activity is seen, for the message.

    Example:
        >>> import torch
        >>> evidence = Evidence("after the neuron")
        >>> evidence.take(torch.tensor([0.0, 1.0]), whole=False)
        >>> evidence.add(torch.tensor([0.0, 0.3]))
        >>> evidence.look()
        Traceback (most recent call last):
        ...
        ValueError: Activity of a rule on spikes should be 0 or 1. Found 0.3...
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self._room: Tensor | None = None
        self._rows: tuple[Tensor, ...] = ()
        self._kept = 0
        self._refused = False
        self._sure = False  # that there are spikes
        self._flag: Tensor | None = None

    def add(self, step: Tensor) -> None:
        """Keeps one step, as the ones before, to be looked at later.

        Raises:
            ValueError: if there is no more room, and what was kept is not 0 or 1.
        """
        at = self._kept
        if at == len(self._rows):
            self.look()
            at = 0
            if not self._rows:
                self.see(step)
                return
        self._rows[at].copy_(step)
        self._kept = at + 1

    def take(self, activity: Tensor, whole: bool) -> None:
        """Takes in a step that may be of another shape, or a whole sequence.

        It is looked at at once where it is a sequence, or there was no spike yet.

        Args:
            activity: ``[B, ...]``, or ``[T, B, ...]``.
            whole: whether it is a sequence.

        Raises:
            TypeError: if it is complex.
            ValueError: if it is looked at, and is not 0 or 1.
        """
        if activity.is_complex():
            raise TypeError(
                f"Activity of a rule on spikes should be real. Found {activity.dtype} {self.label}:"
                " record its magnitude or its real part."
            )
        if whole or not self._sure:
            self._sure = self.see(activity) > 0
        if not whole:
            self._make_room(activity)
            self.add(activity)

    def _make_room(self, like: Tensor) -> None:
        """Makes room for steps like this one; what was kept of others is looked at."""
        known = self._room
        if known is not None and (known.shape[1:], known.dtype, known.device) == (
            like.shape,
            like.dtype,
            like.device,
        ):
            return
        self.look()
        steps = min(_STEPS, _STAGED // max(1, like.numel()))
        steps = steps if steps > 1 else 0
        self._room = room((steps, *like.shape), like.dtype, like.device)
        self._rows = self._room.unbind(0)

    def look(self) -> None:
        """Looks at what was kept, without waiting for a device.

        Raises:
            ValueError: if it is not 0 or 1; again and again, until it is dropped.
        """
        if self._kept and self._room is not None:
            self._refused = True  # unless it turns out well
            self.see(self._room[: self._kept])
            self._refused = False
        self._kept = 0

    def see(self, activity: Tensor) -> int:
        """Looks at activity at once, and gives the number of spikes; 1 where that means to wait.

        Raises:
            ValueError: if it is not 0 or 1.
        """
        if activity.is_cpu:
            return self._count(activity)
        other = ((activity != 0) & (activity != 1)).any()
        if self._flag is None or self._flag.device != other.device:
            self._flag = other
        else:
            self._flag = self._flag | other
        return 1

    def confirm(self) -> None:
        """Looks at all there is, and waits for the device.

        Raises:
            ValueError: if anything was not 0 or 1.
        """
        self.look()
        flag, self._flag = self._flag, None
        if flag is not None and bool(flag):
            raise ValueError(self._message("other values"))

    def drop(self) -> None:
        """Forgets what was kept."""
        self._kept = 0
        self._refused = False

    @property
    def refused(self) -> bool:
        """Whether what is kept was found not to be spikes."""
        return self._refused

    def __reduce__(self) -> tuple[Any, ...]:
        return Evidence, (self.label,)  # a copy begins anew

    def _count(self, activity: Tensor) -> int:
        total = 0
        dtype = torch.float64 if activity.dtype == torch.float64 else torch.float32
        for chunk in activity.reshape(-1).split(_CHUNK):
            values = chunk.to(dtype)
            count = int(np.count_nonzero(values.bool().numpy()))
            # n values other than zero that sum to n, as their squares do, are all one
            if not values.sum() == torch.dot(values, values) == count:
                found = chunk[(chunk != 0) & (chunk != 1)][0].item()
                raise ValueError(self._message(found))
            total += count
        return total

    def _message(self, found: object) -> str:
        return (
            f"Activity of a rule on spikes should be 0 or 1. Found {found} {self.label}: is a"
            " neuron's output missing in between? Use a rate-based rule for real-valued activity."
        )

"""The values of parameters before some of the windows of a cell."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum.functional.numbers import (
    Fingerprint,
    fingerprint,
    relative_distance,
    rounding,
    same_fingerprints,
    sample_of,
)

ENOUGH = 8  # windows after which a parameter should have changed
_WINDOWS = frozenset((0, 4, *range(ENOUGH - 1, 2 * ENOUGH)))  # before which values are kept ...
_LATER = 2 * ENOUGH  # ... and before this one, twice as many, and so on
_SAMPLE = 1 << 13  # the largest number of weights in a sample of these values
_BACK = 2  # times that a parameter came back to its first value


class _Mark(NamedTuple):
    """What is kept of a parameter before a window."""

    window: int
    all: Fingerprint
    sample: Tensor


class FirstValues:
    """Remembers parameters before the first window, and before ever fewer later ones.

    Example:
        >>> import torch
        >>> values = FirstValues()
        >>> for window in range(3):
        ...     values.keep("weight", torch.ones(2), window)
        >>> values.unmoved({"weight": torch.ones(2)}), values.unmoved({"weight": torch.zeros(2)})
        ({'weight': 0}, {})
    """

    def __init__(self) -> None:
        self._marks: dict[str, list[_Mark]] = {}
        self._next = _LATER

    def wants(self, window: int) -> bool:
        """Returns whether parameters are to be kept before a window, counted from 0."""
        return window in _WINDOWS or window >= self._next

    def keep(self, name: str, param: Tensor, window: int) -> None:
        """Keeps what tells the value of a parameter before a window.

        Args:
            name: the name of the parameter.
            param: its value.
            window: the number of the window, counted from 0.
        """
        kept = _Mark(window, fingerprint(param), sample_of(param, _SAMPLE).clone())
        self._marks.setdefault(name, []).append(kept)
        while self._next <= window:
            self._next *= 2

    def unmoved(self, params: Mapping[str, Tensor]) -> dict[str, int]:
        """Returns the parameters that have their first values; waits for the device.

        A parameter that was changed and has its first value again counts only if that has happened
        before: a program may set it back when it has learned.

        Args:
            params: by name, the values that parameters have now.

        Returns:
            By name, how often each parameter came back to its first value before.
        """
        found = {}
        for name, param in params.items():
            now, marks = fingerprint(param), self._marks.get(name, [])
            same = [same_fingerprints(now, mark.all, equal_nan=True) for mark in marks]
            back = sum(after and not before for before, after in pairwise(same))
            if same and (all(same) or (same[0] and back >= _BACK)):
                found[name] = back
        return found

    def stopped(self, params: Mapping[str, Tensor]) -> list[str]:
        """Returns the parameters that have not changed since early windows; waits for the device.

        Args:
            params: by name, the values that parameters have now.
        """
        found = []
        for name, param in params.items():
            now, marks = fingerprint(param), self._marks.get(name, [])[1:]
            if len(marks) >= ENOUGH and all(same_fingerprints(now, mark.all) for mark in marks):
                found.append(name)
        return found

    def rests(self, name: str, param: Tensor) -> bool:
        """Returns whether only the first update has moved a parameter, but for rounding.

        It then rests since half of its windows at least. Updates that are applied once in several
        windows fall into that time as well, if any was applied before it. It waits for the device.

        Args:
            name: the name of the parameter.
            param: the value that it has now.
        """
        marks = self._marks.get(name, [])
        samples = [*(mark.sample for mark in marks), sample_of(param, _SAMPLE)]
        if any(each.shape != samples[0].shape for each in samples):
            return False
        steps, most = enumerate(pairwise(samples), 1), rounding(param.dtype)
        moved = [i for i, (one, other) in steps if not _is_same(one, other, most)]
        if len(moved) != 1 or moved[0] == len(marks):
            return False
        return 2 * marks[moved[0]].window <= marks[-1].window

    def since(self, name: str, param: Tensor, corrected: bool) -> tuple[Tensor, Tensor] | None:
        """Returns evenly spaced samples of an early value and of the value now.

        Args:
            name: the name of the parameter.
            param: the value that it has now.
            corrected: whether to leave out the first updates, in which a constraint may move it.
        """
        marks, now = self._marks.get(name, []), sample_of(param, _SAMPLE)
        if len(marks) <= corrected or marks[corrected].sample.shape != now.shape:
            return None
        return marks[corrected].sample.to(now.device), now


def _is_same(one: Tensor, other: Tensor, most: float) -> bool:
    return torch.equal(one, other) or float(relative_distance(other, one)) <= most

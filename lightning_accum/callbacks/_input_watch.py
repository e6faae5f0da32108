"""The check that the reward or the error of a rule varies, and takes both signs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_EACH, _FEW = 16, 3  # batches that are looked at in any case; fewer batches tell nothing
_SIGNALS = {
    "reward": "a reward that is always the same does not tell good from bad; look at how"
    " `training_step` computes it, or take a rule without reward",
    "error": "weights learn nothing from it; look at how `training_step` computes it",
}


_NEVER_NEGATIVE = {
    "reward": "on average the rule then learns what happens, whether it is good or bad; subtract"
    " the reward that was expected, as a `RewardBaseline` in training mode does, unless the reward"
    " only says when to learn",
    "error": "outputs can then only fall; it should be the gradient of the loss by the outputs, as"
    " `y - target` is, and not its size, its square, or a target or an output by itself",
}


class InputWatch:
    """Notices a reward or an error that is the same number in all batches, or never negative.

    Until its lines are asked for, it does not wait for the device.

    It looks at the first batches, and then at every batch whose number is a power of two, until a
    value differs and one is negative.

    Example:
        >>> watch = InputWatch()
        >>> for _ in range(5):
        ...     watch.note({"reward": torch.ones(8), "error": torch.arange(3.0)})
        >>> [line.split(":")[0] for line in watch.lines()]
        ['Each value of `reward` was 1, in all 5 batches that were looked at']
    """

    def __init__(self) -> None:
        self._first: dict[str, Tensor] = {}
        self._varies: dict[str, Tensor] = {}
        self._negative: dict[str, Tensor] = {}  # or NaN
        self._batches = self._looks = 0

    def note(self, inputs: Mapping[str, Any]) -> None:
        """Looks at the inputs of a batch.

        Args:
            inputs: the inputs of the rule, by name.
        """
        self._batches += 1
        if not inputs or (self._batches > _EACH and self._batches & (self._batches - 1)):
            return
        self._looks += 1
        for name in _SIGNALS:
            if name not in inputs or (
                _is_known(self._varies, name) and _is_known(self._negative, name)
            ):
                continue
            value = torch.as_tensor(inputs[name]).detach()
            if value.numel():
                first = self._first.setdefault(name, value.reshape(-1)[0].clone())
                _add(self._varies, name, (value != first.to(value.device)).any())
                _add(self._negative, name, ~(value >= 0).all())

    @property
    def has_error(self) -> bool:
        """Whether the rule got an ``error`` in a batch."""
        return "error" in self._first

    def zeros(self) -> list[str]:
        """Returns the inputs that were 0 in all batches; waits for the device."""
        return [n for n, varies in self._varies.items() if not (self._first[n] or varies)]

    def lines(self) -> list[str]:
        """Returns lines of advice for the summary; waits for the device."""
        same = [n for n, varies in self._varies.items() if self._looks >= _FEW and not bool(varies)]
        lines = [
            f"Each value of `{name}` was {float(self._first[name]):g}, in all {self._looks} batches"
            f" that were looked at: {_SIGNALS[name]}."
            for name in same
        ]
        lines += [
            f"No value of `{name}` was below 0, in all {self._looks} batches that were looked at:"
            f" {_NEVER_NEGATIVE[name]}."
            for name, negative in self._negative.items()
            if self._looks >= _EACH and name not in same and not bool(negative)
        ]
        return lines


def _is_known(found: Mapping[str, Tensor], name: str) -> bool:
    """Returns whether something was found, without waiting for the device."""
    flag = found.get(name)
    return flag is not None and flag.is_cpu and bool(flag)


def _add(found: dict[str, Tensor], name: str, flag: Tensor) -> None:
    known = found.get(name)
    found[name] = flag if known is None else flag | known.to(flag.device)

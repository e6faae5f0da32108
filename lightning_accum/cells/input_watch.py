"""The inputs of a rule: whether a reward or an error varies, and takes both signs."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Any

import torch
from torch import Tensor

_FEW = 3  # batches with the same value that tell something, and ...
_MANY = 16  # those without a negative value
_SIGNALS = {
    "reward": "a reward that is always the same does not tell good from bad; look at how"
    " it is computed, or take a rule without reward",
    "error": "weights learn nothing from it; look at how it is computed",
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

    Example:
        >>> watch = InputWatch()
        >>> for _ in range(5):
        ...     watch.note({"reward": torch.ones(8), "error": torch.arange(3.0)})
        >>> [line.split(":")[0] for line in watch.lines()]
        ['Each value of `reward` was 1, in all 5 batches']
    """

    def __init__(self) -> None:
        self._ranges: dict[str, _Range] = {}
        self.told = False  # whether a warning has said what it found

    def note(self, inputs: Mapping[str, Any]) -> None:
        """Takes in the inputs of a batch.

        Args:
            inputs: the inputs of the rule, by name.
        """
        for name in inputs:
            if name in _SIGNALS:
                self._ranges.setdefault(name, _Range()).note(inputs[name])

    @property
    def has_error(self) -> bool:
        """Whether the rule got an ``error`` in a batch."""
        return "error" in self._ranges

    def zeros(self) -> list[str]:
        """Returns the inputs that were 0 in all batches; waits for the device."""
        return [name for name, known in self._ranges.items() if known.ends() == (0, 0)]

    def lines(
        self, unmoved: bool = False, unit: str = "batches", few: int = _FEW, many: int = _MANY
    ) -> list[str]:
        """Returns lines of advice; waits for the device.

        Args:
            unmoved: whether a warning has said that a cell has not changed, and named the inputs
                that were 0.
            unit: what was noted.
            few: how many of these with one value tell something.
            many: how many of these without a negative value do.
        """
        lines = []
        for name, known in self._ranges.items():
            (low, high), count = known.ends(), known.batches
            if low == high:
                if count >= few and not (unmoved and low == 0):
                    found, why = f"Each value of `{name}` was {low:g}", _SIGNALS[name]
                    lines.append(f"{found}, in all {count} {unit}: {why}.")
            elif count >= many and low >= 0:
                found, why = f"No value of `{name}` was below 0", _NEVER_NEGATIVE[name]
                lines.append(f"{found}, in all {count} {unit}: {why}.")
        return lines


class _Range:
    """The smallest and the largest values of an input, until they differ and one is negative."""

    def __init__(self) -> None:
        self.batches = 0  # those with values
        self._low = self._high = torch.empty(0)
        self._enough: Tensor | bool = False  # whether it need not look any more

    def note(self, given: Any) -> None:
        """Takes in the values of a batch, without waiting for the device."""
        if bool(self._enough):  # in the host's memory
            self.batches += 1
            return
        value = torch.as_tensor(given).detach()
        if value.is_complex() or value.is_meta or not value.numel():
            return
        if not value.is_floating_point():
            value = value.float()
        low, high = self._low, self._high
        self.batches += 1
        if low.shape == value.shape and low.dtype == value.dtype and low.device == value.device:
            self._low, self._high = torch.minimum(low, value), torch.maximum(high, value)
        elif self.batches == 1:
            self._low, self._high = value.clone(), value.clone()
        else:
            self._low = torch.minimum(value, low.amin().to(value))
            self._high = torch.maximum(value, high.amax().to(value))
        if not self.batches & (self.batches - 1):  # a power of two
            self._look()

    def ends(self) -> tuple[float, float]:
        """Returns both values, NaN if a value was; waits for the device."""
        if not self.batches:
            return nan, nan
        return float(self._low.amin()) + 0.0, float(self._high.amax()) + 0.0  # 0 instead of -0

    def _look(self) -> None:
        """Looks, now or when the device gets there, whether enough is known."""
        low = self._low.amin()
        enough = (low < 0) & (low < self._high.amax())
        if enough.is_cpu:
            self._enough = bool(enough)
        elif enough.is_cuda:
            self._enough = torch.zeros((), dtype=torch.bool, pin_memory=True)
            self._enough.copy_(enough, non_blocking=True)

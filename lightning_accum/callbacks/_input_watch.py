"""The check that the reward or the error of a rule varies from batch to batch."""

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


class InputWatch:
    """Notices a reward or an error that is the same number in all batches.

    Until its lines are asked for, it does not wait for the device.

    It looks at the first batches, and then at every batch whose number is a power of two, until a
    value differs.

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
            known = self._varies.get(name)
            if name not in inputs or (known is not None and known.is_cpu and bool(known)):
                continue
            value = torch.as_tensor(inputs[name]).detach()
            if value.numel():
                first = self._first.setdefault(name, value.reshape(-1)[0].clone())
                varies = (value != first.to(value.device)).any()
                self._varies[name] = varies if known is None else varies | known.to(value.device)

    def lines(self) -> list[str]:
        """Returns lines of advice for the summary; waits for the device."""
        same = [n for n, varies in self._varies.items() if self._looks >= _FEW and not bool(varies)]
        return [
            f"Each value of `{name}` was {float(self._first[name]):g}, in all {self._looks} batches"
            f" that were looked at: {_SIGNALS[name]}."
            for name in same
        ]

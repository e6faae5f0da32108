"""The check that the loss of a network that learns from an error does not rise."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

_KEPT = 8  # losses at each end of a fit
_HIGHER = 1.1  # times
_LOGGED = ("loss", "train_loss", "train/loss")


class LossWatch:
    """Keeps the first and the latest losses of logging steps, and compares them at the end.

    Example:
        >>> watch = LossWatch()
        >>> for i in range(40):
        ...     watch.note({"loss": torch.tensor(1.0 + i)})
        >>> [line.split(":")[0] for line in watch.lines("EProp")]
        ['The loss rose while `EProp` followed its error, from 4.5 to 36.5']
    """

    def __init__(self) -> None:
        self._first: list[Tensor] = []
        self._latest: deque[Tensor] = deque(maxlen=_KEPT)

    def note(self, outputs: Any, trainer: pl.Trainer | None = None) -> None:
        """Keeps the loss of a logging step.

        Args:
            outputs: what ``training_step`` returned.
            trainer: the Trainer; if no loss was returned, the one that was logged counts.
        """
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is None and trainer is not None:
            logged = trainer.callback_metrics
            loss = next((logged[name] for name in _LOGGED if name in logged), None)
        if isinstance(loss, Tensor) and loss.numel() == 1:
            kept = self._first if len(self._first) < _KEPT else self._latest
            kept.append(loss.detach().reshape(()).clone())

    def lines(self, rule: str) -> list[str]:
        """Returns a line of advice if each of the latest losses is higher than the first ones.

        Args:
            rule: the name of the rule.
        """
        if len(self._latest) < _KEPT:
            return []
        first, latest = torch.stack(self._first).float(), torch.stack(list(self._latest)).float()
        before, after = float(first.mean()), float(latest.mean())
        if not (float(latest.min()) > float(first.max()) and after > _HIGHER * before):
            return []
        return [
            f"The loss rose while `{rule}` followed its error, from {before:.3g} to {after:.3g}:"
            " the error should be the gradient of the loss by the outputs, as `y - target` is, and"
            " not its negative; if it is, lower `lr`."
        ]

"""Inputs of the evaluation of a rule: recorded signals of one cell, and parameters to train."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.sparse.events import Events
from lightning_accum.updates.accumulator import Accumulator

BOTH_SIDES = ("pre", "post")
"""The names of the signals that every rule records."""


class Recorded(NamedTuple):
    """Holds the activity that one monitor recorded since the rule was last called.

    Args:
        activity: ``[T, B, ...]``.
        events: indices of the spikes in ``[T * B * ..., neurons]``, ``None`` if not searched for.
    """

    activity: Tensor
    events: Events | None = None

    def part(self, piece: slice) -> Recorded:
        """Returns some steps of it.

        Args:
            piece: which steps.
        """
        steps = len(self.activity)
        if (piece.start, piece.stop) == (0, steps):
            return self
        if self.events is None:
            return Recorded(self.activity[piece])
        rows = self.events.shape[0] // steps
        events = self.events.part(piece.start * rows, piece.stop * rows)
        return Recorded(self.activity[piece], events)


@dataclass(frozen=True)
class Recording:
    """Holds everything that a rule reads of one cell.

    Args:
        signals: recorded activity by name: ``"pre"``, ``[T, B, ..., in]``, before the connection
            and ``"post"``, ``[T, B, ..., out]``, after the neuron.
        dt: the step, in ms.
        unit_dim: the dimension that counts neurons.
        tensors: other tensors of the connection that the rule reads, by name.
        inputs: the keyword arguments of the rule's call, such as a reward.
        carries: whether values that belong to samples pass to the next window.
        prepared: what the rule computed of the whole window before it is cut into pieces.
    """

    signals: Mapping[str, Recorded]
    dt: float
    unit_dim: int
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    carries: bool = False
    prepared: Any = None

    def activity(self, name: str) -> Tensor:
        """Returns the activity of a signal, ``[T, B, ...]``.

        Args:
            name: the name of the signal.
        """
        return self.signals[name].activity

    @property
    def steps(self) -> int:
        """The number of steps."""
        return len(self.signals["pre"].activity)

    @property
    def elements(self) -> int:
        """The number of values that all signals have in one step."""
        return sum(each.activity[0].numel() for each in self.signals.values())


class Target(NamedTuple):
    """A parameter that a rule trains, and the accumulator of its change."""

    name: str
    param: Tensor
    vjp: WeightVJP
    accumulator: Accumulator

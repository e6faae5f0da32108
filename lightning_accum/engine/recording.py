"""Inputs of a rule's evaluation: recorded signals, keyword arguments, parameters to train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor

from lightning_accum.engine.state import Carried
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.sparse.events import Events
from lightning_accum.updates.accumulator import Accumulator

BOTH_SIDES = ("pre", "post")  # the names of the signals that every rule records


class Recorded(NamedTuple):
    """Holds the activity that one monitor recorded since the rule was last called."""

    activity: Tensor  # [T, B, ...]
    events: Events | None = None  # in [T * B * ..., neurons], unless they were not searched for

    def part(self, piece: slice) -> Recorded:
        """Returns the activity of some steps."""
        events = self.events
        if events is not None:
            rows = events.shape[0] // self.activity.shape[0]
            events = events.part(piece.start * rows, piece.stop * rows)
        return Recorded(self.activity[piece], events)


class Given(Mapping[str, Any]):
    """The keyword arguments of a rule's call, with a note of those that the rule has read."""

    def __init__(self, every: Mapping[str, Any]) -> None:
        self.every = every  # which are read here without a note
        self._read: set[str] = set()

    @property
    def unread(self) -> list[str]:
        """The names of the arguments that the rule has not read."""
        return [name for name in self.every if name not in self._read]

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        if name in self.every:
            return self.every[name]
        raise KeyError(
            f"The rule should be called with `{name}`, which its terms read from `window.inputs`."
            f" Found {sorted(self.every)}: call `rule({name}=...)`, or read it by"
            f" `window.inputs.get({name!r})` if it may be left out."
        )

    def __contains__(self, name: object) -> bool:
        return name in self.every

    def __iter__(self) -> Iterator[str]:
        self._read.update(self.every)  # a caller that iterates may read each of them
        return iter(self.every)

    def __len__(self) -> int:
        return len(self.every)


@dataclass(frozen=True)
class Recording:
    """Holds everything that a rule reads of one cell."""

    signals: Mapping[str, Recorded]  # "pre" before the connection, "post" after the neuron, others
    dt: float
    unit_dim: int  # the dimension that counts neurons
    tensors: Mapping[str, Tensor]  # others of the connection
    inputs: Given  # of the rule's call, such as a reward
    carries: bool  # whether values that belong to samples pass to the next window
    levels: Mapping[str, Tensor] = field(default_factory=dict)  # of neuromodulators, [T, B]
    left: Carried = field(default_factory=dict)  # what these leave for the next window
    prepared: Any = None  # what the rule computed of the whole window

    def activity(self, name: str) -> Tensor:
        """Returns the activity of a signal, ``[T, B, ...]``."""
        return self.signals[name].activity

    def after(self, prepared: Any, states: bool) -> Recording:
        """Returns the recording with what a rule computed of the whole window."""
        if states and prepared is None:
            return self
        signals = self.signals if states else {name: self.signals[name] for name in BOTH_SIDES}
        return replace(self, prepared=prepared, signals=signals)

    @cached_property
    def steps(self) -> int:
        """The number of steps."""
        return self.signals["pre"].activity.shape[0]


class Target(NamedTuple):
    """A parameter that a rule trains, and the accumulator of its change."""

    name: str
    param: Tensor
    vjp: WeightVJP
    accumulator: Accumulator

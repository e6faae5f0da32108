"""Inputs of a rule's evaluation: recorded signals, keyword arguments, parameters to train."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lightning_accum.engine.neuromodulator import Neuromodulator
from lightning_accum.engine.state_keys import Carried
from lightning_accum.engine.term_operands import Activity
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.functional.traces import decay_factor
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.kernel_library import Scratch
from lightning_accum.updates.pending import Pending

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


@dataclass(eq=False)
class Given(Mapping[str, Any]):
    """The keyword arguments of a rule's call, with a note of those that the rule has read."""

    every: Mapping[str, Any]  # which are read here without a note
    shared: dict[Any, Any] = field(default_factory=dict)  # what cells have in common in this call
    scratch: Scratch = field(default_factory=Scratch)  # work memory of this call
    direct: bool = False  # whether it is that of a function or a layer, not of a trainer
    read: set[str] = field(default_factory=set)  # their names

    @property
    def unread(self) -> list[str]:
        """The names of the arguments that the rule has not read."""
        return [name for name in self.every if name not in self.read]

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        if name in self.every:
            return self.every[name]
        how = f"pass `{name}=...`" if self.direct else f"call `trainer({name}=...)`"
        raise KeyError(
            f"The rule should be called with `{name}`, which its terms read from `window.inputs`."
            f" Found {sorted(self.every)}: {how}, or read it by"
            f" `window.inputs.get({name!r})` if it may be left out."
        )

    def __contains__(self, name: object) -> bool:
        return name in self.every

    def __iter__(self) -> Iterator[str]:
        self.read.update(self.every)  # a caller that iterates may read each of them
        return iter(self.every)

    def __len__(self) -> int:
        return len(self.every)


class Prepared:
    """What a rule has computed of a whole window, with the factors of its changes."""

    factors: Mapping[str, Any] = {}
    """By name, what every change is multiplied by, or functions that return it."""

    replaces_states = False
    """Whether terms read it instead of the recorded states."""


@dataclass(frozen=True)
class Recording:
    """Holds everything that a rule reads of one cell."""

    signals: Mapping[str, Recorded]  # "pre" before the connection, "post" after the neuron, others
    dt: float
    unit_dim: int  # the dimension that counts neurons
    steps: int  # how many there are
    tensors: Mapping[str, Tensor]  # others of the connection
    inputs: Given  # of the rule's call, such as a reward
    carries: bool  # whether values that belong to samples pass to the next window
    levels: Mapping[str, Tensor] = field(default_factory=dict)  # of neuromodulators, [T, B]
    left: Carried = field(default_factory=dict)  # what these leave for the next window
    prepared: Any = None  # what the rule computed of the whole window

    def activity(self, name: str) -> Tensor:
        """Returns the activity of a signal, ``[T, B, ...]``."""
        return self.signals[name].activity


class Target(NamedTuple):
    """A parameter that a rule trains, and what is pending for it."""

    name: str
    param: Tensor
    vjp: WeightVJP
    pending: Pending


def with_levels(
    recording: Recording,
    modulators: Mapping[str, Neuromodulator],
    carried: Carried,
    dtype: torch.dtype,
) -> Recording:
    """Returns the recording with the levels of neuromodulators, by name."""
    post, levels, left = recording.activity("post"), {}, {}
    for name, each in modulators.items():
        given = recording.inputs.every.get(name)  # a term that reads the level notes it as read
        released = post.new_zeros(post.shape[:2], dtype=dtype)
        if given is not None:
            given = given_value(name, given, *post.shape[:2])
            given = torch.as_tensor(given, dtype=dtype).detach()
            (released if given.ndim == 2 else released[-1]).copy_(given)
        source = Activity(released, recording.dt, carried, f"released {name}", dtype)
        trace = source.values(decay_factor(each.tc, recording.dt), "cumulative")
        levels[name] = each.baseline + each.gain * trace
        left.update(source.carry())
    return replace(recording, levels=levels, left=left)


def given_value(
    name: str, value: object, steps: int, batch: int, direct: bool = False
) -> float | Tensor:
    """Returns what a call gave for a window, which should be a number, ``[B]`` or ``[T, B]``."""
    if isinstance(value, (int, float)):
        return float(value)
    shape = tuple(value.shape) if isinstance(value, Tensor) else None
    if isinstance(value, Tensor) and shape in ((), (batch,), (steps, batch)):
        return value
    how = "give a number for each sample of the window"
    if value is None:
        how = f"call `trainer({name}=...)`, or give the callback `input_keys=('{name}',)`"
        how = f"pass `{name}=...`" if direct else how
    elif shape is None:
        how = f"convert it, `torch.as_tensor({name})`"
    elif shape == (batch, steps):
        how = f"time is its first dimension, so call `{name}.transpose(0, 1)`"
    elif len(shape) == 2 and shape[1] == batch and not direct:
        how = f"give only what belongs to the window's steps ({steps}), as by"
        how += f" `trainer({name}={name}[t : t + {steps}])` in a loop, or call it once, after all"
        how += " steps"
    raise ValueError(
        f"Argument `{name}` should be a number, or a tensor [B] or [T, B] of shape [{batch}] or"
        f" [{steps}, {batch}]. Found {type(value).__name__ if shape is None else list(shape)}:"
        f" {how}."
    )

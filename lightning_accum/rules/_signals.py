"""The signals of a cell that a rule records: their monitors, and the checks of their shapes."""

from typing import Any, NamedTuple, TypeAlias

from torch import nn

from lightning_accum.cells.cell import Cell
from lightning_accum.observe import (
    InputMonitor,
    Monitor,
    OutputMonitor,
    StateMonitor,
    WindowRecorder,
)
from lightning_accum.observe.monitor import MonitorConstructor, Picker, first_tensor

StateSource: TypeAlias = str | Picker | type[Monitor]
"""Where another signal of a neuron is seen: its attribute, a part of its output, or a monitor."""


class RecordedSignal(NamedTuple):
    """Names one activity of a cell, and says where it is seen and how it is kept."""

    name: str
    attr: str  # dotted path of the module, relative to the cell
    kind: type[Monitor]  # sees the module's input, its output or a state
    spikes: bool  # whether the activity is spikes, which are kept as booleans
    validate: bool  # whether to check that spikes are 0 or 1
    picker: Picker  # finds the activity in what the monitor sees
    holds: bool = False  # whether a sequence is held itself, instead of a copy

    def constructor(self, cell: str, h: Any) -> MonitorConstructor:
        """Returns the constructor of this signal's monitor."""
        place = "before" if self.kind is InputMonitor else "after"
        label = f"{place} the {self.attr} of cell `{cell}`"
        recorder = WindowRecorder(self.spikes, h.time_dim, self.validate, label, self.holds)
        return self.kind.partialconstructor(reducer=recorder, picker=self.picker)

    def tags(self, h: Any) -> dict[str, Any]:
        """Returns the settings that cells should have in common to share a monitor."""
        kept = {"spikes": self.spikes, "time_dim": h.time_dim, "dt": h.dt}
        return {**kept, "picker": self.picker, "validate": self.validate}


def both_sides(
    cell: Cell, h: Any, spikes: tuple[bool, bool], reads_input: bool
) -> tuple[RecordedSignal, RecordedSignal]:
    """Returns the signals of every rule: the connection's input and the neuron's output."""
    takes_indices = isinstance(cell.connection, nn.Embedding)  # integers that are not spikes
    holds, out = getattr(cell.connection, "finds_events", False), h.picker or first_tensor
    seen = "pre", "connection", InputMonitor, spikes[0] and not takes_indices
    pre = RecordedSignal(*seen, reads_input, first_tensor, holds)
    post = RecordedSignal("post", "neuron", OutputMonitor, spikes[1], True, out)
    return pre, post


def check_source(name: str, source: object) -> None:
    """Raises a ``TypeError`` if an argument does not say where a signal is found."""
    if isinstance(source, type):
        fits = issubclass(source, Monitor)
    else:
        fits = isinstance(source, str) or callable(source)
    if not fits:
        kind = source.__name__ if isinstance(source, type) else type(source).__name__
        raise TypeError(
            f"Argument `{name}` should be the path of an attribute of the neuron, a callable that"
            f" finds a tensor in the neuron's output, or the class of a monitor. Found `{kind}`."
        )


def state_of(cell: Cell, name: str, source: StateSource) -> RecordedSignal:
    """Returns another signal of the neuron, recorded unchanged and not as spikes."""
    if isinstance(source, str):
        kept, holds = first_tensor, source in getattr(cell.neuron, "new_in_each_call", ())
        return RecordedSignal(name, f"neuron.{source}", StateMonitor, False, False, kept, holds)
    if isinstance(source, type):
        return RecordedSignal(name, "neuron", source, False, False, first_tensor)
    return RecordedSignal(name, "neuron", OutputMonitor, False, False, source)

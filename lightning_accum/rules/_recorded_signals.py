"""The signals of a cell that a rule records: their monitors, and the checks of their shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from torch import nn

from lightning_accum.cells.cell import Cell
from lightning_accum.cells.mismatch import check_same_steps
from lightning_accum.engine.recording import Recorded
from lightning_accum.observe import (
    InputMonitor,
    Monitor,
    OutputMonitor,
    Picker,
    StateMonitor,
    WindowRecorder,
    first_tensor,
)
from lightning_accum.observe.monitor import MonitorConstructor
from lightning_accum.rules._options import RuleOptions

StateSource: TypeAlias = str | Picker | type[Monitor]
"""Where another signal of a neuron is seen: its attribute, a part of its output, or a monitor."""


class RecordedSignal(NamedTuple):
    """Names one activity of a cell, and says where it is seen and how it is kept.

    Args:
        name: the name under which it is recorded.
        attr: dotted path of the module, relative to the cell.
        kind: the class of the monitor, which sees the module's input, its output or a state.
        spikes: whether the activity is spikes, which are kept as booleans.
        validate: whether to check that spikes are 0 or 1.
        picker: finds the activity in what the monitor sees.
        holds: whether a sequence is held itself, instead of a copy.
    """

    name: str
    attr: str
    kind: type[Monitor]
    spikes: bool
    validate: bool
    picker: Picker
    holds: bool = False

    def constructor(self, cell: str, h: RuleOptions) -> MonitorConstructor:
        """Returns the constructor of this signal's monitor.

        Args:
            cell: the name of the cell, for messages.
            h: the hyperparameters of the cell.
        """
        place = "before" if self.kind is InputMonitor else "after"
        label = f"{place} the {self.attr} of cell `{cell}`"
        recorder = WindowRecorder(self.spikes, h.time_dim, h.dt, self.validate, label, self.holds)
        return self.kind.partialconstructor(reducer=recorder, picker=self.picker)

    def tags(self, h: RuleOptions) -> dict[str, Any]:
        """Returns the settings that cells should have in common to share a monitor.

        Args:
            h: the hyperparameters of the cell.
        """
        kept = {"spikes": self.spikes, "time_dim": h.time_dim, "dt": h.dt}
        return {**kept, "picker": self.picker, "validate": self.validate}


def both_sides(
    cell: Cell, h: RuleOptions, spikes: bool, reads_input: bool
) -> tuple[RecordedSignal, RecordedSignal]:
    """Returns the signals of every rule: the connection's input and the neuron's output.

    Args:
        cell: the cell.
        h: its hyperparameters.
        spikes: whether both sides are spikes.
        reads_input: whether the input's values matter to the rule.
    """
    takes_indices = isinstance(cell.connection, nn.Embedding)  # integers that are not spikes
    pre = RecordedSignal(
        "pre", "connection", InputMonitor, spikes and not takes_indices, reads_input, first_tensor
    )
    post = RecordedSignal("post", "neuron", OutputMonitor, spikes, True, h.picker or first_tensor)
    return pre, post


def check_source(name: str, source: object) -> None:
    """Raises a ``TypeError`` if an argument does not say where a signal is found.

    Args:
        name: the name of the argument.
        source: the argument.
    """
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
    """Returns another signal of the neuron, recorded unchanged and not as spikes.

    Args:
        cell: the cell; its neuron says in ``new_in_each_call`` which attributes it never changes.
        name: the name for ``window.state``.
        source: a dotted path from the neuron, a picker of its output, or the class of a monitor.
    """
    if isinstance(source, str):
        kept, holds = first_tensor, source in getattr(cell.neuron, "new_in_each_call", ())
        return RecordedSignal(name, f"neuron.{source}", StateMonitor, False, False, kept, holds)
    if isinstance(source, type):
        return RecordedSignal(name, "neuron", source, False, False, first_tensor)
    return RecordedSignal(name, "neuron", OutputMonitor, False, False, source)


def read(monitors: Mapping[str, Monitor | None]) -> dict[str, Recorded]:
    """Returns what monitors recorded since the rule was last called.

    Args:
        monitors: by the name of the signal.
    """
    found = {}
    for signal, monitor in monitors.items():
        if monitor is not None and (window := monitor.reducer.window()) is not None:
            found[signal] = Recorded(window, monitor.reducer.events())
    return found


def check_read(
    name: str,
    cell: Cell,
    found: Mapping[str, Recorded],
    monitors: Mapping[str, Monitor | None],
    time_dim: int | None,
) -> None:
    """Checks that signals were recorded of the same steps and samples.

    Args:
        name: the name of the cell, for messages.
        cell: the cell.
        found: what was recorded.
        monitors: by the name of the signal, with ``"pre"`` and ``"post"`` among them.
        time_dim: how the rule expects modules to be called.

    Raises:
        ValueError: if signals differ in their number of steps or samples.
        TypeError: if a signal is complex.
    """
    activity = {signal: recorded.activity for signal, recorded in found.items()}
    check_same_steps(name, cell, activity.get("pre"), activity.get("post"), time_dim)
    pre, post = activity["pre"], activity["post"]
    if pre.is_complex() or post.is_complex():
        raise TypeError(
            f"Activity of cell `{name}` should be real. Found {pre.dtype} before and"
            f" {post.dtype} after the connection: record its magnitude or its real part."
        )
    for signal, monitor in monitors.items():
        steps = None if signal not in activity else tuple(activity[signal].shape[:2])
        if steps != tuple(pre.shape[:2]):
            what = "nothing" if steps is None else f"steps and samples {steps}"
            how = "register the cell again." if monitor is None else monitor.why_missing()
            raise ValueError(
                f"Signal `{signal}` of cell `{name}` should be recorded as often as the neuron"
                f" gives out spikes, [T, B, ...] with {tuple(pre.shape[:2])}. Found {what}: {how}"
            )

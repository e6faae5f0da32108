"""What a rule records of a cell, and the checks of what both are set to."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, get_args

from torch import nn

from lightning_accum import _checks as checks
from lightning_accum import observe
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.independent_trainer import Field
from lightning_accum.cells.state import rates_in
from lightning_accum.functional.reductions import check_reduction
from lightning_accum.functional.traces import TraceMode
from lightning_accum.nn.linear import DelayedLinear
from lightning_accum.observe.monitor import MonitorConstructor, Picker, first_tensor
from lightning_accum.rules.neuromodulator import Neuromodulator, modulators_of

# The `time_dim` of other libraries' neurons, by the library and the name of the base class.
_FOREIGN = {
    ("snntorch", "SpikingNeuron"): None,
    ("norse", "SNNCell"): None,
    ("norse", "SNNRecurrentCell"): None,
    ("norse", "SNN"): 0,
    ("norse", "SNNRecurrent"): 0,
}

StateSource: TypeAlias = str | Picker | type[observe.Monitor]
"""Where another signal of a neuron is seen: its attribute, a part of its output, or a monitor."""


class RecordedSignal(NamedTuple):
    """Names one activity of a cell, and says where it is seen and how it is kept."""

    name: str
    attr: str  # dotted path of the module, relative to the cell
    kind: type[observe.Monitor]  # sees the module's input, its output or a state
    spikes: bool  # whether the activity is spikes, which are kept as booleans
    validate: bool  # whether to check that spikes are 0 or 1
    picker: Picker  # finds the activity in what the monitor sees
    holds: bool = False  # whether a sequence is held itself, instead of a copy

    def constructor(self, cell: str, h: Any, dims: int | None) -> MonitorConstructor:
        """Returns the constructor of this signal's monitor."""
        place = "before" if self.kind is observe.InputMonitor else "after"
        label = f"{place} the {self.attr} of cell `{cell}`"
        own = self.spikes, h.time_dim
        recorder = observe.WindowRecorder(
            *own, validate=self.validate, label=label, sample_dims=dims, holds=self.holds
        )
        return self.kind.partialconstructor(reducer=recorder, picker=self.picker)

    def tags(self, h: Any, dims: int | None) -> dict[str, Any]:
        """Returns the settings that cells should have in common to share a monitor."""
        kept = {"spikes": self.spikes, "time_dim": h.time_dim, "dt": h.dt, "dims": dims}
        return {**kept, "picker": self.picker, "validate": self.validate}


def both_sides(
    cell: Cell, h: Any, spikes: tuple[bool, bool], reads_input: bool
) -> tuple[RecordedSignal, RecordedSignal]:
    """Returns the signals of every rule: the connection's input and the neuron's output."""
    takes_indices = isinstance(cell.connection, nn.Embedding)  # integers that are not spikes
    holds, out = getattr(cell.connection, "finds_events", False), h.picker or first_tensor
    seen = "pre", "connection", observe.InputMonitor, spikes[0] and not takes_indices
    pre = RecordedSignal(*seen, reads_input, first_tensor, holds)
    post = RecordedSignal("post", "neuron", observe.OutputMonitor, spikes[1], True, out)
    return pre, post


def check_source(name: str, source: object) -> None:
    """Raises a ``TypeError`` if an argument does not say where a signal is found."""
    fits = isinstance(source, str) or callable(source)
    if isinstance(source, type):
        fits = issubclass(source, observe.Monitor)
    should = "the path of an attribute of the neuron, a callable that finds a tensor in the"
    should += " neuron's output, or the class of a monitor"
    checks.check_type(fits, name, source, should)


def state_of(cell: Cell, name: str, source: StateSource) -> RecordedSignal:
    """Returns another signal of the neuron, recorded unchanged and not as spikes."""
    if isinstance(source, str):
        kept, holds = first_tensor, source in getattr(cell.neuron, "new_in_each_call", ())
        return RecordedSignal(
            name, f"neuron.{source}", observe.StateMonitor, False, False, kept, holds
        )
    if isinstance(source, type):
        return RecordedSignal(name, "neuron", source, False, False, first_tensor)
    return RecordedSignal(name, "neuron", observe.OutputMonitor, False, False, source)


def _is_time_constant(name: str) -> bool:
    return name == "tc" or name.startswith("tc_")


def check_states(rule: str, name: str, cell: Cell, states: Mapping[str, StateSource]) -> None:
    """Raises a ``ValueError`` if the neuron has no such state."""
    neuron = cell.neuron
    for state, source in states.items():
        lacks = isinstance(source, str) and "." not in source and not hasattr(neuron, source)
        if lacks or (isinstance(source, str) and getattr(neuron, "keep_states", True) is False):
            native = type(neuron).__module__.startswith("lightning_accum.")
            own = f"if `forward` sets `self.{source}`, begin with `self.{source} = None` in its"
            sets = "" if native or not lacks else f"{own} `__init__`; otherwise "
            raise ValueError(
                f"The neuron of cell `{name}` should have a {state} for `{rule}` to record. Found"
                f" that a `{type(neuron).__name__}` keeps none under `{source}`: {sets}take"
                " a `lightning_accum.nn.SurrogateLIF` with `keep_states=True`, or give the rule"
                f" `{state}=`, the path of another of its attributes or a"
                f" callable that finds it in the neuron's output, such as `lambda out: out[1]`."
            )


def check_hyperparameters(h: Any, fields: Mapping[str, Field]) -> None:
    """Raises if hyperparameters of all rules make no sense; those of default ``None`` may be it."""
    check_reduction(h.batch_reduction, "batch_reduction")
    rates = rates_in(vars(h))
    for name, value in vars(h).items():
        field = fields[name]
        if Neuromodulator in (field.annotation, type(field.default), *get_args(field.annotation)):
            fits = value is None or isinstance(value, Neuromodulator)
            how = f"give what is released to each call, `rule({name}=...)`, and here, if its effect"
            how += " should last, `Neuromodulator(tc=200.0)`"
            checks.check_type(
                fits, name, value, "a Neuromodulator that calls release, or None", how
            )
        if value is None and field.default is None:
            continue
        if name == "dt" or _is_time_constant(name):
            fits = checks.is_number(value) and 0 < value < math.inf
            checks.check_value(fits, name, value, "a positive, finite number of ms")
        elif name in rates:
            fits = checks.is_number(value) and abs(value) < math.inf
            checks.check_value(fits, name, value, "a finite number")
    should = "names of at least one parameter of the connection, such as `('weight',)`"
    checks.check_value(bool(h.params), "params", h.params, should)
    checks.check_choice("trace_mode", getattr(h, "trace_mode", "cumulative"), get_args(TraceMode))
    should = "a callable that finds a tensor in a neuron's output, or None"
    checks.check_type(h.picker is None or callable(h.picker), "picker", h.picker, should)


def check_modules(name: str, cell: Cell, h: Any, takes_delays: bool) -> None:
    """Raises a ``ValueError`` if a module has another time than the rule, or delays to ignore."""
    neuron, connection = cell.neuron, cell.connection
    mode = {"s": None, "m": 0}.get(getattr(neuron, "step_mode", ""), h.time_dim)
    for kind in type(neuron).__mro__:
        mode = _FOREIGN.get((kind.__module__.partition(".")[0], kind.__name__), mode)
    time_dim = getattr(neuron, "time_dim", mode)
    should = f"that of the neuron of cell `{name}`, {time_dim}"
    how = f"and call the neuron once per {'step' if time_dim is None else 'sequence'}"
    how = f"give the rule `time_dim={time_dim}`, {how}"
    checks.check_value(time_dim == h.time_dim, "time_dim", h.time_dim, should, how)
    # in ms, as in `lightning_accum.nn`; that of a neuron without `time_dim` may be in any unit
    steps = {"neuron": getattr(neuron, "dt", None) if hasattr(neuron, "time_dim") else None}
    if isinstance(connection, DelayedLinear):
        if not takes_delays:
            raise ValueError(
                f"The connection of cell `{name}` should have no delays, because the rule would"
                " ignore them. Found a DelayedLinear: train it with `DelayAdjustedSTDP` or"
                " `DelayAdjustedKernelSTDP`."
            )
        steps["connection"] = connection.dt
    for side, step in steps.items():
        fits = not checks.is_number(step) or math.isclose(step, h.dt)
        should = f"the step of the {side} of cell `{name}`, {step} ms"
        checks.check_value(fits, "dt", h.dt, should, f"give the rule `dt={step}`")
    constants = {key: value for key, value in vars(h).items() if _is_time_constant(key) and value}
    constants |= {f"{key}.tc": each.tc for key, each in modulators_of(h).items()}
    checks.warn_below_step(h.dt, f"cell `{name}`", **constants)
    times = getattr(getattr(h, "kernel", None), "__dict__", {})
    kernel = {k: v for k, v in times.items() if k.startswith("tc_") or k == "width"}
    if all(map(checks.is_number, kernel.values())):
        checks.warn_below_step(h.dt, f"the kernel of cell `{name}`", **kernel)

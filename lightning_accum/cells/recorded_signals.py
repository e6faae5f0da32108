"""What a rule records of a cell, and the checks of what both are set to."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from lightning_accum import _checks as checks
from lightning_accum import observe
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.state import Options
from lightning_accum.engine.neuromodulator import modulators_of
from lightning_accum.engine.rule import Rule, time_constants_in
from lightning_accum.engine.terms import Change
from lightning_accum.nn.linear import DelayedLinear
from lightning_accum.observe.monitor import MonitorConstructor, Picker, StateSource, first_tensor

# The `time_dim` of other libraries' neurons, by the library and the name of the base class.
_FOREIGN = {
    ("snntorch", "SpikingNeuron"): None,
    ("norse", "SNNCell"): None,
    ("norse", "SNNRecurrentCell"): None,
    ("norse", "SNN"): 0,
    ("norse", "SNNRecurrent"): 0,
}


class RecordedSignal(NamedTuple):
    """Names one activity of a cell, and says where it is seen and how it is kept."""

    name: str
    attr: str  # dotted path of the module, relative to the cell
    kind: type[observe.Monitor]  # sees the module's input, its output or a state
    spikes: bool = False  # whether the activity is spikes, which are kept as booleans
    validate: bool = False  # whether to check that spikes are 0 or 1
    picker: Picker = first_tensor  # finds the activity in what the monitor sees
    holds: bool = False  # whether a sequence is held itself, instead of a copy

    def constructor(self, cell: str, options: Options, dims: int | None) -> MonitorConstructor:
        """Returns the constructor of this signal's monitor."""
        place = "before" if self.kind is observe.InputMonitor else "after"
        label = f"{place} the {self.attr} of cell `{cell}`"
        own = self.spikes, options.time_dim
        recorder = observe.WindowRecorder(
            *own, validate=self.validate, label=label, sample_dims=dims, holds=self.holds
        )
        return self.kind.partialconstructor(reducer=recorder, picker=self.picker)

    def tags(self, options: Options, dims: int | None) -> dict[str, Any]:
        """Returns the settings that cells should have in common to share a monitor."""
        kept = {"spikes": self.spikes, "time_dim": options.time_dim, "dt": options.dt, "dims": dims}
        return {**kept, "picker": self.picker, "validate": self.validate}


def recorded_signals(
    cell: Cell, rule: Rule, options: Options, terms: Iterable[Sequence[Change] | None]
) -> list[RecordedSignal]:
    """Returns what to record: the connection's input, the neuron's output, and its states."""
    sides = ("pre", "post") if rule.spikes is True else rule.spikes or ()
    takes_indices = isinstance(cell.connection, nn.Embedding)  # integers that are not spikes
    graded = rule.graded and options.graded_input  # then values count
    spikes = "pre" in sides and not (takes_indices or graded)
    is_read = any(each is None or any("pre" in c.signals for c in each) for each in terms)
    checks_input = is_read and not options.graded_input
    pre = RecordedSignal("pre", "connection", observe.InputMonitor, spikes, checks_input)
    fired = "post" in sides, True, options.picker or first_tensor
    post = RecordedSignal("post", "neuron", observe.OutputMonitor, *fired)
    return [pre, post, *(_state_of(cell, name, of) for name, of in rule.states().items())]


def follows_gradient(rule: Rule) -> bool:
    """Returns whether a rule records the gradient of a loss."""
    kinds = [each for each in rule.states().values() if isinstance(each, type)]
    return any(issubclass(each, observe.GradientMonitor) for each in kinds)


def delays_in(rule: Rule) -> str | None:
    """Returns the name of the connection's delays that a rule reads, if it takes account of any."""
    name: object = getattr(rule, "delay", None)
    return name if isinstance(name, str) and name in rule.reads() else None


def _state_of(cell: Cell, name: str, source: StateSource) -> RecordedSignal:
    """Returns another signal of the neuron, recorded unchanged and not as spikes."""
    if isinstance(source, str):
        holds = source in getattr(cell.neuron, "new_in_each_call", ())
        return RecordedSignal(name, f"neuron.{source}", observe.StateMonitor, holds=holds)
    if isinstance(source, type):
        return RecordedSignal(name, "neuron", source)
    return RecordedSignal(name, "neuron", observe.OutputMonitor, picker=source)


def check_states(name: str, cell: Cell, rule: Rule) -> None:
    """Raises a ``ValueError`` if the neuron has no state that a hyperparameter names."""
    states = {state: of for state, of in rule.states().items() if state in vars(rule)}
    neuron = cell.neuron
    for state, source in states.items():
        lacks = isinstance(source, str) and "." not in source and not hasattr(neuron, source)
        if lacks or (isinstance(source, str) and getattr(neuron, "keep_states", True) is False):
            native = type(neuron).__module__.startswith("lightning_accum.")
            own = f"if `forward` sets `self.{source}`, begin with `self.{source} = None` in its"
            sets = "" if native or not lacks else f"{own} `__init__`; otherwise "
            raise ValueError(
                f"The neuron of cell `{name}` should have a {state} for `{type(rule).__name__}` to"
                f" record. Found that a `{type(neuron).__name__}` keeps none under `{source}`:"
                f" {sets}take"
                " a `lightning_accum.nn.SurrogateLIF` with `keep_states=True`, or give the rule"
                f" `{state}=`, the path of another of its attributes or a"
                f" callable that finds it in the neuron's output, such as `lambda out: out[1]`."
            )


def check_modules(name: str, cell: Cell, rule: Rule, options: Options) -> None:
    """Raises a ``ValueError`` if a module has another time than the rule, or lacks a state."""
    neuron, connection = cell.neuron, cell.connection
    mode = {"s": None, "m": 0}.get(getattr(neuron, "step_mode", ""), options.time_dim)
    for kind in type(neuron).__mro__:
        mode = _FOREIGN.get((kind.__module__.partition(".")[0], kind.__name__), mode)
    time_dim = getattr(neuron, "time_dim", mode)
    should = f"that of the neuron of cell `{name}`, {time_dim}"
    how = f"and call the neuron once per {'step' if time_dim is None else 'sequence'}"
    how = f"give the trainer `time_dim={time_dim}`, {how}"
    checks.check_value(time_dim == options.time_dim, "time_dim", options.time_dim, should, how)
    # in ms, as in `lightning_accum.nn`; that of a neuron without `time_dim` may be in any unit
    steps = {"neuron": getattr(neuron, "dt", None) if hasattr(neuron, "time_dim") else None}
    delay = delays_in(rule)
    if delay is not None:
        _check_delays(name, connection, delay, options.params)
    if isinstance(connection, DelayedLinear):
        if delay is None:
            raise ValueError(
                f"The connection of cell `{name}` should have no delays, because the rule would"
                " ignore them. Found a DelayedLinear: train it with `DelayAdjustedSTDP` or"
                " `DelayAdjustedKernelSTDP`."
            )
        steps["connection"] = connection.dt
    dt, values = options.dt, vars(rule)
    for side, step in steps.items():
        fits = not checks.is_number(step) or math.isclose(step, dt)
        should = f"the step of the {side} of cell `{name}`, {step} ms"
        checks.check_value(fits, "dt", dt, should, f"give the trainer `dt={step}`")
    constants = time_constants_in(values)
    constants |= {f"{key}.tc": each.tc for key, each in modulators_of(rule).items()}
    checks.warn_below_step(dt, f"cell `{name}`", **constants)
    times = getattr(values.get("kernel"), "__dict__", {})
    kernel = {k: v for k, v in times.items() if k.startswith("tc_") or k == "width"}
    if all(map(checks.is_number, kernel.values())):
        checks.warn_below_step(dt, f"the kernel of cell `{name}`", **kernel)
    check_states(name, cell, rule)


def _check_delays(name: str, connection: nn.Module, delay: str, params: Sequence[str]) -> None:
    """Raises a ``ValueError`` if a connection has no delays of a parameter's shape."""
    delays = getattr(connection, delay, None)
    for param in params:
        weight = getattr(connection, param, None)
        if isinstance(weight, Tensor) and getattr(delays, "shape", None) != weight.shape:
            found = list(delays.shape) if isinstance(delays, Tensor) else type(delays).__name__
            raise ValueError(
                f"Argument `delay` should name delays of the shape of parameter `{param}` of"
                f" cell `{name}`, {list(weight.shape)}. Found `delay = {delay!r}`, {found}:"
                f" give the {type(connection).__name__} such a parameter or buffer, in ms."
            )

"""Checks of what a rule and its cells are set to."""

import math
from collections.abc import Collection
from typing import Any, get_args

from lightning_accum._checks import (
    check_choice,
    check_type,
    check_value,
    is_number,
    warn_below_step,
)
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.state import rates_in
from lightning_accum.functional.reductions import check_reduction
from lightning_accum.functional.traces import TraceMode
from lightning_accum.nn.linear import DelayedLinear
from lightning_accum.rules.neuromodulator import modulators_of

# The `time_dim` of other libraries' neurons, by the library and the name of the base class.
_FOREIGN = {
    ("snntorch", "SpikingNeuron"): None,
    ("norse", "SNNCell"): None,
    ("norse", "SNNRecurrentCell"): None,
    ("norse", "SNN"): 0,
    ("norse", "SNNRecurrent"): 0,
}


def _is_time_constant(name: str) -> bool:
    return name == "tc" or name.startswith("tc_")


def check_hyperparameters(h: Any, optional: Collection[str]) -> None:
    """Raises if hyperparameters of all rules make no sense; the optional ones may be ``None``."""
    check_reduction(h.batch_reduction, "batch_reduction")
    rates = rates_in(vars(h))
    for name, value in vars(h).items():
        if value is None and name in optional:
            continue
        if name == "dt" or _is_time_constant(name):
            fits = is_number(value) and 0 < value < math.inf
            check_value(fits, name, value, "a positive, finite number of ms")
        elif name in rates:
            fits = is_number(value) and abs(value) < math.inf
            check_value(fits, name, value, "a finite number")
    should = "names of at least one parameter of the connection, such as `('weight',)`"
    check_value(bool(h.params), "params", h.params, should)
    check_choice("trace_mode", getattr(h, "trace_mode", "cumulative"), get_args(TraceMode))
    should = "a callable that finds a tensor in a neuron's output, or None"
    check_type(h.picker is None or callable(h.picker), "picker", h.picker, should)


def check_neuron(name: str, cell: Cell, h: Any) -> None:
    """Raises a ``ValueError`` if the neuron's ``time_dim`` or ``dt`` is not that of the rule."""
    neuron = cell.neuron
    mode = {"s": None, "m": 0}.get(getattr(neuron, "step_mode", ""), h.time_dim)
    for kind in type(neuron).__mro__:
        mode = _FOREIGN.get((kind.__module__.partition(".")[0], kind.__name__), mode)
    time_dim = getattr(neuron, "time_dim", mode)
    should = f"that of the neuron of cell `{name}`, {time_dim}"
    how = f"and call the neuron once per {'step' if time_dim is None else 'sequence'}"
    how = f"give the rule `time_dim={time_dim}`, {how}"
    check_value(time_dim == h.time_dim, "time_dim", h.time_dim, should, how)
    # in ms, as in `lightning_accum.nn`; that of a neuron without `time_dim` may be in any unit
    step: Any = getattr(neuron, "dt", None) if hasattr(neuron, "time_dim") else None
    fits, should = not is_number(step) or math.isclose(step, h.dt), "the step of the neuron"
    check_value(
        fits, "dt", h.dt, f"{should} of cell `{name}`, {step} ms", f"give the rule `dt={step}`"
    )
    constants = {key: value for key, value in vars(h).items() if _is_time_constant(key) and value}
    constants |= {f"{key}.tc": each.tc for key, each in modulators_of(h).items()}
    warn_below_step(h.dt, f"cell `{name}`", **constants)
    times = getattr(getattr(h, "kernel", None), "__dict__", {})
    kernel = {k: v for k, v in times.items() if k.startswith("tc_") or k == "width"}
    if all(map(is_number, kernel.values())):
        warn_below_step(h.dt, f"the kernel of cell `{name}`", **kernel)


def check_connection(name: str, cell: Cell, h: Any, takes_delays: bool) -> None:
    """Raises a ``ValueError`` if the rule ignores the connection's delays, or has another step."""
    connection = cell.connection
    if not isinstance(connection, DelayedLinear):
        return
    if not takes_delays:
        raise ValueError(
            f"The connection of cell `{name}` should have no delays, because the rule would ignore"
            " them. Found a DelayedLinear: train it with `DelayAdjustedSTDP` or"
            " `DelayAdjustedKernelSTDP`."
        )
    step, should = connection.dt, f"the step of the connection of cell `{name}`, {connection.dt} ms"
    check_value(math.isclose(step, h.dt), "dt", h.dt, should, f"give the rule `dt={step}`")

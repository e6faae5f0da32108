"""Checks of what a rule and its cells are set to."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any, get_args

from lightning_accum._checks import check_mapping, is_number, names_in, nearest, warn_below_step
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.state import Hyperparameters
from lightning_accum.functional.reductions import check_reduction
from lightning_accum.functional.traces import TraceMode


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raises a ``ValueError`` if an argument is not one of some strings.

    Args:
        name: the name of the argument.
        value: the argument.
        choices: the strings.
    """
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"Argument `{name}` should be one of {choices}. Found `{name} = {value!r}`."
        )


def extended(own: Mapping[str, Any], added: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the hyperparameters of a base class with those that a subclass adds.

    Args:
        own: those of the base class, by name.
        added: those of the subclass, by name.

    Raises:
        TypeError: if what is added is not a mapping.
    """
    if added is not None:
        check_mapping("hyperparameters", added)
    return {**own, **(added or {})}


def check_hyperparameters(h: Hyperparameters) -> None:
    """Raises an error if hyperparameters that several rules have make no sense.

    Args:
        h: the hyperparameters.

    Raises:
        ValueError: if ``dt`` or a ``tc_...`` is not positive, an ``lr_...`` is not finite, or
            ``trace_mode`` is not a mode.
        TypeError: if ``params``, ``batch_reduction`` or ``picker`` is of another type.
    """
    check_reduction(h.batch_reduction, "batch_reduction")
    names_in("params", h.params)
    for name, value in vars(h).items():
        if name == "dt" or name.startswith("tc_"):
            if not (is_number(value) and 0 < value < math.inf):
                raise ValueError(
                    f"Argument `{name}` should be a positive, finite number of ms."
                    f" Found `{name} = {value!r}`."
                )
        elif (name == "lr" or name.startswith("lr_")) and not (
            is_number(value) and abs(value) < math.inf
        ):
            raise ValueError(
                f"Argument `{name}` should be a finite number. Found `{name} = {value!r}`."
            )
    check_choice("trace_mode", getattr(h, "trace_mode", "cumulative"), get_args(TraceMode))
    if not (h.picker is None or callable(h.picker)):
        raise TypeError(
            "Argument `picker` should be a callable that finds a tensor in a neuron's output, or"
            f" None. Found `{type(h.picker).__name__}`."
        )


def check_neuron(name: str, cell: Cell, h: Hyperparameters) -> None:
    """Raises a ``ValueError`` if the neuron is called in another way, or has another step.

    The ``dt`` of a neuron is in ms if the neuron has a ``time_dim``, as those of
    ``lightning_accum.nn`` do. That of other neurons may be in any unit and is not compared.

    Args:
        name: the name of the cell.
        cell: the cell.
        h: the hyperparameters of the rule for this cell.
    """
    neuron = cell.neuron
    mode = {"s": None, "m": 0}.get(getattr(neuron, "step_mode", ""), h.time_dim)
    time_dim = getattr(neuron, "time_dim", mode)
    if time_dim != h.time_dim:
        raise ValueError(
            f"Argument `time_dim` should be that of the neuron of cell `{name}`, {time_dim}. Found"
            f" `time_dim = {h.time_dim}`: give the rule `time_dim={time_dim}`."
        )
    step: Any = getattr(neuron, "dt", None) if hasattr(neuron, "time_dim") else None
    if is_number(step) and not math.isclose(step, h.dt):
        raise ValueError(
            f"Argument `dt` should be the step of the neuron of cell `{name}`, {step} ms. Found"
            f" `dt = {h.dt}`: give the rule `dt={step}`."
        )
    constants = {key: value for key, value in vars(h).items() if key.startswith("tc_")}
    warn_below_step(h.dt, f"cell `{name}`", **constants)


def check_known(rule: type, base: type, unknown: Mapping[str, object]) -> None:
    """Raises a ``TypeError`` if a rule was given arguments that nothing takes.

    Args:
        rule: the class of the rule.
        base: the class whose constructor comes last.
        unknown: the arguments that nothing takes.
    """
    if unknown:
        known, first = _arguments(rule, base), next(iter(unknown))
        raise TypeError(
            f"Arguments of `{rule.__name__}` should be among {known}. Found"
            f" `{first}`{nearest(first, known)}"
        )


def _arguments(rule: type, base: type) -> list[str]:
    """Returns the names of a rule's arguments, with those that it passes on to ``base``."""
    found: dict[str, None] = {}
    for kind in rule.__mro__:
        if "__init__" not in vars(kind):
            continue
        every = inspect.signature(kind).parameters.values()
        first = not found
        for p in every:
            if p.kind is p.KEYWORD_ONLY or (first and p.kind is p.POSITIONAL_OR_KEYWORD):
                found[p.name] = None
        found.pop("hyperparameters", None)  # only subclasses give it
        if kind is base or not any(p.kind is p.VAR_KEYWORD for p in every):
            break
    return list(found)

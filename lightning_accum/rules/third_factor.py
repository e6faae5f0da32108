"""The bases of rules with a third factor: constants of the neuron, and its membrane potential."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import torch
from typing_extensions import Self

from lightning_accum._checks import check_finite, check_type, check_value, is_number
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.recorded_signals import check_states
from lightning_accum.engine.rule import Rule, fields_of
from lightning_accum.engine.rule_inputs import Recording
from lightning_accum.functional.surrogate_gradients import Surrogate, Triangular
from lightning_accum.observe.monitor import StateSource, check_source
from lightning_accum.sparse.eprop import Potential

_OMIT = "leave it out, and the rule takes the neuron's"


def of_neuron(attribute: str, needed: bool | str = False) -> Any:
    """Returns a field that is an attribute of the neuron when it is ``None``, and equal to it."""
    # If it is needed, or the hyperparameter named by `needed` is given, one of both has to have it.
    known = {"of_neuron": attribute, "needed": needed}
    return field(default=None, kw_only=True, metadata=known)


class ThirdFactorRule(Rule, kw_only=True):
    """Base of rules some of whose hyperparameters belong to the neuron."""

    graded = True

    def of_cell(self, name: str, cell: Cell) -> Self:
        """Returns the rule with the constants of the cell's neuron, which should not be others."""
        known = {
            each.name: each.metadata for each in fields_of(self) if "of_neuron" in each.metadata
        }
        given = {own: getattr(self, own) for own in known}
        for own, each in known.items():
            value, mine = getattr(cell.neuron, each["of_neuron"], None), given[own]
            should = f"`{each['of_neuron']}` of the neuron of cell `{name}`, {value}"
            check_value(mine is None or not _differ(value, mine), own, mine, should, _OMIT)
            if mine is None and (is_number(value) or isinstance(value, Surrogate)):
                given[own] = value
        for own, each in known.items():
            needed = each["needed"]
            if given[own] is None and needed and given.get(needed, True):
                raise ValueError(
                    f"Argument `{own}` should be given for cell `{name}`, in ms, because its"
                    f" neuron, a `{type(cell.neuron).__name__}`, has no `{each['of_neuron']}`."
                    f" Found None: give the rule `{own}=20.0`, or what the neuron computes with."
                )
        return dataclasses.replace(self, **given)


def _differ(value: Any, mine: Any) -> bool:
    """Returns whether the neuron has a constant, and another one."""
    if is_number(value) and is_number(mine):
        return not math.isclose(value, mine)
    return isinstance(value, Surrogate) and value != mine


class PotentialRule(ThirdFactorRule, kw_only=True):
    """Base of rules that read the membrane potential; EProp describes the arguments."""

    surrogate: Surrogate = of_neuron("surrogate")
    membrane: StateSource = "membrane"
    threshold: StateSource | float = "threshold"

    def check(self) -> None:
        """Raises an error if hyperparameters make no sense."""
        fits = self.surrogate is None or isinstance(self.surrogate, Surrogate)
        should = "a surrogate, such as `Triangular()`, or None"
        check_type(fits, "surrogate", self.surrogate, should)
        check_source("membrane", self.membrane)
        if is_number(self.threshold):
            check_finite(threshold=self.threshold)
        else:
            check_source("threshold", self.threshold)

    def of_cell(self, name: str, cell: Cell) -> Self:
        """Returns the rule with the neuron's constants, and its threshold if that is one."""
        found = super().of_cell(name, cell)
        constant: Any = getattr(cell.neuron, "constant_threshold", None)
        own = self.threshold
        should = f"that of the neuron of cell `{name}`, {constant}"
        differ = is_number(own) and _differ(constant, own)
        check_value(not differ, "threshold", own, should, _OMIT)
        kept = {**dict(cell.neuron.named_parameters()), **dict(cell.neuron.named_buffers())}
        value = kept.get(own) if isinstance(own, str) else None
        if value is not None and not value.ndim:  # an attribute may get a shape later
            raise ValueError(
                "Argument `threshold` should be a number if the neuron's is the same for all"
                f" samples. Found that `{own}` of the `{type(cell.neuron).__name__}` of cell"
                f" `{name}` is {value.item():g}: pass `threshold={value.item():g}` to the rule."
            )
        new: dict[str, Any] = {"surrogate": Triangular()} if found.surrogate is None else {}
        if is_number(constant) and own == "threshold":
            new["threshold"] = constant  # needs no memory, unlike that of every step and sample
        found = dataclasses.replace(found, **new) if new else found
        check_states(name, cell, found)
        return found

    def states(self) -> Mapping[str, StateSource]:
        """Records the membrane potential, and the threshold unless it is a number."""
        if is_number(self.threshold):
            return {"membrane": self.membrane}
        return {"membrane": self.membrane, "threshold": self.threshold}


def potential(recording: Recording, rule: PotentialRule) -> Potential:
    """Returns the potentials of every step, sample and neuron, which give the pseudo-derivative."""
    read: dict[str, Any] = {"threshold": rule.threshold}
    for name in {"membrane", "threshold"} & {*rule.states()}:
        read[name] = recording.activity(name)
        check_real(name, read[name].dtype)
    return Potential(**read, surrogate=rule.surrogate)


def check_real(name: str, dtype: torch.dtype) -> None:
    """Raises a ``TypeError`` if a state is complex."""
    if dtype.is_complex:
        raise TypeError(
            f"The {name} of a neuron should be real. Found {dtype}: give the rule `{name}=`, the"
            " path of another of its attributes or a callable that finds the real part or the"
            " magnitude in the neuron's output, such as `lambda out: out[1].real`."
        )

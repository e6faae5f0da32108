"""The bases of rules with a third factor: constants of the neuron, and its membrane potential."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from typing_extensions import Self

from lightning_accum._checks import check_finite, check_type, check_value, is_number
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.independent_trainer import field
from lightning_accum.engine.recording import Given, Recording
from lightning_accum.functional.spikes import Surrogate, Triangular
from lightning_accum.rules._signals import StateSource, check_source
from lightning_accum.rules.base import Rule
from lightning_accum.sparse.eprop import Potential

_OMIT = "leave it out, and the rule takes the neuron's"


class ThirdFactorRule(Rule, kw_only=True):
    """Base of rules some of whose hyperparameters belong to the neuron."""

    # A hyperparameter that names an attribute `of_neuron` is that of the neuron when it is None;
    # one that is given should equal it.

    _counts_values: ClassVar[bool] = True

    def required(self, h: Self) -> tuple[str, ...]:
        """Returns names of hyperparameters that a registered cell should have."""
        return ("tc_mem",) if "tc_mem" in self._fields else ()

    def check_cell(self, name: str, cell: Cell, h: Self) -> None:
        """Raises a ``ValueError`` if the neuron has another constant than the rule, or none."""
        super().check_cell(name, cell, h)
        kind = type(cell.neuron).__name__
        for own, attribute in self._of_neuron.items():
            value, mine = getattr(cell.neuron, attribute, None), getattr(h, own)
            should = f"`{attribute}` of the neuron of cell `{name}`, {value}"
            check_value(mine is None or not _differ(value, mine), own, mine, should, _OMIT)
        for own in self.required(h):
            if getattr(h, own) is None:
                raise ValueError(
                    f"Argument `{own}` should be given for cell `{name}`, in ms, because its"
                    f" neuron, a `{kind}`, has no `{self._of_neuron[own]}`. Found None: give the"
                    f" rule `{own}=20.0`, or what the neuron computes with."
                )

    def complete(self, cell: Cell, given: dict[str, Any]) -> dict[str, Any]:
        """Returns the hyperparameters of a new cell; those that are ``None`` are the neuron's."""
        found = dict(given)
        for own, attribute in self._of_neuron.items():
            value = getattr(cell.neuron, attribute, None)
            if found[own] is None and (is_number(value) or isinstance(value, Surrogate)):
                found[own] = value
        return found

    @property
    def _of_neuron(self) -> dict[str, str]:
        """By hyperparameter, the attribute of the neuron that it should equal."""
        return {name: each.of_neuron for name, each in self._fields.items() if each.of_neuron}


def _differ(value: Any, mine: Any) -> bool:
    """Returns whether the neuron has a constant, and another one."""
    if is_number(value) and is_number(mine):
        return not math.isclose(value, mine)
    return isinstance(value, Surrogate) and value != mine


class PotentialRule(ThirdFactorRule, kw_only=True):
    """Base of rules that read the membrane potential; EProp describes the arguments."""

    surrogate: Surrogate = field(default=None, of_neuron="surrogate")
    membrane: StateSource = "membrane"
    threshold: StateSource | float = "threshold"

    follows_error: ClassVar[bool] = True
    _states_in_terms: ClassVar[bool] = False
    _of_zero: ClassVar[Mapping[str, str]] = {
        "pseudo-derivative": "the pseudo-derivative of its neurons was 0 at every potential that"
        " was looked at: give the rule the neuron's own `threshold=`, and by `membrane=` its"
        " potential before the reset, or a wider `surrogate=`.",
        "feedback": "all weights of its feedback were 0, so that no error reached the neurons: if"
        " they are those of the readout, give it other first weights, or train it too; or take"
        " `RandomFeedback`.",
    }

    def check(self, h: Self) -> None:
        """Raises an error if hyperparameters make no sense."""
        super().check(h)
        fits = h.surrogate is None or isinstance(h.surrogate, Surrogate)
        check_type(fits, "surrogate", h.surrogate, "a surrogate, such as `Triangular()`, or None")
        check_source("membrane", h.membrane)
        if is_number(h.threshold):
            check_finite(threshold=h.threshold)
        else:
            check_source("threshold", h.threshold)

    def check_cell(self, name: str, cell: Cell, h: Self) -> None:
        """Raises a ``ValueError`` if the neuron has no states, or other constants than the rule."""
        super().check_cell(name, cell, h)
        constant: Any = getattr(cell.neuron, "constant_threshold", None)
        own = h.threshold
        should = f"that of the neuron of cell `{name}`, {constant}"
        differ = is_number(own) and _differ(constant, own)
        check_value(not differ, "threshold", own, should, _OMIT)
        kept = {**dict(cell.neuron.named_parameters()), **dict(cell.neuron.named_buffers())}
        found = kept.get(own) if isinstance(own, str) else None
        if found is not None and not found.ndim:  # an attribute may get a shape later
            raise ValueError(
                "Argument `threshold` should be a number if the neuron's is the same for all"
                f" samples. Found that `{own}` of the `{type(cell.neuron).__name__}` of cell"
                f" `{name}` is {found.item():g}: pass `threshold={found.item():g}` to the rule."
            )

    def complete(self, cell: Cell, given: dict[str, Any]) -> dict[str, Any]:
        """Returns the hyperparameters of a new cell; those that are ``None`` are the neuron's."""
        found = super().complete(cell, given)
        if found["surrogate"] is None:
            found["surrogate"] = Triangular()
        constant = getattr(cell.neuron, "constant_threshold", None)
        if is_number(constant) and found["threshold"] == "threshold":
            found["threshold"] = constant  # needs no memory, unlike that of every step and sample
        return found

    def states(self, h: Self) -> Mapping[str, StateSource]:
        """Records the membrane potential, and the threshold unless it is a number."""
        if is_number(h.threshold):
            return {"membrane": h.membrane}
        return {"membrane": h.membrane, "threshold": h.threshold}

    def _factors(self, inputs: Given, recording: Recording, h: Self) -> Mapping[str, Any]:
        """Returns, by name, the inputs and the pseudo-derivative."""
        derivative = potential(recording, h).derivative
        return {**super()._factors(inputs, recording, h), "pseudo-derivative": derivative}


def potential(recording: Recording, h: PotentialRule) -> Potential:
    """Returns the potentials of every step, sample and neuron, which give the pseudo-derivative."""
    membrane = recording.activity("membrane")
    check_real("membrane", membrane.dtype)
    if is_number(h.threshold):
        return Potential(membrane, h.threshold, h.surrogate)
    threshold = recording.activity("threshold")
    check_real("threshold", threshold.dtype)
    return Potential(membrane, threshold, h.surrogate)


def check_real(name: str, dtype: torch.dtype) -> None:
    """Raises a ``TypeError`` if a state is complex."""
    if dtype.is_complex:
        raise TypeError(
            f"The {name} of a neuron should be real. Found {dtype}: give the rule `{name}=`, the"
            " path of another of its attributes or a callable that finds the real part or the"
            " magnitude in the neuron's output, such as `lambda out: out[1].real`."
        )

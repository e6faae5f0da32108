"""The base of rules with a third factor, whose constants are those of the neuron."""

from __future__ import annotations

import math
from typing import Any, cast

from typing_extensions import Self

from lightning_accum._checks import is_number
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.state import Hyperparameters
from lightning_accum.functional.spikes import Surrogate
from lightning_accum.rules._recorded_signals import RecordedSignal
from lightning_accum.rules.base import Rule


class ThirdFactorRule(Rule, kw_only=True):
    """Base of rules some of whose hyperparameters belong to the neuron."""

    # A hyperparameter that names an attribute `of_neuron` is that of the neuron when it is None;
    # one that is given should equal it.

    def required(self, h: Self) -> tuple[str, ...]:
        """Returns names of hyperparameters that a registered cell should have."""
        return ("tc_mem",) if "tc_mem" in self._fields else ()

    def check_cell(self, name: str, cell: Cell, h: Self) -> None:
        """Raises a ``ValueError`` if the neuron has another constant than the rule, or none."""
        super().check_cell(name, cell, h)
        kind = type(cell.neuron).__name__
        for own, attribute in self._of_neuron.items():
            value, mine = getattr(cell.neuron, attribute, None), getattr(h, own)
            if mine is not None and _differ(value, mine):
                raise ValueError(
                    f"Argument `{own}` should be `{attribute}` of the neuron of cell `{name}`,"
                    f" {value}. Found `{own} = {mine}`: leave it out, and the rule takes the"
                    " neuron's."
                )
        for own in self.required(h):
            if getattr(h, own) is None:
                raise ValueError(
                    f"Argument `{own}` should be given for cell `{name}`, in ms, because its"
                    f" neuron, a `{kind}`, has no `{self._of_neuron[own]}`. Found None: give the"
                    f" rule `{own}=20.0`, or what the neuron computes with."
                )

    def complete(self, cell: Cell, h: Self) -> Self:
        """Returns the hyperparameters of a new cell; those that are ``None`` are the neuron's."""
        found = dict(vars(h))
        for own, attribute in self._of_neuron.items():
            value = getattr(cell.neuron, attribute, None)
            if found[own] is None and (is_number(value) or isinstance(value, Surrogate)):
                found[own] = value
        return cast("Self", Hyperparameters(**found))

    @property
    def _of_neuron(self) -> dict[str, str]:
        """By hyperparameter, the attribute of the neuron that it should equal."""
        return {name: each.of_neuron for name, each in self._fields.items() if each.of_neuron}

    def _recorded(self, cell: Cell, h: Self) -> list[RecordedSignal]:
        """Returns the signals to record; a real-valued input counts by its values."""
        pre, *others = super()._recorded(cell, h)
        return [pre._replace(spikes=pre.spikes and not h.graded_input), *others]


def _differ(value: Any, mine: Any) -> bool:
    """Returns whether the neuron has a constant, and another one."""
    if is_number(value) and is_number(mine):
        return not math.isclose(value, mine)
    return isinstance(value, Surrogate) and value != mine

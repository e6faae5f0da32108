"""Names for the tensors that pass from one window of a cell to the next."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from torch import Tensor

Scope: TypeAlias = Literal["sample", "neuron"]


class StateKey(NamedTuple):
    """Names one tensor that passes to the next window.

    Args:
        scope: ``"sample"`` for what ``clear()`` drops, ``"neuron"`` for what it keeps.
        kind: the quantity, such as ``"pre cumulative trace"``; it begins with the parameter's name
            if there is a value for each synapse.
        setting: a number on which the quantity depends, such as a trace's decay per step.
    """

    scope: Scope
    kind: str
    setting: float = 0.0

    def __str__(self) -> str:
        return f"{self.scope}:{self.kind}:{self.setting!r}"

    @classmethod
    def parse(cls, text: str) -> StateKey:
        """Returns the key whose ``str`` is the text."""
        scope, _, rest = text.partition(":")
        kind, _, setting = rest.rpartition(":")
        try:
            number = float(setting)
        except ValueError:
            kind = ""
        if scope not in ("sample", "neuron") or not kind:
            raise RuntimeError(
                "A name in a cell's state should be 'sample:<kind>:<setting>' or"
                f" 'neuron:<kind>:<setting>'. Found {text!r}: is this the state of another version?"
            )
        return cls("sample" if scope == "sample" else "neuron", kind, number)


@lru_cache(1024)
def trace_key(side: str, decay: float, mode: str) -> StateKey:
    """Returns the name of the trace of one side, ``"pre"`` or ``"post"``."""
    return StateKey("sample", f"{side} {mode} trace", decay)


Carried: TypeAlias = Mapping[StateKey, Tensor]  # the tensors that the previous window left, by name


def has_samples(state: Carried) -> bool:
    """Returns whether any of the tensors belongs to samples."""
    return any(key.scope == "sample" for key in state)


def of_neurons(state: Carried) -> dict[StateKey, Tensor]:
    """Returns the tensors that belong to neurons, and not to samples."""
    return {key: value for key, value in state.items() if key.scope == "neuron"}

"""The pseudo-derivative of recorded spikes by the recorded membrane potential."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from lightning_accum._checks import is_number
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.state import Hyperparameters
from lightning_accum.engine.recording import Recording
from lightning_accum.functional.surrogates import Surrogate, Triangular
from lightning_accum.rules._recorded import StateSource

_ALL_STEPS = slice(None)


def potentials(h: Hyperparameters) -> dict[str, StateSource]:
    """Returns the states that a pseudo-derivative needs.

    Args:
        h: hyperparameters, with ``membrane`` and ``threshold``.
    """
    states = {"membrane": h.membrane}
    if not is_number(h.threshold):
        states["threshold"] = h.threshold
    return states


def constant_threshold(h: Hyperparameters, neuron: nn.Module) -> Hyperparameters:
    """Returns hyperparameters with a number as the threshold, if the neuron's never changes.

    A number needs no memory, unlike the threshold of every step, sample and neuron.

    Args:
        h: hyperparameters, with ``threshold``.
        neuron: the neuron of the cell.
    """
    value = getattr(neuron, "constant_threshold", None)
    if not is_number(value) or h.threshold != "threshold":
        return h
    return Hyperparameters(**{**vars(h), "threshold": value})


def pseudo_derivative(
    recording: Recording, h: Hyperparameters, steps: slice = _ALL_STEPS
) -> Tensor:
    """Returns the pseudo-derivative of every step, sample and neuron.

    Args:
        recording: what was recorded, with the states of :func:`potentials`.
        h: hyperparameters, with ``surrogate`` and ``threshold``.
        steps: which steps.
    """
    membrane = recording.signals["membrane"].activity[steps]
    threshold = h.threshold
    if not is_number(threshold):
        threshold = recording.signals["threshold"].activity[steps]
    above = membrane.to(torch.promote_types(membrane.dtype, torch.float32)) - threshold
    derivative: Tensor = h.surrogate.derivative(above)
    return derivative


def with_surrogate(h: Hyperparameters) -> Hyperparameters:
    """Returns hyperparameters that have a surrogate, the triangle if it is ``None``.

    Args:
        h: hyperparameters, with ``surrogate``.
    """
    if h.surrogate is not None:
        return h
    return Hyperparameters(**{**vars(h), "surrogate": Triangular()})


def check_potentials(h: Hyperparameters) -> None:
    """Raises a ``TypeError`` if the surrogate is not a :class:`Surrogate`.

    Args:
        h: hyperparameters, with ``surrogate``.
    """
    if not (h.surrogate is None or isinstance(h.surrogate, Surrogate)):
        raise TypeError(
            "Argument `surrogate` should be a surrogate, such as `Triangular()`, or None. Found"
            f" `{type(h.surrogate).__name__}`."
        )


def check_states(rule: str, name: str, cell: Cell, states: Mapping[str, StateSource]) -> None:
    """Raises a ``ValueError`` if the neuron has no such state.

    Args:
        rule: the name of the rule.
        name: the name of the cell.
        cell: the cell.
        states: by name, where states are found.
    """
    neuron = cell.neuron
    for state, source in states.items():
        lacks = isinstance(source, str) and "." not in source and not hasattr(neuron, source)
        if lacks or getattr(neuron, "keep_states", True) is False:
            raise ValueError(
                f"The neuron of cell `{name}` should have a {state} for `{rule}` to record. Found"
                f" that a `{type(neuron).__name__}` keeps none under `{source}`: take a"
                " `lightning_accum.nn.SurrogateLIF` with `keep_states=True`, or give the rule"
                f" `{state}=`, the path of an attribute that the neuron has after each call or a"
                f" callable that finds it in the neuron's output, such as `lambda out: out[1]`."
            )

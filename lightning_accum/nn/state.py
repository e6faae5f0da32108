"""The state of a layer of neurons, and the result of one step.

Membrane potentials are relative to the reset potential: zero is reset.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class NeuronState(NamedTuple):
    """The state of a layer of neurons between two steps.

    Args:
        v: membrane potential, ``[B, N]``.
        hold: number of steps for which a neuron is still held at reset, ``[B, N]``.
        theta: rise of the threshold, ``[N]``, or a zero ``[]`` if the threshold does not adapt.
    """

    v: Tensor
    hold: Tensor
    theta: Tensor


class Step(NamedTuple):
    """The result of one step.

    Args:
        spikes: 0 or 1, ``[B, N]``.
        state: the state after the step.
    """

    spikes: Tensor
    state: NeuronState

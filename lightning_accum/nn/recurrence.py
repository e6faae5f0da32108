"""The parts of a recurrence of neurons: its state, one step of it, and its constants.

All membrane potentials and thresholds in it are relative to the reset potential: zero is reset.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from lightning_accum.nn.inhibition import Inhibition


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


class Recurrence(NamedTuple):
    """The constants of a recurrence.

    Args:
        decay: factor by which the distance of a membrane potential to rest shrinks in a step.
        rest: resting potential.
        threshold: threshold without its adaptation.
        period: refractory period, in steps.
        inhibition: lateral inhibition.
        adapts: whether the threshold adapts.
        decay_theta: factor by which the rise of the threshold shrinks in a step.
        theta_plus: rise of the threshold if all samples of the batch spike.
    """

    decay: float
    rest: float
    threshold: float
    period: int
    inhibition: Inhibition | None = None
    adapts: bool = False
    decay_theta: float = 1.0
    theta_plus: float = 0.0

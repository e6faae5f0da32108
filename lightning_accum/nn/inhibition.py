"""Lateral inhibition, by which the neurons of a layer compete in each time step."""

from __future__ import annotations

from typing import Protocol, final

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_integers


class Inhibition(Protocol):
    """Acts on a layer of neurons twice in each time step: before and after the spikes.

    All tensors are float, shape ``[B, N]``, and are changed in place. Membrane potentials are
    relative to the reset potential: zero is reset.
    """

    def select(self, excess: Tensor, spikes: Tensor) -> None:
        """Removes the spikes of neurons that lose the competition.

        Args:
            excess: membrane potential above threshold.
            spikes: 1 where a neuron reached its threshold, 0 elsewhere.
        """

    def suppress(self, spikes: Tensor, v: Tensor, hold: Tensor) -> None:
        """Applies the effect of the remaining spikes on the other neurons.

        Args:
            spikes: 1 where a neuron spiked, 0 elsewhere.
            v: membrane potential after the reset.
            hold: number of steps for which a neuron is still held at reset.
        """


@final
class WinnerTakeAll:
    """Lets at most one neuron of a sample spike in a step, and silences the others.

    The winner is the neuron that exceeds its threshold most. All others are reset and held at
    reset for the next ``steps`` steps. The refractory period of the winner does not change.

    Args:
        steps: number of steps for which the losers are held.

    Raises:
        ValueError: if ``steps`` is negative.

    Example:
        >>> import torch
        >>> from lightning_accum.nn import LIF
        >>> neurons = LIF(3, tc_mem=20.0, time_dim=0, inhibition=WinnerTakeAll(steps=1))
        >>> neurons(torch.tensor([[[1.5, 2.0, 0.0]], [[3.0, 0.0, 3.0]], [[3.0, 0.0, 2.0]]]))
        tensor([[[0., 1., 0.]],
        <BLANKLINE>
                [[0., 0., 0.]],
        <BLANKLINE>
                [[1., 0., 0.]]])
    """

    def __init__(self, steps: int) -> None:
        check_integers(steps=steps)
        if steps < 0:
            raise ValueError(
                "Argument `steps` should be a non-negative number of time steps. "
                f"Found `steps = {steps}`."
            )
        self.steps = steps

    def select(self, excess: Tensor, spikes: Tensor) -> None:
        """Keeps at most the spike of the neuron that exceeds its threshold most."""
        best, winner = excess.max(-1, keepdim=True)
        spikes.zero_().scatter_(-1, winner, (best >= 0).to(spikes.dtype))

    def suppress(self, spikes: Tensor, v: Tensor, hold: Tensor) -> None:
        """Resets the losers and holds them at reset."""
        fired = spikes.amax(-1, keepdim=True)
        losers = fired - spikes
        v.addcmul_(v, losers, value=-1)
        torch.maximum(hold, losers.mul_(self.steps), out=hold)

    def __repr__(self) -> str:
        return f"WinnerTakeAll(steps={self.steps})"


@final
class LateralInhibition:
    r"""Lowers the membrane potential of all other neurons with each spike.

    .. math::
        V_i \leftarrow V_i - g \sum_{j \ne i} s_j

    The potential may fall below rest; neurons that are held at reset stay there.

    Args:
        strength: the amount :math:`g` by which one spike lowers each other potential.

    Raises:
        ValueError: if ``strength`` is negative or not finite.

    Example:
        >>> import torch
        >>> from lightning_accum.nn import LIF
        >>> neurons = LIF(2, tc_mem=20.0, time_dim=0, inhibition=LateralInhibition(1.0))
        >>> neurons(torch.tensor([[[1.0, 0.0]], [[0.0, 1.5]], [[0.0, 1.5]]]))
        tensor([[[1., 0.]],
        <BLANKLINE>
                [[0., 0.]],
        <BLANKLINE>
                [[0., 1.]]])
    """

    def __init__(self, strength: float) -> None:
        check_finite(strength=strength)
        if strength < 0:
            raise ValueError(
                "Argument `strength` should be a non-negative potential. "
                f"Found `strength = {strength}`. Inhibition subtracts it."
            )
        self.strength = strength

    def select(self, excess: Tensor, spikes: Tensor) -> None:
        """Keeps all spikes: this inhibition acts from the next step on."""

    def suppress(self, spikes: Tensor, v: Tensor, hold: Tensor) -> None:
        """Lowers the potential of each neuron for the spikes of the others."""
        v.sub_((spikes.sum(-1, keepdim=True) - spikes).mul_(self.strength))

    def __repr__(self) -> str:
        return f"LateralInhibition(strength={self.strength})"

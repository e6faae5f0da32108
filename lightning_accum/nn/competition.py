"""Competition of the neurons of a layer: within each time step, or before neurons of any kind."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, final

import torch
from torch import Tensor, nn

from lightning_accum._checked_state import StateModule
from lightning_accum._checks import (
    check_finite,
    check_integers,
    check_module,
    check_value,
    warn_below_step,
)
from lightning_accum.functional.dtypes import at_least_float32
from lightning_accum.functional.traces import decay_factor
from lightning_accum.nn._arguments import LONGEST, check_times, layer_shape, steps_of


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
@dataclass(frozen=True)
class WinnerTakeAll:
    """Lets at most one neuron of a sample spike in a step, and silences the others.

    The winner is the neuron that exceeds its threshold most. All others are reset and held at
    reset for the next ``steps`` steps. The refractory period of the winner does not change.

    Args:
        steps: number of steps for which the losers are held.

    Raises:
        ValueError: if ``steps`` is negative, or more than neurons can count.

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

    steps: int

    def __post_init__(self) -> None:
        check_integers(steps=self.steps)
        should = f"a non-negative number of time steps, of at most {LONGEST}"
        check_value(0 <= self.steps <= LONGEST, "steps", self.steps, should)

    def select(self, excess: Tensor, spikes: Tensor) -> None:
        """Keeps at most the spike of the neuron that exceeds its threshold most."""
        best, winner = excess.max(-1, keepdim=True)
        spikes.zero_().scatter_(-1, winner, (best >= 0).to(spikes.dtype))

    def suppress(self, spikes: Tensor, v: Tensor, hold: Tensor) -> None:
        """Resets the losers and holds them at reset."""
        losers = spikes.amax(-1, keepdim=True) - spikes
        v.addcmul_(v, losers, value=-1)
        torch.maximum(hold, losers.mul_(self.steps), out=hold)


@final
@dataclass(frozen=True)
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

    strength: float

    def __post_init__(self) -> None:
        check_finite(strength=self.strength)
        should = "a non-negative potential, which inhibition subtracts"
        check_value(self.strength >= 0, "strength", self.strength, should)

    def select(self, excess: Tensor, spikes: Tensor) -> None:
        """Keeps all spikes: this inhibition acts from the next step on."""

    def suppress(self, spikes: Tensor, v: Tensor, hold: Tensor) -> None:
        """Lowers the potential of each neuron for the spikes of the others."""
        v.sub_((spikes.sum(-1, keepdim=True) - spikes).mul_(self.strength))


class WideTheta(StateModule):
    """A module whose ``theta`` does not become half precision, which loses small rises."""

    theta: Tensor

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        theta = self.theta
        super()._apply(fn, recurse)
        if self.theta.dtype in (torch.float16, torch.bfloat16):
            self.theta = theta.to(self.theta.device)
        return self


@final
class Competition(WideTheta):
    r"""Lets the currents of a layer compete before they reach its neurons, which may be any module.

    .. math::
        D_t &= \gamma D_{t-1} + (1 - \gamma)\, I_t, \qquad \gamma = e^{-\Delta t / \tau} \\
        w_t &= 1 \text{ for the neuron of the largest } D_t - \theta \text{, and 0 for others} \\
        \text{out}_t &= \mathrm{neuron}(w_t I_t) \\
        \theta &\leftarrow \theta + \theta_+ \left(\bar w_t - \bar{\bar w}_t\right)

    with :math:`\bar w_t` the mean over the batch, and :math:`\bar{\bar w}_t` also over neurons.
    Neurons that win more than their share tire, so that the others get their turn. They tire in
    training only, and in ``eval`` mode :math:`\theta` is not used either: the best neuron answers.
    A neuron that is not driven, :math:`D_t \le 0`, never wins. Gradients pass to the currents of
    winners, and not through the choice.

    The package's own neurons compete by their ``inhibition``; this is for those of other libraries.
    They are called as before, with whatever else they take, and what they return is returned, so
    that a cell takes this module as its neuron.

    :math:`\theta` is a buffer. With several processes, average it by
    :class:`~lightning_accum.callbacks.AverageBuffers`.

    Args:
        neuron: the module that the winners' currents are passed to.
        size: number of neurons, or the shape of the layer.
        winners: number of neurons that win in a step of a sample; less than ``size``, or all win.
        tc_drive: time constant :math:`\tau` of the mean current that decides, in ms.
        theta_plus: :math:`\theta_+`, how fast winners tire, in the unit of the current.
        dt: step, in ms.
        time_dim: ``None`` if each call is one step, ``[B, *size]``; 0 if it is a sequence,
            ``[T, B, *size]``.

    Raises:
        TypeError: if ``neuron`` is not a module.
        ValueError: if a number is out of range.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> neurons = Competition(nn.Threshold(1.0, 0.0), size=3)  # or of another library
        >>> neurons(torch.tensor([[2.0, 3.0, 1.0]]))
        tensor([[0., 3., 0.]])
        >>> neurons.theta
        tensor([-0.0333,  0.0667, -0.0333])
    """

    _shown = ("size", "winners", "tc_drive", "theta_plus", "dt", "time_dim")

    def __init__(
        self,
        neuron: nn.Module,
        size: int | Sequence[int],
        winners: int = 1,
        tc_drive: float = 10.0,
        theta_plus: float = 0.1,
        dt: float = 1.0,
        time_dim: Literal[0] | None = None,
    ) -> None:
        super().__init__()
        check_module(neuron=neuron)
        check_integers(winners=winners)
        check_times(0.0, dt, time_dim)
        check_finite(theta_plus=theta_plus)
        self.size = layer_shape(size)
        neurons = math.prod(self.size)
        self._sizes = (None, neurons)
        should = f"between 1 and the {neurons} neurons"
        check_value(1 <= winners <= neurons, "winners", winners, should)
        how = "pass 0 for neurons that do not tire"
        check_value(theta_plus >= 0, "theta_plus", theta_plus, "at least 0", how)
        if winners == neurons:
            warnings.warn(
                f"Argument `winners` should be less than the {winners} neurons, for any to lose."
                f" Found `winners = {winners}`, so that every neuron that is driven wins: pass"
                " fewer winners, or leave out the Competition.",
                UserWarning,
                stacklevel=2,
            )
        self.winners, self.tc_drive, self.theta_plus = winners, tc_drive, theta_plus
        self.dt, self.time_dim = dt, time_dim
        self.decay = decay_factor(tc_drive, dt, "tc_drive")
        warn_below_step(dt, type(self).__name__, tc_drive=tc_drive)
        self.neuron = neuron
        self.register_buffer("theta", torch.zeros(self.size))
        self.reset()

    def reset(self) -> None:
        """Forgets the mean current; not the state of the neuron, which may be the caller's."""
        self._state = {"drive": None}

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Passes on the currents of the winners.

        Args:
            x: input current, shape ``[B, *size]``, or ``[T, B, *size]`` with ``time_dim=0``.
            *args: what else the neuron takes, such as its state.
            **kwargs: likewise.

        Returns:
            What the neuron returns.

        Raises:
            ValueError: if the shape does not fit.
        """
        wins = self._compete(steps_of(x, self.size, self.time_dim))
        return self.neuron(x * wins.view(x.shape).to(x.dtype), *args, **kwargs)

    @torch.no_grad()
    def _compete(self, currents: Tensor) -> Tensor:
        """Returns 1 for each winner and 0 elsewhere, for currents ``[T, B, *size]``."""
        currents = currents.detach().flatten(2).to(at_least_float32(currents.dtype))
        shape, theta, wins = currents.shape[1:], self.theta.flatten(), torch.zeros_like(currents)
        (drive,) = self._kept(currents, shape) or (currents.new_zeros(shape),)
        for current, win in zip(currents, wins, strict=True):
            drive = torch.lerp(current, drive, self.decay)
            excited = drive - theta if self.training else drive
            best = excited.masked_fill(drive <= 0, -math.inf).topk(self.winners).indices
            win.scatter_(-1, best, (drive.gather(-1, best) > 0).to(win.dtype))
            if self.training and len(win):  # no samples have no mean
                share = win.mean(0)
                theta = theta + self.theta_plus * (share - share.mean()).to(theta.dtype)
        self.theta.copy_(theta.view(self.size))
        self._state = {"drive": drive}
        return wins

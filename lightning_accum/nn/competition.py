"""Competition before the neurons, which may be any module."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from lightning_accum._checks import check_finite, check_integers, check_module, warn_below_step
from lightning_accum._state import StateModule, check_that
from lightning_accum.functional.numbers import at_least_float32
from lightning_accum.nn._arguments import check_input, check_times, decay_in_step, layer_shape


@final
class Competition(StateModule):
    r"""Lets the currents of a layer compete before they reach its neurons, which may be any module.

    .. math::
        D_t &= \gamma D_{t-1} + (1 - \gamma)\, I_t, \qquad \gamma = e^{-\Delta t / \tau} \\
        w_t &= 1 \text{ for the neuron of the largest } D_t - \theta \text{, and 0 for others} \\
        \text{out}_t &= \mathrm{neuron}(w_t I_t) \\
        \theta &\leftarrow \theta + \theta_+ \left(\bar w_t - \bar{\bar w}_t\right)

    with :math:`\bar w_t` the mean over the batch, and :math:`\bar{\bar w}_t` also over neurons.
    Neurons that win more than their share tire, so that the others get their turn. They tire in
    training only, and in ``eval`` mode :math:`\theta` is not used either: the best neuron answers.
    A neuron that is not driven, :math:`D_t \le 0`, never wins.

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

    theta: Tensor

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
        if not 1 <= winners <= math.prod(self.size):
            raise ValueError(
                f"Argument `winners` should be between 1 and the {math.prod(self.size)} neurons."
                f" Found `winners = {winners}`."
            )
        if theta_plus < 0:
            raise ValueError(
                "Argument `theta_plus` should not be negative. Found `theta_plus ="
                f" {theta_plus}`: pass 0 for neurons that do not tire."
            )
        if winners == math.prod(self.size):
            warnings.warn(
                f"Argument `winners` should be less than the {winners} neurons, for any to lose."
                f" Found `winners = {winners}`, so that every neuron that is driven wins: pass"
                " fewer winners, or leave out the Competition.",
                UserWarning,
                stacklevel=2,
            )
        self.winners = winners
        self.tc_drive = tc_drive
        self.theta_plus = theta_plus
        self.dt = dt
        self.time_dim = time_dim
        self.decay = decay_in_step("tc_drive", tc_drive, dt)
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
        check_input(x, self.size, self.time_dim)
        steps = x.unsqueeze(0) if self.time_dim is None else x
        return self.neuron(x * self._compete(steps).view(x.shape).to(x.dtype), *args, **kwargs)

    @torch.no_grad()
    def _compete(self, currents: Tensor) -> Tensor:
        """Returns 1 for each winner and 0 elsewhere, for currents ``[T, B, *size]``."""
        currents = currents.detach().flatten(2).to(at_least_float32(currents.dtype))
        drive, theta = self._state["drive"], self.theta.flatten()
        if drive is None or drive.shape != currents.shape[1:]:  # other samples: from rest
            drive = currents.new_zeros(currents.shape[1:])
        wins = torch.zeros_like(currents)
        for current, win in zip(currents, wins, strict=True):
            drive = torch.lerp(current, drive.to(current), self.decay)
            excited = drive - theta if self.training else drive
            best = excited.masked_fill(drive <= 0, -math.inf).topk(self.winners).indices
            win.scatter_(-1, best, (drive.gather(-1, best) > 0).to(win.dtype))
            if self.training and len(win):  # no samples have no mean
                share = win.mean(0)
                theta = theta + self.theta_plus * (share - share.mean()).to(theta.dtype)
        self.theta.copy_(theta.view(self.size))
        self._state = {"drive": drive}
        return wins

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not the mean current of such a layer."""
        super().check_extra_state(state)
        for key, value in state.items():
            if value is not None:
                number = math.prod(self.size)
                fits = value.is_floating_point() and value.ndim == 2 and value.shape[1] == number
                should = f"floating-point numbers of shape [B, {number}] as `{key}`"
                check_that(fits, f"`{type(self).__name__}`", should, value)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Competition:
        """Moves the module; ``theta`` does not become half precision, which loses small rises."""
        theta = self.theta
        super()._apply(fn, recurse)
        if self.theta.dtype in (torch.float16, torch.bfloat16):
            self.theta = theta.to(self.theta.device)
        return self

    def extra_repr(self) -> str:
        """Returns the settings shown in the module's representation."""
        return (
            f"size={self.size}, winners={self.winners}, tc_drive={self.tc_drive},"
            f" theta_plus={self.theta_plus}, dt={self.dt}, time_dim={self.time_dim}"
        )

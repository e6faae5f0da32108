"""A connection in which each synapse has a delay."""

from __future__ import annotations

import math
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from lightning_accum._state import StateModule, check_that
from lightning_accum.functional.numbers import as_numbers
from lightning_accum.nn._arguments import check_input, check_sizes, check_times, delays_of
from lightning_accum.updates import Updatable


@final
class DelayedLinear(Updatable, StateModule):
    r"""Transmits each input after the delay of its synapse.

    .. math:: y_o(t) = \sum_i w_{oi}\, x_i(t - d_{oi})

    Delays are rounded to steps; outside :math:`[0, d_{\max}]` they count as the nearest bound. Past
    inputs are kept from call to call until :meth:`reset`; a batch of another size starts with none.
    Gradients pass within a call, to the weights and the input. A call costs a matrix product for
    each step from 0 to :math:`d_{\max}`. :class:`~lightning_accum.rules.DelayAdjustedSTDP` and its
    kernel form train the weights or the delays; other rules, which ignore delays, reject it.

    Args:
        in_features: size of the input.
        out_features: size of the output.
        max_delay: longest delay :math:`d_{\max}`, in ms: 0, or more than half a step.
        delay: delays :math:`d_{oi}` in ms to begin with, a number or ``[out, in]``; drawn evenly
            from 0 to ``max_delay`` when ``None``. The parameter ``delay`` does not require grad.
        dt: length of a time step, in ms.
        time_dim: ``None`` for one step per call, 0 for a sequence with time first.

    Example:
        >>> import torch
        >>> connection = DelayedLinear(2, 1, 5.0, torch.tensor([[1.0, 3.0]]), time_dim=0)
        >>> spikes = torch.zeros(5, 1, 2)
        >>> spikes[0] = 1.0  # both at once
        >>> (connection(spikes) != 0).flatten().tolist()
        [False, True, False, True, False]
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        max_delay: float,
        delay: float | Tensor | None = None,
        dt: float = 1.0,
        time_dim: Literal[0] | None = None,
    ) -> None:
        super().__init__()
        check_sizes(in_features=in_features, out_features=out_features)
        check_times(0.0, dt, time_dim)
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.kaiming_uniform_(self.weight, math.sqrt(5))  # as torch.nn.Linear
        delay = delays_of(self.weight, delay, max_delay, dt)
        self.delay = nn.Parameter(delay, requires_grad=False)
        self.max_delay = max_delay
        self.dt = dt
        self.time_dim = time_dim
        self._longest = round(max_delay / dt)
        self.reset()

    def reset(self) -> None:
        """Forgets past inputs: nothing is on its way."""
        self._state = {"past": None}

    def in_steps(self, delay: Tensor) -> Tensor:
        """Returns the steps to which delays in ms are rounded."""
        return (delay / self.dt).round().clamp(0, self._longest)

    def forward(self, x: Tensor) -> Tensor:
        """Returns weighted sums ``[..., out_features]`` of what arrives.

        Args:
            x: input of any dtype, e.g. boolean spikes, shape ``[B, in_features]``, or
                ``[T, B, in_features]`` with ``time_dim=0``.
        """
        check_input(x, self.weight.shape[1:], self.time_dim)
        if not x.is_floating_point() and not x.is_complex():
            x = as_numbers(x, self.weight.dtype)
        now = x if self.time_dim == 0 else x.unsqueeze(0)
        past, longest, (steps, batch, size) = self._state["past"], self._longest, now.shape
        if past is None or past.shape[1] != batch:
            past = now.new_zeros(longest, batch, size)
        line = torch.cat((past.to(now), now))
        # For each delay, from the longest: the sequence that much earlier, and its weights.
        inputs = line.unfold(0, steps, 1).movedim(-1, 1).flatten(1, 2)
        delays = torch.arange(longest, -1, -1, device=x.device)[:, None, None]
        late = self.in_steps(self.delay)
        weights = torch.where(late == delays, self.weight, 0.0).mT
        out: Tensor = torch.addbmm(weights.new_zeros(()), inputs, weights)
        self._state = {"past": line[steps:].detach().clone()}
        return out.unflatten(0, (steps, batch)) if self.time_dim == 0 else out

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if these are not the past inputs of such a connection."""
        super().check_extra_state(state)
        past, ends = state["past"], (self._longest, self.weight.shape[1])
        if past is not None:
            fits = past.is_floating_point() and past.ndim == 3 and past.shape[::2] == ends
            should = "floating-point numbers of shape [{}, B, {}] as `past`".format(*ends)
            check_that(fits, "`DelayedLinear`", should, past)

    def extra_repr(self) -> str:
        """Returns the settings shown in the module's representation."""
        outputs, inputs = self.weight.shape
        return f"{inputs}, {outputs}, {self.max_delay}, dt={self.dt}, time_dim={self.time_dim}"

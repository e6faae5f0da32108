"""A layer whose spikes come back to it through a connection, after a delay."""

from __future__ import annotations

from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from lightning_accum._checks import check_integers, check_module, check_tensors
from lightning_accum._state import StateModule, check_that


@final
class Recurrent(StateModule):
    r"""Feeds the output of neurons back to them through a connection.

    .. math:: z(t) = \text{neuron}\bigl(x(t) + \text{connection}(z(t - d))\bigr)

    A sequence is computed in blocks of :math:`d` steps, because nothing within a block depends on
    the rest of it. The connection is called with what arrives, so that rules learn its weights as
    those of any other: ``Cell(layer.connection, layer.neuron)``. Synapses of several delays are
    several connections. Past output is kept from call to call until :meth:`reset`; a batch of
    another size starts with none. Gradients pass within a call.

    Args:
        connection: takes spikes ``[B, N]``, with time first if ``time_dim=0``, and returns a
            current of their shape; a :class:`SparseLinear`, for example.
        neuron: takes a current, and returns spikes of its shape.
        delay: the delay :math:`d`, in whole steps, at least 1.
        time_dim: ``None`` for one step per call, 0 for a sequence with time first; that of the
            neuron.

    Raises:
        ValueError: if the delay is less than a step, or ``time_dim`` is not that of the neuron.

    Example:
        >>> import torch
        >>> from lightning_accum.nn import LIF, SparseLinear
        >>> synapses = SparseLinear(50, 50, density=0.1, bias=False)
        >>> layer = Recurrent(synapses, LIF(50, time_dim=0), delay=15, time_dim=0)
        >>> layer(torch.rand(100, 1, 50)).shape
        torch.Size([100, 1, 50])
    """

    def __init__(
        self,
        connection: nn.Module,
        neuron: nn.Module,
        delay: int = 1,
        time_dim: Literal[0] | None = None,
    ) -> None:
        super().__init__()
        check_module(connection=connection)
        check_module(neuron=neuron)
        check_integers(delay=delay)
        if delay < 1:
            raise ValueError(
                "Argument `delay` should be at least one step, because a spike cannot act on the"
                f" step in which it happens. Found `delay = {delay}`."
            )
        own = getattr(neuron, "time_dim", time_dim)
        if own != time_dim or time_dim not in (None, 0):
            raise ValueError(
                f"Argument `time_dim` should be that of the neuron, `{own}`. Found"
                f" `time_dim = {time_dim}`: pass `time_dim=0` to both, or to none of them."
            )
        self.connection = connection
        self.neuron = neuron
        self.delay = delay
        self.time_dim = time_dim
        self.reset()

    def reset(self) -> None:
        """Forgets past output, and the state of the neuron if it has one."""
        self._state = {"past": None}
        reset = getattr(self.neuron, "reset", None)
        if callable(reset):
            reset()

    def forward(self, x: Tensor) -> Tensor:
        """Returns the spikes ``[B, N]``, or ``[T, B, N]`` with ``time_dim=0``.

        Args:
            x: the current from elsewhere, of their shape.
        """
        check_tensors(x=x)
        least = 3 if self.time_dim == 0 else 2
        if x.ndim < least:
            shape = "[T, B, N]" if self.time_dim == 0 else "[B, N]"
            raise ValueError(
                f"Argument `x` should have shape {shape}, as `time_dim = {self.time_dim}`. Found"
                f" shape {list(x.shape)}."
            )
        now = x if self.time_dim == 0 else x.unsqueeze(0)
        line = self._state["past"]
        if line is None or line.shape[1:] != now.shape[1:]:
            line = now.new_zeros(self.delay, *now.shape[1:])
        found = [now[:0]]
        for part in now.split(self.delay) if len(now) else ():
            spikes = self._block(part, line[: len(part)])
            line = torch.cat((line[len(part) :].to(spikes.dtype), spikes))
            found.append(spikes)
        self._state = {"past": line.detach().clone()}
        out = torch.cat([each.to(found[-1].dtype) for each in found])
        return out if self.time_dim == 0 else out[0]

    def _block(self, current: Tensor, arriving: Tensor) -> Tensor:
        """Returns the spikes of a few steps, and what arrives in them."""
        if self.time_dim == 0:
            spikes: Tensor = self.neuron(current + self.connection(arriving))
            return spikes
        spikes = self.neuron(current[0] + self.connection(arriving[0]))
        return spikes.unsqueeze(0)

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not the past output of such a layer."""
        super().check_extra_state(state)
        past = state["past"]
        if past is not None:
            fits = past.ndim > 2 and len(past) == self.delay
            should = f"{self.delay} steps [{self.delay}, B, N] as `past`"
            check_that(fits, "`Recurrent`", should, past)

    def extra_repr(self) -> str:
        """Returns the settings shown in the module's representation."""
        return f"delay={self.delay}, time_dim={self.time_dim}"

"""Connections: all-to-all, among the neurons of a layer, and with a delay for each synapse."""

import math
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_accum._checked_state import StateModule
from lightning_accum._checks import check_finite, check_tensors, check_value
from lightning_accum.functional.dtypes import as_numbers
from lightning_accum.nn._arguments import check_sizes, check_times, steps_of
from lightning_accum.sparse.event_sums import EventProduct, event_matmul
from lightning_accum.sparse.events import Events, events_pay
from lightning_accum.updates import Updatable

_LONGEST_DELAY = 1 << 16  # steps


@final
class Linear(Updatable, nn.Linear):
    r"""A ``torch.nn.Linear`` that is `Updatable` and takes spikes of any dtype.

    .. math::
        y = x W^\top + b

    The input may have any leading dimensions: a sequence ``[T, B, in_features]`` is one product.
    The state dict has the keys of ``torch.nn.Linear``.

    Args:
        in_features: size of the input.
        out_features: size of the output.
        bias: whether to add a learned bias.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Example:
        >>> import torch
        >>> connection = Linear(64, 10, bias=False)
        >>> spikes = torch.rand(100, 32, 64) < 0.1
        >>> connection(spikes).shape
        torch.Size([100, 32, 10])
    """

    def forward(self, x: Tensor, later: bool = False) -> Any:
        """Transmits a batch.

        If there are few boolean spikes, on a CPU, only the weights of the spikes are summed.

        Args:
            x: input of any dtype, e.g. boolean spikes, shape ``[..., in_features]``.
            later: whether the sums over spikes may be left to neurons of this package, which are
                called with what is returned.

        Returns:
            Weighted sums, shape ``[..., out_features]``.
        """
        if not isinstance(x, Tensor):
            check_tensors(x=x)
        if x.dtype == torch.bool and x.shape[-1:] == self.weight.shape[1:]:
            raster = x.reshape(-1, self.in_features)
            if events_pay(raster, self.weight):
                shape, events = torch.Size((*x.shape[:-1], self.out_features)), Events(raster)
                if later:
                    return EventProduct(events, self.weight, self.bias, shape)
                return event_matmul(events, self.weight.t(), self.bias).view(shape)
        if not x.is_floating_point() and not x.is_complex():
            x = as_numbers(x, self.weight.dtype)
        return F.linear(x, self.weight, self.bias)


@final
class RecurrentLinear(Updatable, nn.Linear):
    r"""Weights among the neurons of one layer, :math:`R\, z(t - \Delta t)`.

    The neurons multiply by them step by step. They call the module once for each input, so that
    monitors see the spikes of the step before and rules learn the weights, as those of any other
    connection: ``CellSpec("lif.recurrent", "lif")``.

    Args:
        size: number of neurons.

    Raises:
        ValueError: if the size is negative.

    Example:
        >>> import torch
        >>> RecurrentLinear(3)(torch.zeros(1, 3)).shape
        torch.Size([1, 3])
    """

    def __init__(self, size: int) -> None:
        check_sizes(size=size)
        super().__init__(size, size, bias=False)

    def forward(self, spikes: Tensor, computed: bool = False) -> Tensor:
        """Returns the current that spikes make, unless the neurons have computed it.

        Args:
            spikes: ``[..., N]``, of the step before.
            computed: whether the neurons have computed the product; the spikes are returned then.
        """
        return spikes if computed else super().forward(spikes)


@final
class DelayedLinear(Updatable, StateModule):
    r"""Transmits each input after the delay of its synapse.

    .. math:: y_o(t) = \sum_i w_{oi}\, x_i(t - d_{oi})

    Delays are rounded to steps; outside :math:`[0, d_{\max}]` they count as the nearest bound. Past
    inputs are kept from call to call until :meth:`reset`; a batch of another size starts with none.
    Their graph is kept too, until :meth:`reset`, :meth:`detach` or a backward pass, which frees it:
    gradients pass to the weights and the inputs. A call costs a matrix product for each step from 0
    to :math:`d_{\max}`. :class:`~lightning_accum.rules.DelayAdjustedSTDP` and its kernel form train
    the weights or the delays; other rules, which ignore delays, reject it.

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
        self.in_features, self.out_features = in_features, out_features
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        nn.init.kaiming_uniform_(self.weight, math.sqrt(5))  # as torch.nn.Linear
        delay = _delays_of(self.weight, delay, max_delay, dt)
        self.delay = nn.Parameter(delay, requires_grad=False)
        self.max_delay, self.dt, self.time_dim = max_delay, dt, time_dim
        self._longest = round(max_delay / dt)
        self._sizes = (self._longest, None, in_features)
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
        now = steps_of(x, self.weight.shape[1:], self.time_dim)
        if not x.is_floating_point() and not x.is_complex():
            now = as_numbers(now, self.weight.dtype)
        longest, (steps, batch, size) = self._longest, now.shape
        shape = (longest, batch, size)
        (past,) = self._kept(now, shape) or (now.new_zeros(shape),)
        line = torch.cat((past, now))
        # For each delay, from the longest: the sequence that much earlier, and its weights.
        inputs = line.unfold(0, steps, 1).movedim(-1, 1).flatten(1, 2)
        delays = torch.arange(longest, -1, -1, device=x.device)[:, None, None]
        weights = torch.where(self.in_steps(self.delay) == delays, self.weight, 0.0).mT
        out: Tensor = torch.addbmm(weights.new_zeros(()), inputs, weights)
        out = self._keep(out, past=line[steps:].clone() if longest else past)
        return out.unflatten(0, (steps, batch)) if self.time_dim == 0 else out

    def extra_repr(self) -> str:
        """Returns the settings shown in the module's representation."""
        sizes = f"{self.in_features}, {self.out_features}"
        return f"{sizes}, {self.max_delay}, dt={self.dt}, time_dim={self.time_dim}"


def _delays_of(weight: Tensor, delay: float | Tensor | None, max_delay: float, dt: float) -> Tensor:
    """Returns delays in ms for each weight, after a check; drawn if ``delay`` is ``None``."""
    check_finite(max_delay=max_delay)
    should = f"from 0 to {_LONGEST_DELAY} steps of `dt = {dt}`, in ms"
    check_value(0 <= max_delay <= _LONGEST_DELAY * dt, "max_delay", max_delay, should)
    should = f"0, or more than half a step of `dt = {dt}`, in ms"
    how = "every delay is rounded to 0, so give it in ms, not in seconds, or shorten `dt`"
    check_value(not max_delay or round(max_delay / dt) > 0, "max_delay", max_delay, should, how)
    if delay is None:
        return max_delay * torch.rand_like(weight)
    if not isinstance(delay, Tensor):
        check_finite(delay=delay)
        delay = torch.tensor(delay, device=weight.device).expand_as(weight)
    if delay.shape != weight.shape or not ((delay >= 0) & (delay <= max_delay)).all():
        raise ValueError(
            f"Argument `delay` should be a number or a tensor of shape {list(weight.shape)}, from 0"
            f" to `max_delay = {max_delay}`, in ms. Found shape {list(delay.shape)}, with"
            f" {delay.flatten()[:4].tolist()}."
        )
    return delay.detach().to(weight, copy=True)


def step_of_delays(
    connection: nn.Module | None, name: str, then: Tensor, now: Tensor
) -> float | None:
    """Returns the step of a connection, in ms, if it rounds all delays now as it did then."""
    # `None` if they are not delays. Waits for the device if they are.
    if not isinstance(connection, DelayedLinear) or name != "delay":
        return None
    same = torch.equal(connection.in_steps(then), connection.in_steps(now))
    return float(connection.dt) if same else None

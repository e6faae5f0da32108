"""A leaky readout, which integrates and does not spike."""

from collections.abc import Sequence
from typing import Any, Literal, final

import torch
from torch import Tensor

from lightning_accum._checked_state import StateModule
from lightning_accum.functional.dtypes import at_least_float32
from lightning_accum.functional.traces import decay_factor, reverse_trace, trace
from lightning_accum.nn._arguments import check_times, layer_shape, steps_of


@final
class LeakyIntegrator(StateModule):
    r"""Integrates an input current, without spikes: the readout of a spiking network.

    .. math:: y(t) = \kappa\, y(t - \Delta t) + I(t), \qquad \kappa = e^{-\Delta t / \tau}

    The state is kept from call to call until :meth:`reset`; a batch of another size starts at zero.
    Its graph is kept too, until :meth:`reset`, :meth:`detach` or a backward pass, which frees it.

    Args:
        size: number of outputs, or the shape of the layer.
        tc_mem: time constant :math:`\tau`, in ms.
        dt: length of a time step :math:`\Delta t`, in ms.
        time_dim: ``None`` for one step per call, 0 for a sequence with time first.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> import torch
        >>> readout = LeakyIntegrator(1, tc_mem=20.0, time_dim=0)
        >>> readout(torch.tensor([[[1.0]], [[0.0]], [[1.0]]])).flatten()
        tensor([1.0000, 0.9512, 1.9048])
    """

    _shown = ("size", "tc_mem", "dt", "time_dim")

    def __init__(
        self,
        size: int | Sequence[int],
        tc_mem: float = 20.0,
        dt: float = 1.0,
        time_dim: Literal[0] | None = None,
    ) -> None:
        super().__init__()
        check_times(0.0, dt, time_dim)
        self.size = layer_shape(size)
        self._sizes = (None, *self.size)
        self.tc_mem, self.dt, self.time_dim = tc_mem, dt, time_dim
        self.decay = decay_factor(tc_mem, dt, "tc_mem")
        self.reset()

    def reset(self) -> None:
        """Forgets what was integrated: the next call starts at zero."""
        self._state = {"y": None}

    def forward(self, x: Tensor) -> Tensor:
        """Integrates an input current.

        Args:
            x: input current, shape ``[B, *size]``, or ``[T, B, *size]`` with ``time_dim=0``.

        Returns:
            The integrated current, in the shape of ``x``, in float32 or wider.

        Raises:
            ValueError: if the shape does not fit.
        """
        current = steps_of(x, self.size, self.time_dim).to(at_least_float32(x.dtype))
        if not len(current):
            return current.clone()
        (before,) = self._kept(current, current.shape[1:]) or (None,)
        y: Tensor = _Integral.apply(current, before, self.decay)  # type: ignore[no-untyped-call]
        y = self._keep(y, y=y[-1].clone())
        return y if self.time_dim == 0 else y[0]


class _Integral(torch.autograd.Function):
    """An exponential trace forward, its adjoint backward."""

    @staticmethod
    def forward(current: Tensor, before: Tensor | None, decay: float) -> Tensor:
        return trace(current, decay, initial=before)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.decay = inputs[2]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        back = reverse_trace(grad, ctx.decay)
        return back, ctx.decay * back[0] if ctx.needs_input_grad[1] else None, None

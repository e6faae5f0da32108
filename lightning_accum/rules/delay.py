"""STDP on spike-time differences that a learned delay of each synapse shifts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from torch import Tensor, nn

from lightning_accum._checks import check_strings
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.state import Hyperparameters
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.engine.window import Window
from lightning_accum.functional.kernels import ExponentialKernel
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.rules._spike_pairs import SpikePairs, Synapses
from lightning_accum.rules.base import Rule
from lightning_accum.rules.kernel import Kernel, check_kernel


class DelayRule(Rule):
    """Base of rules on spike-time differences that delays shift.

    Args:
        hyperparameters: the rule's own hyperparameters, by name.
        delay: name of the connection's delays, ``[out, in]`` in ms.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        **options: options of :class:`~lightning_accum.rules.base.Rule`.
    """

    def __init__(
        self,
        hyperparameters: dict[str, Any],
        delay: str = "delay",
        dt: float = 1.0,
        batch_reduction: ReductionFn | str = "mean",
        **options: Any,
    ) -> None:
        every = {**hyperparameters, "delay": delay}
        super().__init__(every, dt=dt, batch_reduction=batch_reduction, **options)

    def check(self, h: Hyperparameters) -> None:
        """Raises an error if hyperparameters make no sense."""
        super().check(h)
        check_strings(delay=h.delay)

    def check_cell(self, name: str, cell: Cell, h: Hyperparameters) -> None:
        """Raises a ``ValueError`` if the connection has no delays of the parameter's shape."""
        super().check_cell(name, cell, h)
        delay = getattr(cell.connection, h.delay, None)
        for param in h.params:
            weight = getattr(cell.connection, param, None)
            if isinstance(weight, Tensor) and (
                not isinstance(delay, Tensor) or delay.shape != weight.shape
            ):
                found = list(delay.shape) if isinstance(delay, Tensor) else type(delay).__name__
                raise ValueError(
                    f"Argument `delay` should name delays of the shape of parameter `{param}` of"
                    f" cell `{name}`, {list(weight.shape)}. Found `delay = {h.delay!r}`, {found}:"
                    f" give the {type(cell.connection).__name__} such a parameter or buffer, in ms."
                )

    def reads(self, h: Hyperparameters) -> tuple[str, ...]:
        """Returns the name of the delays."""
        return (h.delay,)

    def kernel(self, h: Hyperparameters) -> Kernel:
        """Returns the function that gives the change for time differences."""
        kernel: Kernel = h.kernel
        return kernel

    def _vjp_kind(self, module: nn.Module, name: str) -> type[WeightVJP]:
        """Returns the outer product: weights and delays have an entry for each synapse."""
        return Synapses

    def terms(self, window: Window, h: Hyperparameters) -> Sequence[SpikePairs]:
        """Returns the kernel of every nearest pair."""
        delay = window.tensors[h.delay]
        return (SpikePairs(self.kernel(h), window.post, window.pre, delay),)


@final
class DelayAdjustedSTDP(DelayRule):
    r"""Pair STDP on nearest spikes, where each synapse's delay shifts the time difference.

    .. math::
        \Delta w_{oi} = \sum_{t:\, s_o(t) \lor s_i(t)} \begin{cases}
            \eta_+\, e^{-t_\Delta / \tau_+} & t_\Delta \ge 0 \\
            \eta_-\, e^{\,t_\Delta / \tau_-} & t_\Delta < 0
        \end{cases}
        \qquad t_\Delta = t_o - t_i - d_{oi}

    with :math:`t_o` and :math:`t_i` the times of the latest spikes up to :math:`t`, the step of
    either neuron's spike. A presynaptic spike counts from its arrival: if it arrives before the
    postsynaptic spike (:math:`t_\Delta \ge 0`) the weight changes by :math:`\eta_+`, otherwise by
    :math:`\eta_-`. With ``params=["delay"]`` the delays learn; a positive :math:`\eta_+` and a
    negative :math:`\eta_-` then bring the arrival and the postsynaptic spike together.

    Args:
        lr_pos: rate :math:`\eta_+` where the presynaptic spike arrives first.
        lr_neg: rate :math:`\eta_-` where the postsynaptic spike comes first.
        tc_pos: time constant :math:`\tau_+`, in ms.
        tc_neg: time constant :math:`\tau_-`, in ms.
        delay: name of the connection's delays, a parameter or buffer ``[out, in]`` in ms.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        **options: ``time_dim``, ``params``, ``carry`` and ``picker`` of
            :class:`~lightning_accum.rules.base.Rule`.

    Raises:
        ValueError: if the connection has no such delays, or a time constant is not positive.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from lightning_accum import DelayAdjustedSTDP, Cell
        >>> fc = nn.Linear(1, 1, bias=False)
        >>> fc.delay = nn.Parameter(torch.tensor([[3.0]]), requires_grad=False)
        >>> rule = DelayAdjustedSTDP(lr_pos=1.0, lr_neg=-1.0, params=["delay"])
        >>> unit = rule.register_cell("enc", Cell(fc, nn.Identity()))
        >>> for pre, post in ((1.0, 0.0), (0.0, 1.0)):  # the answer, 1 ms after the spike
        ...     _ = unit.cell.connection(torch.tensor([[pre]]))
        ...     _ = unit.cell.neuron(torch.tensor([[post]]))
        >>> rule()
        >>> rule.update()
        >>> fc.delay.data  # it arrived 2 ms after the answer: shorter, by exp(-2 / 20)
        tensor([[2.0952]])

    Source:
        Nadafian & Ganjtabesh 2024, "Bioplausible unsupervised delay learning for extracting
        spatiotemporal features in spiking neural networks", doi:10.1162/neco_a_01674.
    """

    def __init__(
        self,
        lr_pos: float,
        lr_neg: float,
        tc_pos: float = 20.0,
        tc_neg: float = 20.0,
        delay: str = "delay",
        dt: float = 1.0,
        batch_reduction: ReductionFn | str = "mean",
        **options: Any,
    ) -> None:
        rates = {"lr_pos": lr_pos, "lr_neg": lr_neg, "tc_pos": tc_pos, "tc_neg": tc_neg}
        super().__init__(rates, delay, dt, batch_reduction, **options)

    def kernel(self, h: Hyperparameters) -> Kernel:
        """Returns one exponential for each order of the two spikes."""
        return ExponentialKernel(h.lr_pos, h.lr_neg, tc_post=h.tc_neg, tc_pre=h.tc_pos)


@final
class DelayAdjustedKernelSTDP(DelayRule):
    r"""Any kernel of the nearest spikes' time difference, shifted by each synapse's delay.

    .. math::
        \Delta w_{oi} = \sum_{t:\, s_o(t) \lor s_i(t)} K\left(t_o - t_i - d_{oi}\right)

    as :class:`DelayAdjustedSTDP`, with any kernel in place of two exponentials.

    Args:
        kernel: as for :class:`~lightning_accum.KernelSTDP`.
        delay: name of the connection's delays, a parameter or buffer ``[out, in]`` in ms.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        **options: ``time_dim``, ``params``, ``carry`` and ``picker`` of
            :class:`~lightning_accum.rules.base.Rule`.

    Raises:
        TypeError: if the kernel is not callable.
        ValueError: if the connection has no such delays.

    Example:
        >>> from lightning_accum import DelayAdjustedKernelSTDP
        >>> from lightning_accum.functional import GaussianKernel
        >>> rule = DelayAdjustedKernelSTDP(GaussianKernel(0.1, width=5.0), params=["weight"])
    """

    def __init__(
        self,
        kernel: Kernel,
        delay: str = "delay",
        dt: float = 1.0,
        batch_reduction: ReductionFn | str = "mean",
        **options: Any,
    ) -> None:
        super().__init__({"kernel": kernel}, delay, dt, batch_reduction, **options)

    def check(self, h: Hyperparameters) -> None:
        """Raises a ``TypeError`` if the kernel is not callable."""
        super().check(h)
        check_kernel(h.kernel)

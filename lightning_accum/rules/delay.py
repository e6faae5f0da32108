"""STDP on spike-time differences that a learned delay of each synapse shifts."""

from __future__ import annotations

from typing_extensions import Self

from lightning_accum.functional.kernels import ExponentialKernel, Kernel
from lightning_accum.rules.delay_rule import DelayRule


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
        time_dim: as for :class:`~lightning_accum.rules.base.Rule`, which describes ``params``,
            ``carry`` and ``picker`` too.

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

    lr_pos: float
    lr_neg: float
    tc_pos: float = 20.0
    tc_neg: float = 20.0

    def kernel_of(self, h: Self) -> Kernel:
        """Returns one exponential for each order of the two spikes."""
        return ExponentialKernel(h.lr_pos, h.lr_neg, tc_post=h.tc_neg, tc_pre=h.tc_pos)

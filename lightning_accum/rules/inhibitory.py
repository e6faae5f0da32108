"""Spike-timing-dependent plasticity of inhibitory synapses."""

from typing import ClassVar

from lightning_accum._checks import check_value, is_number
from lightning_accum.engine import Term, Window
from lightning_accum.engine.rule import Rule


class InhibitorySTDP(Rule):
    r"""Symmetric spike-timing-dependent plasticity that holds neurons at a target rate.

    .. math::
        \Delta w = \eta \sum_t \left( s_\text{post}(t)\, x_\text{pre}(t)
                 + \left(x_\text{post}(t) - \alpha\right) s_\text{pre}(t) \right), \qquad
        \alpha = 2\, \rho_0\, \tau

    with spikes :math:`s` and their exponential traces :math:`x`, into which a spike counts in the
    step in which it happens. Near-coincident spikes strengthen the synapse in either order, and a
    presynaptic spike without a postsynaptic one weakens it. The weight is the strength of
    inhibition, which is positive: subtract the connection's output from the neuron's input.

    Args:
        lr: rate :math:`\eta`.
        target_rate: firing rate :math:`\rho_0` of the postsynaptic neuron, in Hz.
        tc: time constant :math:`\tau` of both traces, in ms.

    Raises:
        ValueError: if the target rate is negative or not finite.

    Example:
        >>> import torch
        >>> from lightning_accum import InhibitorySTDP, change_of
        >>> spike, rule = torch.ones(1, 1, 1), InhibitorySTDP(lr=0.1, target_rate=5.0, tc=20.0)
        >>> change_of(rule, spike, spike, torch.ones(1, 1))  # 0.2 for the pair, less 0.02
        tensor([[[0.1800]]])

    Source:
        Vogels et al. 2011, doi:10.1126/science.1211095.
    """

    w_min: ClassVar[float] = 0.0
    """The least weight that makes sense, as weights count the strength of inhibition."""

    lr: float
    target_rate: float = 5.0
    tc: float = 20.0

    def check(self) -> None:
        """Raises a ``ValueError`` if hyperparameters make no sense."""
        fits = is_number(self.target_rate) and 0 <= self.target_rate < float("inf")
        check_value(fits, "target_rate", self.target_rate, "a firing rate in Hz, at least 0")

    def terms(self, window: Window) -> tuple[Term, ...]:
        """Returns potentiation by pairs in either order, and depression by presynaptic spikes."""
        alpha = 2.0 * self.target_rate / 1000.0 * self.tc
        return (
            Term(self.lr, window.post, window.pre.trace(self.tc)),
            Term(self.lr, window.post.trace(self.tc), window.pre),
            Term(-self.lr * alpha, window.post.ones(), window.pre),
        )

"""Pair-based spike-timing-dependent plasticity whose size depends on the weight."""

from dataclasses import field, replace

from lightning_accum._checks import check_finite, check_value
from lightning_accum.engine import Term, Window
from lightning_accum.engine.rule import Rule
from lightning_accum.functional.bounds import Room
from lightning_accum.functional.traces import TraceMode
from lightning_accum.rules.stdp import pairs


class WeightDependentSTDP(Rule):
    r"""Pair STDP that potentiates weak synapses more, and depresses strong synapses more.

    With :math:`u = (w - w_\text{min}) / (w_\text{max} - w_\text{min})`, a term whose rate is
    positive changes a weight in proportion to :math:`(1 - u)^{\mu_+}`, and one whose rate is
    negative in proportion to :math:`u^{\mu_-}`:

    .. math::
        \Delta w = \eta_\text{post}\, (1 - u)^{\mu_+} \sum_t s_\text{post}(t)\, x_\text{pre}(t)
                 + \eta_\text{pre}\, u^{\mu_-} \sum_t x_\text{post}(t)\, s_\text{pre}(t).

    A power of 0 gives the additive rule, 1 the multiplicative one; ``power_pos=0, power_neg=1`` is
    the form of van Rossum et al., and one power between 0 and 1 for both that of Gütig et al. The
    weight is that at the beginning of the window; outside of the limits it counts as at the limit.

    Args:
        lr_post, lr_pre, tc_post, tc_pre, trace_mode: as for :class:`STDP`.
        power_pos: :math:`\mu_+`, of potentiation.
        power_neg: :math:`\mu_-`, of depression.
        w_min: lower limit of the weights.
        w_max: upper limit of the weights.

    Raises:
        ValueError: if a power is negative or the limits are not in order.

    Example:
        >>> import torch
        >>> from lightning_accum import WeightDependentSTDP, change_of
        >>> rule = WeightDependentSTDP(lr_post=0.1, lr_pre=-0.1, w_max=4.0)
        >>> spike = torch.ones(1, 1, 1)  # of both neurons
        >>> change_of(rule, spike, spike, torch.ones(1, 1))  # up by 3/4 of the rate, down by 1/4
        tensor([[[0.0500]]])

    Source:
        van Rossum, Bi & Turrigiano 2000, doi:10.1523/JNEUROSCI.20-23-08812.2000; Gütig, Aharonov,
        Rotter & Sompolinsky 2003, doi:10.1523/JNEUROSCI.23-09-03697.2003.
    """

    lr_post: float
    lr_pre: float
    tc_post: float = 20.0
    tc_pre: float = 20.0
    trace_mode: TraceMode = field(default="cumulative", kw_only=True)
    power_pos: float = 1.0
    power_neg: float = 1.0
    w_min: float = 0.0
    w_max: float = 1.0

    def check(self) -> None:
        """Raises a ``ValueError`` if hyperparameters make no sense."""
        powers = {"power_pos": self.power_pos, "power_neg": self.power_neg}
        check_finite(**powers, w_min=self.w_min, w_max=self.w_max)
        for name, power in powers.items():
            check_value(power >= 0, name, power, "a power of at least 0")
        check_value(self.w_min < self.w_max, "w_min", self.w_min, f"below `w_max = {self.w_max}`")

    def terms(self, window: Window) -> list[Term]:
        """Returns the terms of pair STDP, times the room that the weight has."""
        width = self.w_max - self.w_min
        sides = (self.w_max, self.power_pos), (self.w_min, self.power_neg)
        up, down = (Room(limit, width, power, 1.0) if power else None for limit, power in sides)
        return [replace(each, room=up if each.rate > 0 else down) for each in pairs(self, window)]

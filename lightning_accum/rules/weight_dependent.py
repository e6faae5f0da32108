"""Pair-based spike-timing-dependent plasticity whose size depends on the weight."""

from dataclasses import replace
from functools import partial

import torch
from typing_extensions import Self

from lightning_accum._checks import check_finite, check_value
from lightning_accum.engine import Term, Window
from lightning_accum.functional.bounds import Room
from lightning_accum.functional.dtypes import at_least_float32
from lightning_accum.rules.stdp import PairRule
from lightning_accum.sparse.neurons import LoopTerms


class WeightDependentSTDP(PairRule):
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
        **options: those of :class:`Rule`.

    Raises:
        ValueError: if a power is negative or the limits are not in order.

    Example:
        >>> import torch
        >>> from lightning_accum import Serial, WeightDependentSTDP
        >>> layer = Serial(torch.nn.Linear(1, 1, bias=False), torch.nn.Identity())
        >>> _ = torch.nn.init.ones_(layer.connection.weight)
        >>> rule = WeightDependentSTDP(lr_post=0.1, lr_pre=-0.1, w_max=4.0)
        >>> unit = rule.register_cell("enc", layer.cell)
        >>> _ = layer(torch.tensor([[1.0]]))
        >>> rule()
        >>> unit.cell.updater.weight.pos  # three quarters of the room are left
        tensor([[0.0750]])

    Source:
        van Rossum, Bi & Turrigiano 2000, doi:10.1523/JNEUROSCI.20-23-08812.2000; Gütig, Aharonov,
        Rotter & Sompolinsky 2003, doi:10.1523/JNEUROSCI.23-09-03697.2003.
    """

    power_pos: float = 1.0
    power_neg: float = 1.0
    w_min: float = 0.0
    w_max: float = 1.0

    def check(self, h: Self) -> None:
        """Raises a ``ValueError`` if hyperparameters make no sense."""
        super().check(h)
        powers = {"power_pos": h.power_pos, "power_neg": h.power_neg}
        check_finite(**powers, w_min=h.w_min, w_max=h.w_max)
        for name, power in powers.items():
            check_value(power >= 0, name, power, "a power of at least 0")
        check_value(h.w_min < h.w_max, "w_min", h.w_min, f"below `w_max = {h.w_max}`")

    def weight_range(self, name: str) -> tuple[float | None, float | None]:
        """Returns ``w_min`` and ``w_max`` of a cell."""
        h = self.state_of(name).hyperparameters
        return h.w_min, h.w_max

    def terms(self, window: Window, h: Self) -> list[Term]:
        """Returns the terms of pair STDP, scaled by how much room the weight has."""
        param = window.param.to(at_least_float32(window.param.dtype))
        share = ((param - h.w_min) / (h.w_max - h.w_min)).clamp_(0.0, 1.0)
        factors = {True: (1.0 - share) ** h.power_pos, False: share**h.power_neg}
        return [
            replace(term, transform=partial(torch.mul, factors[term.rate > 0]))
            for term in self.pairs(window, h)
        ]

    def loop_constants(self, h: Self, batch: int) -> LoopTerms | None:
        """Returns the rates and decays of one step, and the room that the weight has."""
        pairs, width = super().loop_constants(h, batch), h.w_max - h.w_min
        rise, fall = (
            Room(limit, width, power, most=1.0) if power else None
            for limit, power in ((h.w_max, h.power_pos), (h.w_min, h.power_neg))
        )
        return None if pairs is None else pairs._replace(rise=rise, fall=fall)

"""Voltage-based spike-timing-dependent plasticity."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor

from lightning_accum._checks import check_finite, check_value, is_number
from lightning_accum.engine import Term, Window
from lightning_accum.engine.rule import Rule
from lightning_accum.functional.traces import decay_factor
from lightning_accum.observe.monitor import StateSource, check_source
from lightning_accum.rules.third_factor import check_real


class Clopath(Rule):
    r"""Voltage-based STDP: depression on presynaptic spikes, potentiation at high potentials.

    .. math::
        \Delta w = -\eta_- \sum_t s(t) \left[\bar u_-(t) - \theta_-\right]_+
                   + \eta_+ \sum_t \bar x(t) \left[u(t) - \theta_+\right]_+
                     \left[\bar u_+(t) - \theta_-\right]_+ \Delta t

    with presynaptic spikes :math:`s`, their exponential trace :math:`\bar x`, to which each spike
    adds :math:`1 / \tau_x`, the membrane potential :math:`u` of the postsynaptic neuron relative to
    rest, and its low-pass
    :math:`\bar u_\pm(t) = a_\pm \bar u_\pm(t - \Delta t) + (1 - a_\pm)\, u(t)`, which begins at
    rest, zero. With ``u_ref``, depression is scaled by :math:`(\langle u \rangle / u_\text{ref})^2`
    of the neuron's average potential, which keeps its rate in bounds.

    Args:
        lr_post: rate at high potentials :math:`\eta_+`, for each ms.
        lr_pre: rate on a presynaptic spike :math:`-\eta_-`; negative to depress.
        theta_neg: threshold :math:`\theta_-` of the low-passed potentials, relative to rest.
        theta_pos: threshold :math:`\theta_+` of the potential, relative to rest.
        tc_potential_pre: time constant of :math:`\bar u_-`, in ms.
        tc_potential_post: time constant of :math:`\bar u_+`, in ms.
        tc_pre: time constant :math:`\tau_x` of the presynaptic trace, in ms.
        u_ref: reference of the average potential; no scaling of depression when ``None``.
        tc_average: time constant of the average potential, in ms.
        membrane: where the potential relative to rest is found after each call: the path of an
            attribute of the neuron, such as ``"voltage"`` of a :class:`~lightning_accum.nn.LIF`
            that is called step by step, or a callable that finds it in the neuron's output.

    Raises:
        ValueError: if a threshold is not a finite number, or ``u_ref`` is not positive.

    Example:
        >>> import torch
        >>> from lightning_accum import Clopath, change_of
        >>> rule = Clopath(lr_post=1.5, lr_pre=-0.1, theta_neg=0.0, theta_pos=0.5)
        >>> spikes = u = torch.ones(3, 1, 1)  # and a potential that stays above both thresholds
        >>> bool(change_of(rule, spikes, spikes, torch.ones(1, 1), states={"membrane": u}) > 0)
        True

    Source:
        Clopath, Büsing, Vasilaki & Gerstner 2010, doi:10.1038/nn.2479, eqs. 1 to 3.
    """

    lr_post: float
    lr_pre: float
    theta_neg: float
    theta_pos: float
    tc_potential_pre: float = 10.0
    tc_potential_post: float = 7.0
    tc_pre: float = 15.0
    u_ref: float | None = None
    tc_average: float = 1000.0
    membrane: StateSource = "membrane"

    def check(self) -> None:
        """Raises a ``ValueError`` if hyperparameters make no sense."""
        check_source("membrane", self.membrane)
        check_finite(theta_neg=self.theta_neg, theta_pos=self.theta_pos)
        fits = self.u_ref is None or (is_number(self.u_ref) and 0 < self.u_ref < math.inf)
        check_value(fits, "u_ref", self.u_ref, "a positive potential, or None")

    def states(self) -> Mapping[str, StateSource]:
        """Records the membrane potential."""
        return {"membrane": self.membrane}

    def terms(self, window: Window) -> Sequence[Term]:
        """Returns depression on presynaptic spikes, and potentiation by the presynaptic trace."""
        u = window.state("membrane")
        check_real("membrane", u.dtype)

        def above(tc: float) -> Tensor:
            low_pass = u.trace(tc).values() * (1.0 - decay_factor(tc, window.dt))
            return low_pass.sub_(self.theta_neg).clamp_(min=0.0)

        ltd = above(self.tc_potential_pre)
        if self.u_ref is not None:
            ltd = ltd * (u.average(self.tc_average) / self.u_ref) ** 2
        ltp = (u.values() - self.theta_pos).clamp_(min=0.0) * above(self.tc_potential_post)
        return (
            Term(self.lr_pre, ltd, window.pre),
            Term(self.lr_post * window.dt / self.tc_pre, ltp, window.pre.trace(self.tc_pre)),
        )

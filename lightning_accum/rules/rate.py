"""The base of rules on rates, for activity of any value."""

from __future__ import annotations

from lightning_accum.rules.base import Rule


class RateRule(Rule):
    """Base of rules on activity of real values or spikes.

    Args:
        lr: rate.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        time_dim: as for :class:`~lightning_accum.rules.base.Rule`, which describes ``params``,
            ``carry``, ``backend`` and ``picker`` too.
    """

    spikes = False

    lr: float

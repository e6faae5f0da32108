"""The base of rules on rates, for activity of any value."""

from __future__ import annotations

from lightning_accum.rules.base import Rule


class RateRule(Rule):
    """Base of rules on activity of real values or spikes."""

    spikes = False

    lr: float

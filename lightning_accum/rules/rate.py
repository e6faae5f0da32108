"""Rules on rates: what they share is a rate of their own, and activity of any value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_accum._checks import check_mapping
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.rules.base import Rule


class RateRule(Rule):
    """Base of rules on activity that is real values, or spikes.

    Args:
        lr: rate.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        hyperparameters: those that a subclass adds.
        **options: ``time_dim``, ``params``, ``carry``, ``backend`` and ``picker`` of
            :class:`~lightning_accum.rules.base.Rule`.
    """

    spikes = False

    def __init__(
        self,
        lr: float,
        dt: float = 1.0,
        batch_reduction: ReductionFn | str = "mean",
        *,
        hyperparameters: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if hyperparameters is not None:
            check_mapping("hyperparameters", hyperparameters)
        every = {"lr": lr, **(hyperparameters or {})}
        super().__init__(every, dt=dt, batch_reduction=batch_reduction, **options)

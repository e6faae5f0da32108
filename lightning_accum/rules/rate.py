"""The base of rules on rates, for activity of any value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.rules._hyperparameters import extended
from lightning_accum.rules.base import Rule


class RateRule(Rule):
    """Base of rules on activity of real values or spikes.

    Args:
        lr: rate.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        hyperparameters: hyperparameters that a subclass adds, by name.
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
        super().__init__(
            extended({"lr": lr}, hyperparameters), dt=dt, batch_reduction=batch_reduction, **options
        )

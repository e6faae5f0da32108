"""Adam's formula, which several optimizers share."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from typing_extensions import Unpack

from lightning_accum.functional.optimization import Number
from lightning_accum.optim._moments import MomentOptimizer
from lightning_accum.optim._options import MomentOptions
from lightning_accum.optim._scales import Scales, adam_scales
from lightning_accum.optim.base import Group, Params
from lightning_accum.optim.weight_decay import WeightDecay


class AdamFormula(MomentOptimizer):
    """Base of the optimizers that step by Adam's formula, whatever their rate."""

    _is_adam = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float | WeightDecay,
        own: dict[str, Any],
        *,
        fused: bool | None = None,
        **options: Unpack[MomentOptions],
    ) -> None:
        own = {**own, "fused": fused}
        super().__init__(params, lr, betas, eps, weight_decay, own, **options)

    def _scales(self, group: Group, rate: Number, step: Number) -> Scales:
        return adam_scales(group, rate, step)

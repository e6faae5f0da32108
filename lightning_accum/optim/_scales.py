"""Size, root and floor of a step ``size * m / (root * sqrt(v) + floor)``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_accum.functional.moments import Number, bias_correction
from lightning_accum.functional.schedules import rectification

Scales = tuple[Number, Number, Number]


def adam_scales(group: dict[str, Any], rate: Number, step: Number) -> Scales:
    """Size, root and floor of Adam's step."""
    first, second = (bias_correction(beta, step) for beta in group["betas"])
    if group.get("optimized_update"):
        return rate * second**0.5 / first, 1.0, group["eps"]
    return rate / first, second**-0.5, group["eps"]


def rectified_scales(group: dict[str, Any], rate: Number, step: Number) -> Scales:
    """Size, root and floor of RAdam's step."""
    first, second = (bias_correction(beta, step) for beta in group["betas"])
    trust = rectification(step, group["betas"][1])
    momentum = rate / first if group["degenerate_to_sgd"] else 0.0 * rate
    if isinstance(trust, Tensor):
        adaptive = trust > 0
        size = torch.where(adaptive, rate * trust * second**0.5 / first, momentum)
        return size, adaptive.to(trust.dtype), torch.where(adaptive, group["eps"], 1.0)
    if trust > 0:
        return rate * trust * second**0.5 / first, 1.0, group["eps"]
    return momentum, 0.0, 1.0

"""Size, root and floor of a step ``size * m / (root * sqrt(v) + floor)``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_accum.functional.optimization import Number, bias_correction, rectification

Scales = tuple[Number, Number, Number]


def adam_scales(group: dict[str, Any], rate: Number, step: Number) -> Scales:
    """Returns size, root and floor of Adam's step."""
    first, second = (bias_correction(beta, step) for beta in group["betas"])
    if group.get("optimized_update"):
        return rate * second**0.5 / first, 1.0, group["eps"]
    return rate / first, second**-0.5, group["eps"]


def rectified_scales(group: dict[str, Any], rate: Number, step: Number) -> Scales:
    """Returns size, root and floor of RAdam's step."""
    first, second = (bias_correction(beta, step) for beta in group["betas"])
    trust = rectification(step, group["betas"][1])
    momentum = rate / first if group["degenerate_to_sgd"] else 0.0 * rate
    # The bias correction of the second moment scales the whole step, or its root only.
    size, root = (second**0.5, 1.0) if group.get("optimized_update", True) else (1.0, second**-0.5)
    size = rate * trust * size / first
    if isinstance(trust, Tensor):
        # `torch.where` between two Python floats would give float32.
        adaptive = (trust > 0).to(trust.dtype)
        floor = adaptive * group["eps"] + (1.0 - adaptive)
        return torch.where(trust > 0, size, momentum), adaptive * root, floor
    return (size, root, group["eps"]) if trust > 0 else (momentum, 0.0, 1.0)

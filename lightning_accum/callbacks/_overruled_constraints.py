"""Finds constraints of a parameter that a later one overrules."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from lightning_accum._checks import name_of, quoted
from lightning_accum.updates.constraints import Constraint


def overruled(constraints: Sequence[Constraint], value: Tensor) -> str:
    """Returns which constraint a later one overrules; empty if no weight is beyond its limits.

    Args:
        constraints: the constraints of the parameter, in their order.
        value: the parameter.

    Example:
        >>> import torch
        >>> from lightning_accum import Clamp, Normalize
        >>> overruled([Clamp(0.0, 0.3), Normalize(1.0)], torch.tensor([0.5, 0.5]))
        '`Clamp(min=0.0, max=0.3)` keeps, and `Normalize` runs after it'
    """
    for i, fn in enumerate(constraints[:-1], 1):
        lower, upper = getattr(fn, "weight_limits", (None, None))
        if value.numel() and (
            (lower is not None and bool(value.min() < value.new_tensor(lower)))
            or (upper is not None and bool(value.max() > value.new_tensor(upper)))
        ):
            later = quoted(map(name_of, constraints[i:]))
            run = "runs" if i == len(constraints) - 1 else "run"
            return f"`{fn}` keeps, and {later} {run} after it"
    return ""

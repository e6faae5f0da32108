"""The constraint that keeps weights between two limits."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_tensors


@torch.no_grad()
def clamp_(param: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    r"""Clamps weights in place, :math:`w \leftarrow \min(\max(w, w_{\min}), w_{\max})`.

    Args:
        param: weights :math:`w`, of any shape; written to.
        min: lower limit :math:`w_{\min}`, or ``None``.
        max: upper limit :math:`w_{\max}`, or ``None``.

    Returns:
        ``param`` itself.

    Raises:
        TypeError: if ``param`` is not a tensor, or a limit not a number.
        ValueError: if both limits are ``None``, one is not finite, or ``min`` is above ``max``.

    Example:
        >>> import torch
        >>> clamp_(torch.tensor([-1.0, 0.5, 2.0]), min=0.0, max=1.0)
        tensor([0.0000, 0.5000, 1.0000])
    """
    if min is None and max is None:
        raise ValueError(
            "Arguments `min` and `max` should not both be None, because there would be nothing to"
            " clamp to: pass at least one."
        )
    check_tensors(param=param)
    check_finite(**{k: v for k, v in (("min", min), ("max", max)) if v is not None})
    if min is not None and max is not None and not min <= max:
        raise ValueError(
            f"Argument `min` should not be above `max`. Found `min = {min}`, `max = {max}`."
        )
    return param.clamp_(min=min, max=max)

"""The rectification of an adaptive rate, which RAdam introduced."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lightning_accum.functional.moments import Number


def rectification(step: Number, beta2: float) -> Number:
    r"""Returns the rectification of an adaptive rate after few steps, zero for the first ones.

    .. math::
        \rho_\infty &= \frac{2}{1 - \beta_2} - 1, \qquad
        \rho_t = \rho_\infty - \frac{2 t \beta_2^t}{1 - \beta_2^t} \\
        r_t &= \sqrt{\frac{(\rho_t - 4)(\rho_t - 2) \, \rho_\infty}
            {(\rho_\infty - 4)(\rho_\infty - 2) \, \rho_t}} \quad
            \text{for } \rho_t \ge 5, \text{ else } 0

    Args:
        step: :math:`t \ge 1`, a number or a 0-dim tensor.
        beta2: :math:`0 \le \beta_2 < 1`, of the second moment.

    Returns:
        :math:`r_t`, a tensor if ``step`` is one.

    Example:
        >>> [round(rectification(t, 0.999), 3) for t in (5, 6, 100, 10000)]
        [0.0, 0.026, 0.215, 1.0]

    Source:
        Liu et al. (2020), arXiv:1908.03265, algorithm 2.
    """
    rho_inf = 2.0 / (1.0 - beta2) - 1.0
    power = beta2**step
    rho = rho_inf - 2.0 * step * power / (1.0 - power)
    if rho_inf < 5.0:  # ρ_t stays below ρ∞
        return step * 0.0
    scale = rho_inf / ((rho_inf - 4.0) * (rho_inf - 2.0))
    if isinstance(rho, Tensor):
        trusted = rho.clamp(min=5.0)
        value = ((trusted - 4.0) * (trusted - 2.0) * scale / trusted).sqrt()
        return torch.where(rho >= 5.0, value, 0.0)
    return math.sqrt((rho - 4.0) * (rho - 2.0) * scale / rho) if rho >= 5.0 else 0.0

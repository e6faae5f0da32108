r"""The formulas of adaptive optimizers: a rectification, and schedules.

Every number of a formula, a step :math:`t \ge 1` or a decay :math:`\beta`, may be a tensor without
dimensions too, so that it can stay on a device. Results are new tensors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

Number = float | Tensor


def rectification(step: Number, beta2: float) -> Number:
    r"""Returns the rectification of an adaptive rate after few steps, zero for the first ones.

    .. math::
        \rho_\infty &= \frac{2}{1 - \beta_2} - 1, \qquad
        \rho_t = \rho_\infty - \frac{2 t \beta_2^t}{1 - \beta_2^t} \\
        r_t &= \sqrt{\frac{(\rho_t - 4)(\rho_t - 2) \, \rho_\infty}
            {(\rho_\infty - 4)(\rho_\infty - 2) \, \rho_t}} \quad
            \text{for } \rho_t \ge 5, \text{ else } 0
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


def warmup_factor(step: Number, warmup: float) -> Number:
    r"""Returns a factor that rises to one, :math:`\min(1, t / w)`; one if :math:`w = 0`."""
    factor: Number = step / warmup if warmup > 0 else step * 0.0 + 1.0
    return factor.clamp(max=1.0) if isinstance(factor, Tensor) else min(factor, 1.0)


def noam_factor(step: Number, warmup: float, d_model: float) -> Number:
    r"""Returns a factor that rises linearly, then decays as the inverse root of the step.

    .. math:: d_{\text{model}}^{-1/2} \min(t^{-1/2}, t \, w^{-3/2})
    """
    scale, slope = 1.0 / math.sqrt(d_model), 1.0 / (warmup * math.sqrt(warmup))
    if isinstance(step, Tensor):
        return scale * torch.minimum(slope * step, step.rsqrt())
    return scale * min(slope * step, 1.0 / math.sqrt(step))


def warmup_cosine_factor(step: Number, warmup: float, total_steps: float) -> Number:
    r"""Returns a factor that rises linearly to one, then falls to zero by half a cosine.

    .. math:: \min(1, t / w) \cdot \tfrac12 (1 + \cos \pi p), \qquad
        p = \operatorname{clamp}\!\left(\frac{t - w}{T - w}, 0, 1\right)
    """
    progress = (step - warmup) / (total_steps - warmup)
    cosine: Number
    if isinstance(progress, Tensor):
        cosine = torch.cos(math.pi * progress.clamp(0.0, 1.0))
    else:
        cosine = math.cos(math.pi * min(max(progress, 0.0), 1.0))
    return warmup_factor(step, warmup) * (0.5 * (1.0 + cosine))

"""Learning-rate factors as functions of the step."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lightning_accum.functional.moments import Number


def warmup_factor(step: Number, warmup: float) -> Number:
    r"""Returns a factor that rises linearly to one, :math:`\min(1, t / w)`.

    Args:
        step: :math:`t \ge 1`, a number or a 0-dim tensor.
        warmup: :math:`w \ge 0` in steps; the factor is one from the start if it is zero.

    Returns:
        The factor, a tensor if ``step`` is one.

    Example:
        >>> [warmup_factor(t, 4) for t in (1, 2, 4, 9)]
        [0.25, 0.5, 1.0, 1.0]
    """
    factor: Number = step / warmup if warmup > 0 else step * 0.0 + 1.0
    return factor.clamp(max=1.0) if isinstance(factor, Tensor) else min(factor, 1.0)


def noam_factor(step: Number, warmup: float, d_model: float) -> Number:
    r"""Returns a factor that rises linearly, then decays as the inverse root of the step.

    .. math:: d_{\text{model}}^{-1/2} \min(t^{-1/2}, t \, w^{-3/2})

    Args:
        step: :math:`t \ge 1`, a number or a 0-dim tensor.
        warmup: :math:`w \ge 1` in steps, after which the factor falls.
        d_model: :math:`d_{\text{model}} \ge 1`, the width of the model.

    Returns:
        The factor, a tensor if ``step`` is one.

    Example:
        >>> [noam_factor(t, 4, 16) for t in (1, 4, 16)]
        [0.03125, 0.125, 0.0625]

    Source:
        Vaswani et al. (2017), arXiv:1706.03762, equation 3.
    """
    scale, slope = 1.0 / math.sqrt(d_model), 1.0 / (warmup * math.sqrt(warmup))
    if isinstance(step, Tensor):
        return scale * torch.minimum(slope * step, step.rsqrt())
    return scale * min(slope * step, 1.0 / math.sqrt(step))


def warmup_cosine_factor(step: Number, warmup: float, total_steps: float) -> Number:
    r"""Returns a factor that rises linearly to one, then falls to zero by half a cosine.

    .. math:: \min(1, t / w) \cdot \tfrac12 (1 + \cos \pi p), \qquad
        p = \operatorname{clamp}\!\left(\frac{t - w}{T - w}, 0, 1\right)

    Args:
        step: :math:`t \ge 1`, a number or a 0-dim tensor.
        warmup: :math:`w \ge 0` in steps; the factor is one from the start if it is zero.
        total_steps: :math:`T > w`, the step at which zero is reached.

    Returns:
        The factor, a tensor if ``step`` is one.

    Example:
        >>> [round(warmup_cosine_factor(t, 2, 6), 3) for t in range(1, 8)]
        [0.5, 1.0, 0.854, 0.5, 0.146, 0.0, 0.0]

    Source:
        Loshchilov & Hutter (2017), arXiv:1608.03983, equation 5, without restarts.
    """
    progress = (step - warmup) / (total_steps - warmup)
    cosine: Number
    if isinstance(progress, Tensor):
        cosine = torch.cos(math.pi * progress.clamp(0.0, 1.0))
    else:
        cosine = math.cos(math.pi * min(max(progress, 0.0), 1.0))
    return warmup_factor(step, warmup) * (0.5 * (1.0 + cosine))

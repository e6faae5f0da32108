"""Power bounds by the room to a limit relative to the range between both limits."""

from __future__ import annotations

from torch import Tensor

from lightning_accum.functional.bounds._room import (
    bound_both,
    bound_lower,
    bound_upper,
    powers_of_sides,
    range_of,
    scaled_power_of,
)


def bound_upper_scaled_power(
    param: Tensor, update: Tensor, limit: float, *, range: float, power: float = 1.0
) -> Tensor:
    r"""Scales potentiation by the relative room, :math:`((w_{\max} - w) / r)^\mu \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: potentiating part :math:`u`, broadcastable with ``param``.
        limit: upper limit :math:`w_{\max}`.
        range: :math:`r = w_{\max} - w_{\min} > 0`, in the units of the weight.
        power: exponent :math:`\mu > 0`; 1 is the multiplicative rule.

    Returns:
        The bounded part, as a new tensor.

    Raises:
        ValueError: if ``range`` is not positive, or ``power`` is negative.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 1.5]), torch.ones(2)
        >>> bound_upper_scaled_power(w, u, 2.0, range=2.0, power=0.5)
        tensor([1.0000, 0.5000])

    Source:
        Gütig, Aharonov, Rotter & Sompolinsky (2003), doi:10.1523/JNEUROSCI.23-09-03697.2003.
    """
    return bound_upper(scaled_power_of, param, update, limit, range, power)


def bound_lower_scaled_power(
    param: Tensor, update: Tensor, limit: float, *, range: float, power: float = 1.0
) -> Tensor:
    r"""Scales depression by the relative room, :math:`((w - w_{\min}) / r)^\mu \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: depressing part :math:`u`, broadcastable with ``param``.
        limit: lower limit :math:`w_{\min}`.
        range: :math:`r = w_{\max} - w_{\min} > 0`, in the units of the weight.
        power: exponent :math:`\mu > 0`; 1 is the multiplicative rule.

    Returns:
        The bounded part, as a new tensor.

    Raises:
        ValueError: if ``range`` is not positive, or ``power`` is negative.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.5, 2.0]), torch.ones(2)
        >>> bound_lower_scaled_power(w, u, 0.0, range=2.0, power=0.5)
        tensor([0.5000, 1.0000])

    Source:
        Gütig, Aharonov, Rotter & Sompolinsky (2003), doi:10.1523/JNEUROSCI.23-09-03697.2003.
    """
    return bound_lower(scaled_power_of, param, update, limit, range, power)


def bound_scaled_power(
    param: Tensor,
    pos: Tensor,
    neg: Tensor,
    max: float | None,
    min: float | None,
    *,
    power: float = 1.0,
    upper_power: float | None = None,
    lower_power: float | None = None,
) -> Tensor:
    r"""Applies a power bound by the relative room.

    .. math::
        \Delta w = \left(\frac{w_{\max} - w}{w_{\max} - w_{\min}}\right)^\mu u_+
            - \left(\frac{w - w_{\min}}{w_{\max} - w_{\min}}\right)^\mu u_-

    Args:
        param: weights :math:`w`, of any shape.
        pos: potentiating part :math:`u_+`, broadcastable with ``param``.
        neg: depressing part :math:`u_-`, broadcastable with ``param``.
        max: upper limit :math:`w_{\max}`.
        min: lower limit :math:`w_{\min}`.
        power: exponent :math:`\mu > 0`; 1 is the multiplicative rule.
        upper_power: exponent of the upper side; ``power`` when ``None``.
        lower_power: exponent of the lower side; ``power`` when ``None``.

    Returns:
        The signed change, as a new tensor.

    Raises:
        ValueError: if a limit is missing or ``max`` is not above ``min``, or if ``power`` is
            negative.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 1.0, 2.0]), torch.ones(3)
        >>> bound_scaled_power(w, u, u, 2.0, 0.0, power=2.0)
        tensor([ 1.,  0., -1.])

    Source:
        Gütig, Aharonov, Rotter & Sompolinsky (2003), doi:10.1523/JNEUROSCI.23-09-03697.2003.
    """
    up, down = powers_of_sides(power, upper_power, lower_power)
    range = range_of(max, min)
    return bound_both(scaled_power_of, param, pos, neg, max, min, (range, *up), (range, *down))

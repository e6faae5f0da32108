"""Power bounds: each part scales with a power of the room to its limit."""

from __future__ import annotations

from torch import Tensor

from lightning_accum.functional.bounds._room import (
    bound_both,
    bound_lower,
    bound_upper,
    power_of,
    powers_of_sides,
)


def bound_upper_power(param: Tensor, update: Tensor, limit: float, *, power: float = 1.0) -> Tensor:
    r"""Applies a power bound to potentiation, :math:`(w_{\max} - w)^\mu \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: potentiating part :math:`u`, broadcastable with ``param``.
        limit: upper limit :math:`w_{\max}`.
        power: exponent :math:`\mu > 0`; 1 is the multiplicative rule.

    Returns:
        The bounded part, as a new tensor.

    Raises:
        ValueError: if ``power`` is not positive.

    Example:
        >>> import torch
        >>> bound_upper_power(torch.tensor([0.75, 1.5]), torch.tensor(2.0), 1.0, power=0.5)
        tensor([1., 0.])

    Source:
        Gütig, Aharonov, Rotter & Sompolinsky (2003), doi:10.1523/JNEUROSCI.23-09-03697.2003.
    """
    return bound_upper(power_of, param, update, limit, power)


def bound_lower_power(param: Tensor, update: Tensor, limit: float, *, power: float = 1.0) -> Tensor:
    r"""Applies a power bound to depression, :math:`(w - w_{\min})^\mu \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: depressing part :math:`u`, broadcastable with ``param``.
        limit: lower limit :math:`w_{\min}`.
        power: exponent :math:`\mu > 0`; 1 is the multiplicative rule.

    Returns:
        The bounded part, as a new tensor.

    Raises:
        ValueError: if ``power`` is not positive.

    Example:
        >>> import torch
        >>> bound_lower_power(torch.tensor([0.25, -0.5]), torch.tensor(2.0), 0.0, power=0.5)
        tensor([1., 0.])

    Source:
        Gütig, Aharonov, Rotter & Sompolinsky (2003), doi:10.1523/JNEUROSCI.23-09-03697.2003.
    """
    return bound_lower(power_of, param, update, limit, power)


def bound_power(
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
    r"""Applies a power bound, :math:`(w_{\max} - w)^\mu \, u_+ - (w - w_{\min})^\mu \, u_-`.

    Args:
        param: weights :math:`w`, of any shape.
        pos: potentiating part :math:`u_+`, broadcastable with ``param``.
        neg: depressing part :math:`u_-`, broadcastable with ``param``.
        max: upper limit :math:`w_{\max}`, ``None`` to leave that side unbounded.
        min: lower limit :math:`w_{\min}`, ``None`` to leave that side unbounded.
        power: exponent :math:`\mu > 0`; 1 is the multiplicative rule.
        upper_power: exponent of the upper side; ``power`` when ``None``.
        lower_power: exponent of the lower side; ``power`` when ``None``.

    Returns:
        The signed change, as a new tensor.

    Raises:
        ValueError: if ``power`` is not positive.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 0.5, 1.0]), torch.ones(3)
        >>> bound_power(w, u, u, 1.0, 0.0, power=2.0)
        tensor([ 1.,  0., -1.])

    Source:
        Gütig, Aharonov, Rotter & Sompolinsky (2003), doi:10.1523/JNEUROSCI.23-09-03697.2003.
    """
    powers = powers_of_sides(power, upper_power, lower_power)
    return bound_both(power_of, param, pos, neg, max, min, *powers)

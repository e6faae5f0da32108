"""Multiplicative bounds: each part scales with the room to its limit, absolute or relative."""

from __future__ import annotations

from torch import Tensor

from lightning_accum.functional.bounds._room import (
    bound_both,
    bound_lower,
    bound_upper,
    range_of,
    room_left,
    scaled_room_left,
)


def bound_upper_multiplicative(param: Tensor, update: Tensor, limit: float) -> Tensor:
    r"""Applies a multiplicative bound to potentiation, :math:`(w_{\max} - w) \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: potentiating part :math:`u`, broadcastable with ``param``.
        limit: upper limit :math:`w_{\max}`.

    Returns:
        The bounded part, as a new tensor; zero beyond the limit, for which the plain product
        would turn potentiation into depression.

    Example:
        >>> import torch
        >>> bound_upper_multiplicative(torch.tensor([0.75, 1.5]), torch.tensor(2.0), 1.0)
        tensor([0.5000, 0.0000])

    Source:
        Rubin, Lee & Sompolinsky (2001), doi:10.1103/PhysRevLett.86.364.
    """
    return bound_upper(room_left, param, update, limit)


def bound_lower_multiplicative(param: Tensor, update: Tensor, limit: float) -> Tensor:
    r"""Applies a multiplicative bound to depression, :math:`(w - w_{\min}) \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: depressing part :math:`u`, broadcastable with ``param``.
        limit: lower limit :math:`w_{\min}`.

    Returns:
        The bounded part, as a new tensor; zero beyond the limit, for which the plain product
        would turn depression into potentiation.

    Example:
        >>> import torch
        >>> bound_lower_multiplicative(torch.tensor([0.25, -0.5]), torch.tensor(2.0), 0.0)
        tensor([0.5000, 0.0000])

    Source:
        Rubin, Lee & Sompolinsky (2001), doi:10.1103/PhysRevLett.86.364.
    """
    return bound_lower(room_left, param, update, limit)


def bound_multiplicative(
    param: Tensor, pos: Tensor, neg: Tensor, max: float | None, min: float | None
) -> Tensor:
    r"""Applies a multiplicative bound, :math:`(w_{\max} - w) \, u_+ - (w - w_{\min}) \, u_-`.

    Args:
        param: weights :math:`w`, of any shape.
        pos: potentiating part :math:`u_+`, broadcastable with ``param``.
        neg: depressing part :math:`u_-`, broadcastable with ``param``.
        max: upper limit :math:`w_{\max}`, ``None`` to leave that side unbounded.
        min: lower limit :math:`w_{\min}`, ``None`` to leave that side unbounded.

    Returns:
        The signed change, as a new tensor.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 0.5, 1.0]), torch.ones(3)
        >>> bound_multiplicative(w, u, u, 1.0, 0.0)
        tensor([ 1.,  0., -1.])

    Source:
        Rubin, Lee & Sompolinsky (2001), doi:10.1103/PhysRevLett.86.364.
    """
    return bound_both(room_left, param, pos, neg, max, min)


def bound_upper_scaled_multiplicative(
    param: Tensor, update: Tensor, limit: float, *, range: float
) -> Tensor:
    r"""Scales potentiation by the relative room, :math:`(w_{\max} - w) / r \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: potentiating part :math:`u`, broadcastable with ``param``.
        limit: upper limit :math:`w_{\max}`.
        range: :math:`r = w_{\max} - w_{\min} > 0`, in the units of the weight.

    Returns:
        The bounded part, as a new tensor; zero beyond the limit.

    Raises:
        ValueError: if ``range`` is not positive.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 1.5]), torch.ones(2)
        >>> bound_upper_scaled_multiplicative(w, u, 2.0, range=2.0)
        tensor([1.0000, 0.2500])

    Source:
        Rubin, Lee & Sompolinsky (2001), doi:10.1103/PhysRevLett.86.364.
    """
    return bound_upper(scaled_room_left, param, update, limit, range)


def bound_lower_scaled_multiplicative(
    param: Tensor, update: Tensor, limit: float, *, range: float
) -> Tensor:
    r"""Scales depression by the relative room, :math:`(w - w_{\min}) / r \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: depressing part :math:`u`, broadcastable with ``param``.
        limit: lower limit :math:`w_{\min}`.
        range: :math:`r = w_{\max} - w_{\min} > 0`, in the units of the weight.

    Returns:
        The bounded part, as a new tensor; zero beyond the limit.

    Raises:
        ValueError: if ``range`` is not positive.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.5, 2.0]), torch.ones(2)
        >>> bound_lower_scaled_multiplicative(w, u, 0.0, range=2.0)
        tensor([0.2500, 1.0000])

    Source:
        Rubin, Lee & Sompolinsky (2001), doi:10.1103/PhysRevLett.86.364.
    """
    return bound_lower(scaled_room_left, param, update, limit, range)


def bound_scaled_multiplicative(
    param: Tensor, pos: Tensor, neg: Tensor, max: float | None, min: float | None
) -> Tensor:
    r"""Applies a multiplicative bound by the relative room.

    .. math::
        \Delta w = \frac{w_{\max} - w}{w_{\max} - w_{\min}} \, u_+
            - \frac{w - w_{\min}}{w_{\max} - w_{\min}} \, u_-

    Args:
        param: weights :math:`w`, of any shape.
        pos: potentiating part :math:`u_+`, broadcastable with ``param``.
        neg: depressing part :math:`u_-`, broadcastable with ``param``.
        max: upper limit :math:`w_{\max}`.
        min: lower limit :math:`w_{\min}`.

    Returns:
        The signed change, as a new tensor.

    Raises:
        ValueError: if a limit is missing or ``max`` is not above ``min``.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 1.0, 2.0]), torch.ones(3)
        >>> bound_scaled_multiplicative(w, u, u, 2.0, 0.0)
        tensor([ 1.,  0., -1.])

    Source:
        Rubin, Lee & Sompolinsky (2001), doi:10.1103/PhysRevLett.86.364.
    """
    range = (range_of(max, min),)
    return bound_both(scaled_room_left, param, pos, neg, max, min, range, range)

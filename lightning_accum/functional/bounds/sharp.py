"""Sharp bounds: each part is applied fully up to its limit, and not at all beyond it."""

from __future__ import annotations

from torch import Tensor

from lightning_accum.functional.bounds._room import (
    bound_both,
    bound_lower,
    bound_upper,
    is_room_left,
)


def bound_upper_sharp(param: Tensor, update: Tensor, limit: float) -> Tensor:
    r"""Bounds potentiation sharply, :math:`\Theta(w_{\max} - w) \, u` with :math:`\Theta(0) = 0`.

    One update may still step over the limit; clamp after applying where it must not.

    Args:
        param: weights :math:`w`, of any shape.
        update: potentiating part :math:`u`, broadcastable with ``param``.
        limit: upper limit :math:`w_{\max}`.

    Returns:
        The bounded part, as a new tensor.

    Example:
        >>> import torch
        >>> bound_upper_sharp(torch.tensor([0.9, 1.0, 1.1]), torch.tensor(2.0), 1.0)
        tensor([2., 0., 0.])

    Source:
        Morrison, Diesmann & Gerstner (2008), doi:10.1007/s00422-008-0233-1.
    """
    return bound_upper(is_room_left, param, update, limit)


def bound_lower_sharp(param: Tensor, update: Tensor, limit: float) -> Tensor:
    r"""Bounds depression sharply, :math:`\Theta(w - w_{\min}) \, u` with :math:`\Theta(0) = 0`.

    One update may still step over the limit; clamp after applying where it must not.

    Args:
        param: weights :math:`w`, of any shape.
        update: depressing part :math:`u`, broadcastable with ``param``.
        limit: lower limit :math:`w_{\min}`.

    Returns:
        The bounded part, as a new tensor.

    Example:
        >>> import torch
        >>> bound_lower_sharp(torch.tensor([-0.1, 0.0, 0.1]), torch.tensor(2.0), 0.0)
        tensor([0., 0., 2.])

    Source:
        Morrison, Diesmann & Gerstner (2008), doi:10.1007/s00422-008-0233-1.
    """
    return bound_lower(is_room_left, param, update, limit)


def bound_sharp(
    param: Tensor, pos: Tensor, neg: Tensor, max: float | None, min: float | None
) -> Tensor:
    r"""Applies a sharp bound, :math:`\Theta(w_{\max} - w) \, u_+ - \Theta(w - w_{\min}) \, u_-`.

    One update may still step over a limit; clamp after applying where it must not.

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
        >>> bound_sharp(w, u, u, 1.0, 0.0)
        tensor([ 1.,  0., -1.])

    Source:
        Morrison, Diesmann & Gerstner (2008), doi:10.1007/s00422-008-0233-1.
    """
    return bound_both(is_room_left, param, pos, neg, max, min)

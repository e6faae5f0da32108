r"""Bounds: how much of an update a parameter takes, by the room left to its limits.

An update comes in two parts, both non-negative: the potentiating part moves a parameter towards its
upper limit, the depressing one towards its lower limit. A bound multiplies each part by a function
of the *room*, the distance to the limit it moves towards. Each of the five functions below comes as
an upper half, a lower half, and a full form, :math:`\Delta w = b_+(w)\,u_+ - b_-(w)\,u_-`.

The room is clamped at zero: a weight beyond a limit takes none of the part that would move it
further out, where the bare formula gives a change of the other sign, or NaN for a fractional power.

All functions are pure. They compute in the wider of the two dtypes, so that the room of a bfloat16
weight is not rounded to bfloat16, and the result has that dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_tensors

__all__ = [
    "FullBounding",
    "HalfBounding",
    "bound_lower_multiplicative",
    "bound_lower_power",
    "bound_lower_scaled_multiplicative",
    "bound_lower_scaled_power",
    "bound_lower_sharp",
    "bound_multiplicative",
    "bound_power",
    "bound_scaled_multiplicative",
    "bound_scaled_power",
    "bound_sharp",
    "bound_upper_multiplicative",
    "bound_upper_power",
    "bound_upper_scaled_multiplicative",
    "bound_upper_scaled_power",
    "bound_upper_sharp",
]


# The trailing `*args, **kwargs` stand for "and whatever else": without `*args` a type checker would
# reject a function that names its keywords.
class HalfBounding(Protocol):
    """A bound on one side, ``fn(param, update, limit, **kw)``."""

    def __call__(
        self, param: Tensor, update: Tensor, limit: float, /, *args: Any, **kwargs: Any
    ) -> Tensor:
        """The part of ``update`` that ``param`` takes, as a new tensor."""
        ...


class FullBounding(Protocol):
    """A bound on both sides, ``fn(param, pos, neg, max, min, **kw)``."""

    def __call__(
        self,
        param: Tensor,
        pos: Tensor,
        neg: Tensor,
        max: float | None,
        min: float | None,
        /,
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:
        """The signed change of ``param``, as a new tensor."""
        ...


# ---------------------------------------------------------------- functions of the room
def _power(room: Tensor, power: float) -> Tensor:
    _check_powers(power=power)
    return _multiplicative(room) if power == 1 else _multiplicative(room).pow(float(power))


def _check_powers(**powers: float) -> None:
    check_finite(**powers)
    for name, power in powers.items():
        if not power >= 0:
            raise ValueError(
                f"Argument `{name}` should be a non-negative number, 0 for additive and 1 for"
                f" multiplicative updates. Found `{name} = {power}`."
            )


def _scaled_power(room: Tensor, range: float, power: float) -> Tensor:
    return _power(_scaled(room, range), power)


def _multiplicative(room: Tensor) -> Tensor:
    return room.clamp(min=0)


def _scaled_multiplicative(room: Tensor, range: float) -> Tensor:
    return _multiplicative(_scaled(room, range))


def _sharp(room: Tensor) -> Tensor:
    return (room > 0).to(room.dtype)


# ------------------------------------------------------------------------- composition
def _upper(
    headroom: Callable[..., Tensor], param: Tensor, update: Tensor, limit: float, *args: float
) -> Tensor:
    check_tensors(param=param, update=update)
    check_finite(limit=limit)
    return headroom(float(limit) - _widened(param, update), *args) * update


def _lower(
    headroom: Callable[..., Tensor], param: Tensor, update: Tensor, limit: float, *args: float
) -> Tensor:
    check_tensors(param=param, update=update)
    check_finite(limit=limit)
    return headroom(_widened(param, update) - float(limit), *args) * update


def _full(
    headroom: Callable[..., Tensor],
    param: Tensor,
    pos: Tensor,
    neg: Tensor,
    max: float | None,
    min: float | None,
    up_args: tuple[float, ...] = (),
    down_args: tuple[float, ...] = (),
) -> Tensor:
    check_tensors(param=param, pos=pos, neg=neg)
    check_finite(**{k: v for k, v in (("max", max), ("min", min)) if v is not None})
    up = pos if max is None else _upper(headroom, param, pos, max, *up_args)
    down = neg if min is None else _lower(headroom, param, neg, min, *down_args)
    return up - down


def _widened(param: Tensor, update: Tensor) -> Tensor:
    return param.to(torch.promote_types(param.dtype, update.dtype))


def _scaled(room: Tensor, range: float) -> Tensor:
    check_finite(range=range)
    if not range > 0:
        raise ValueError(
            "Argument `range` should be positive, the upper limit minus the lower one."
            f" Found `range = {range}`."
        )
    return room / range


def _range(max: float | None, min: float | None) -> float:
    check_finite(**{k: v for k, v in (("max", max), ("min", min)) if v is not None})
    if max is None or min is None or not max > min:
        raise ValueError(
            "A scaled full bound needs both limits, `max` above `min`, for its scale is their"
            f" difference. Found `max = {max}`, `min = {min}`: give both, or set a half bound,"
            " which takes its `range`."
        )
    return max - min


def _powers(
    power: float, upper: float | None, lower: float | None
) -> tuple[tuple[float], tuple[float]]:
    """The exponents of the upper and the lower side, checked even where a side is not bounded."""
    given = {"power": power, "upper_power": upper, "lower_power": lower}
    _check_powers(**{name: value for name, value in given.items() if value is not None})
    return (power if upper is None else upper,), (power if lower is None else lower,)


# ------------------------------------------------------------------------------- power
def bound_upper_power(param: Tensor, update: Tensor, limit: float, *, power: float = 1.0) -> Tensor:
    r"""Power bound on potentiation, :math:`(w_{\max} - w)^\mu \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: potentiating part :math:`u`, broadcastable with ``param``.
        limit: upper limit :math:`w_{\max}`.
        power: exponent :math:`\mu \ge 0`; 0 is the additive rule, 1 the multiplicative one.

    Returns:
        The part that is taken, as a new tensor.

    Raises:
        ValueError: if ``power`` is negative.

    Example:
        >>> import torch
        >>> bound_upper_power(torch.tensor([0.75, 1.5]), torch.tensor(2.0), 1.0, power=0.5)
        tensor([1., 0.])

    Source:
        Gütig, Aharonov, Rotter & Sompolinsky (2003), doi:10.1523/JNEUROSCI.23-09-03697.2003.
    """
    return _upper(_power, param, update, limit, power)


def bound_lower_power(param: Tensor, update: Tensor, limit: float, *, power: float = 1.0) -> Tensor:
    r"""Power bound on depression, :math:`(w - w_{\min})^\mu \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: depressing part :math:`u`, broadcastable with ``param``.
        limit: lower limit :math:`w_{\min}`.
        power: exponent :math:`\mu \ge 0`; 0 is the additive rule, 1 the multiplicative one.

    Returns:
        The part that is taken, as a new tensor.

    Raises:
        ValueError: if ``power`` is negative.

    Example:
        >>> import torch
        >>> bound_lower_power(torch.tensor([0.25, -0.5]), torch.tensor(2.0), 0.0, power=0.5)
        tensor([1., 0.])

    Source:
        Gütig, Aharonov, Rotter & Sompolinsky (2003), doi:10.1523/JNEUROSCI.23-09-03697.2003.
    """
    return _lower(_power, param, update, limit, power)


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
    r"""Power bound, :math:`(w_{\max} - w)^\mu \, u_+ - (w - w_{\min})^\mu \, u_-`.

    Args:
        param: weights :math:`w`, of any shape.
        pos: potentiating part :math:`u_+`, broadcastable with ``param``.
        neg: depressing part :math:`u_-`, broadcastable with ``param``.
        max: upper limit :math:`w_{\max}`, ``None`` to leave that side unbounded.
        min: lower limit :math:`w_{\min}`, ``None`` to leave that side unbounded.
        power: exponent :math:`\mu \ge 0`; 0 is the additive rule, 1 the multiplicative one.
        upper_power: exponent of the upper side; ``power`` when ``None``.
        lower_power: exponent of the lower side; ``power`` when ``None``.

    Returns:
        The signed change, as a new tensor.

    Raises:
        ValueError: if ``power`` is negative.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 0.5, 1.0]), torch.ones(3)
        >>> bound_power(w, u, u, 1.0, 0.0, power=2.0)
        tensor([ 1.,  0., -1.])

    Source:
        Gütig, Aharonov, Rotter & Sompolinsky (2003), doi:10.1523/JNEUROSCI.23-09-03697.2003.
    """
    powers = _powers(power, upper_power, lower_power)
    return _full(_power, param, pos, neg, max, min, *powers)


# ------------------------------------------------------------------------ scaled power
def bound_upper_scaled_power(
    param: Tensor, update: Tensor, limit: float, *, range: float, power: float = 1.0
) -> Tensor:
    r"""Power bound on potentiation by the relative room, :math:`((w_{\max} - w) / r)^\mu \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: potentiating part :math:`u`, broadcastable with ``param``.
        limit: upper limit :math:`w_{\max}`.
        range: :math:`r = w_{\max} - w_{\min} > 0`, in the units of the weight.
        power: exponent :math:`\mu \ge 0`; 0 is the additive rule, 1 the multiplicative one.

    Returns:
        The part that is taken, as a new tensor.

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
    return _upper(_scaled_power, param, update, limit, range, power)


def bound_lower_scaled_power(
    param: Tensor, update: Tensor, limit: float, *, range: float, power: float = 1.0
) -> Tensor:
    r"""Power bound on depression by the relative room, :math:`((w - w_{\min}) / r)^\mu \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: depressing part :math:`u`, broadcastable with ``param``.
        limit: lower limit :math:`w_{\min}`.
        range: :math:`r = w_{\max} - w_{\min} > 0`, in the units of the weight.
        power: exponent :math:`\mu \ge 0`; 0 is the additive rule, 1 the multiplicative one.

    Returns:
        The part that is taken, as a new tensor.

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
    return _lower(_scaled_power, param, update, limit, range, power)


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
    r"""Power bound by the relative room.

    .. math::
        \Delta w = \left(\frac{w_{\max} - w}{w_{\max} - w_{\min}}\right)^\mu u_+
            - \left(\frac{w - w_{\min}}{w_{\max} - w_{\min}}\right)^\mu u_-

    Args:
        param: weights :math:`w`, of any shape.
        pos: potentiating part :math:`u_+`, broadcastable with ``param``.
        neg: depressing part :math:`u_-`, broadcastable with ``param``.
        max: upper limit :math:`w_{\max}`.
        min: lower limit :math:`w_{\min}`.
        power: exponent :math:`\mu \ge 0`; 0 is the additive rule, 1 the multiplicative one.
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
    up, down = _powers(power, upper_power, lower_power)
    range = _range(max, min)
    return _full(_scaled_power, param, pos, neg, max, min, (range, *up), (range, *down))


# ---------------------------------------------------------------------- multiplicative
def bound_upper_multiplicative(param: Tensor, update: Tensor, limit: float) -> Tensor:
    r"""Multiplicative bound on potentiation, :math:`(w_{\max} - w) \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: potentiating part :math:`u`, broadcastable with ``param``.
        limit: upper limit :math:`w_{\max}`.

    Returns:
        The part that is taken, as a new tensor; zero beyond the limit, where the bare product would
        turn potentiation into depression.

    Example:
        >>> import torch
        >>> bound_upper_multiplicative(torch.tensor([0.75, 1.5]), torch.tensor(2.0), 1.0)
        tensor([0.5000, 0.0000])

    Source:
        Rubin, Lee & Sompolinsky (2001), doi:10.1103/PhysRevLett.86.364.
    """
    return _upper(_multiplicative, param, update, limit)


def bound_lower_multiplicative(param: Tensor, update: Tensor, limit: float) -> Tensor:
    r"""Multiplicative bound on depression, :math:`(w - w_{\min}) \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: depressing part :math:`u`, broadcastable with ``param``.
        limit: lower limit :math:`w_{\min}`.

    Returns:
        The part that is taken, as a new tensor; zero beyond the limit, where the bare product would
        turn depression into potentiation.

    Example:
        >>> import torch
        >>> bound_lower_multiplicative(torch.tensor([0.25, -0.5]), torch.tensor(2.0), 0.0)
        tensor([0.5000, 0.0000])

    Source:
        Rubin, Lee & Sompolinsky (2001), doi:10.1103/PhysRevLett.86.364.
    """
    return _lower(_multiplicative, param, update, limit)


def bound_multiplicative(
    param: Tensor, pos: Tensor, neg: Tensor, max: float | None, min: float | None
) -> Tensor:
    r"""Multiplicative bound, :math:`(w_{\max} - w) \, u_+ - (w - w_{\min}) \, u_-`.

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
    return _full(_multiplicative, param, pos, neg, max, min)


# --------------------------------------------------------------- scaled multiplicative
def bound_upper_scaled_multiplicative(
    param: Tensor, update: Tensor, limit: float, *, range: float
) -> Tensor:
    r"""Multiplicative bound on potentiation by the relative room, :math:`(w_{\max} - w) / r \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: potentiating part :math:`u`, broadcastable with ``param``.
        limit: upper limit :math:`w_{\max}`.
        range: :math:`r = w_{\max} - w_{\min} > 0`, in the units of the weight.

    Returns:
        The part that is taken, as a new tensor; zero beyond the limit.

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
    return _upper(_scaled_multiplicative, param, update, limit, range)


def bound_lower_scaled_multiplicative(
    param: Tensor, update: Tensor, limit: float, *, range: float
) -> Tensor:
    r"""Multiplicative bound on depression by the relative room, :math:`(w - w_{\min}) / r \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: depressing part :math:`u`, broadcastable with ``param``.
        limit: lower limit :math:`w_{\min}`.
        range: :math:`r = w_{\max} - w_{\min} > 0`, in the units of the weight.

    Returns:
        The part that is taken, as a new tensor; zero beyond the limit.

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
    return _lower(_scaled_multiplicative, param, update, limit, range)


def bound_scaled_multiplicative(
    param: Tensor, pos: Tensor, neg: Tensor, max: float | None, min: float | None
) -> Tensor:
    r"""Multiplicative bound by the relative room.

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
    range = (_range(max, min),)
    return _full(_scaled_multiplicative, param, pos, neg, max, min, range, range)


# ------------------------------------------------------------------------------- sharp
def bound_upper_sharp(param: Tensor, update: Tensor, limit: float) -> Tensor:
    r"""Sharp bound on potentiation, :math:`\Theta(w_{\max} - w) \, u` with :math:`\Theta(0) = 0`.

    One update may still step over the limit; clamp after applying where it must not.

    Args:
        param: weights :math:`w`, of any shape.
        update: potentiating part :math:`u`, broadcastable with ``param``.
        limit: upper limit :math:`w_{\max}`.

    Returns:
        The part that is taken, as a new tensor.

    Example:
        >>> import torch
        >>> bound_upper_sharp(torch.tensor([0.9, 1.0, 1.1]), torch.tensor(2.0), 1.0)
        tensor([2., 0., 0.])

    Source:
        Morrison, Diesmann & Gerstner (2008), doi:10.1007/s00422-008-0233-1.
    """
    return _upper(_sharp, param, update, limit)


def bound_lower_sharp(param: Tensor, update: Tensor, limit: float) -> Tensor:
    r"""Sharp bound on depression, :math:`\Theta(w - w_{\min}) \, u` with :math:`\Theta(0) = 0`.

    One update may still step over the limit; clamp after applying where it must not.

    Args:
        param: weights :math:`w`, of any shape.
        update: depressing part :math:`u`, broadcastable with ``param``.
        limit: lower limit :math:`w_{\min}`.

    Returns:
        The part that is taken, as a new tensor.

    Example:
        >>> import torch
        >>> bound_lower_sharp(torch.tensor([-0.1, 0.0, 0.1]), torch.tensor(2.0), 0.0)
        tensor([0., 0., 2.])

    Source:
        Morrison, Diesmann & Gerstner (2008), doi:10.1007/s00422-008-0233-1.
    """
    return _lower(_sharp, param, update, limit)


def bound_sharp(
    param: Tensor, pos: Tensor, neg: Tensor, max: float | None, min: float | None
) -> Tensor:
    r"""Sharp bound, :math:`\Theta(w_{\max} - w) \, u_+ - \Theta(w - w_{\min}) \, u_-`.

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
    return _full(_sharp, param, pos, neg, max, min)

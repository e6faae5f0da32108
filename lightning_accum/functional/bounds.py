r"""Bounds, which scale an update by the distance of the parameter from its limits.

An update comes in two parts, both non-negative: the potentiating part moves a parameter towards its
upper limit, the depressing one towards its lower limit. A bound multiplies each part by a function
of the *room*, the distance to the limit it moves towards. Each of the five functions below comes as
an upper half, a lower half, and a full form, :math:`\Delta w = b_+(w)\,u_+ - b_-(w)\,u_-`.

The room is clamped at zero: a weight beyond a limit takes none of the part that would move it
further out. The formula without a clamp would change the sign, or give NaN for a fractional power.

All functions return new tensors. They compute in the wider of the two dtypes, so that the room of a
bfloat16 weight is not rounded to bfloat16, and the result has that dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_tensors, check_value


# The trailing `*args, **kwargs` stand for any further arguments: without `*args` a type checker
# would reject a function that names its keywords.
class HalfBounding(Protocol):
    """A bound on one side, ``fn(param, update, limit, **kw)``."""

    def __call__(
        self, param: Tensor, update: Tensor, limit: float, /, *args: Any, **kwargs: Any
    ) -> Tensor:
        """Returns the bounded part, as a new tensor."""
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
        """Returns the signed change of ``param``, as a new tensor."""
        ...


class Room(NamedTuple):
    """The room between a weight and a limit, of which a change takes a share."""

    limit: float
    range: float = 1.0  # the room is relative to it
    power: float = 1.0  # of the relative room; 0 is 1 where there is room, and 0 elsewhere
    most: float = math.inf  # the largest relative room


# ------------------------------------------------------- shares: what a bound makes of the room
Share = Callable[[Tensor], Tensor]


def _power(power: float = 1.0, range: float = 1.0) -> Share:
    """Returns the function that takes a power of the room relative to a range."""
    if power != 1:
        _check_powers(power=power)
    if range != 1:
        check_finite(range=range)
    check_value(range > 0, "range", range, "positive, the upper limit minus the lower one")

    def share(room: Tensor) -> Tensor:
        left = (room if range == 1 else room / range).clamp(min=0)
        return left if power == 1 else left.pow(float(power))

    return share


_ROOM = _power()


def _powers(
    power: float, upper: float | None, lower: float | None, range: float = 1.0
) -> tuple[Share, Share]:
    """Returns the functions of the upper and of the lower side, checked even if unbounded."""
    given = {"power": power, "upper_power": upper, "lower_power": lower}
    _check_powers(**{name: value for name, value in given.items() if value is not None})
    up, down = (power if own is None else own for own in (upper, lower))
    return _power(up, range), _power(down, range)


def _sharp(room: Tensor) -> Tensor:
    """Returns 1 where there is room, and 0 elsewhere."""
    return (room > 0).to(room.dtype)


# ------------------------------------------------------------------------- composition
def _half(share: Share, param: Tensor, update: Tensor, limit: float, upper: bool) -> Tensor:
    """Returns an update times the share of the room between the parameter and a limit."""
    check_tensors(param=param, update=update)
    check_finite(limit=limit)
    wide, limit = param.to(torch.promote_types(param.dtype, update.dtype)), float(limit)
    return share(limit - wide if upper else wide - limit) * update


def _both(
    shares: tuple[Share, Share],
    param: Tensor,
    pos: Tensor,
    neg: Tensor,
    max: float | None,
    min: float | None,
) -> Tensor:
    """Returns the signed change, with an update as it is on a side without a limit."""
    check_tensors(param=param, pos=pos, neg=neg)
    check_finite(**{k: v for k, v in (("max", max), ("min", min)) if v is not None})
    up = pos if max is None else _half(shares[0], param, pos, max, upper=True)
    down = neg if min is None else _half(shares[1], param, neg, min, upper=False)
    return up - down


def _range(max: float | None, min: float | None) -> float:
    """Returns the distance of two limits, both of which a scaled bound needs."""
    check_finite(**{k: v for k, v in (("max", max), ("min", min)) if v is not None})
    if max is None or min is None or not max > min:
        raise ValueError(
            "A scaled full bound needs both limits, `max` above `min`, because its scale is their"
            f" difference. Found `max = {max}`, `min = {min}`: give both, or set a half bound,"
            " which takes its `range`."
        )
    return max - min


def _check_powers(**powers: float) -> None:
    """Raises for a power that does not hold a weight back at its limit."""
    check_finite(**powers)
    should = "a positive number, 1 for multiplicative updates"
    how = "take `bound_sharp` for additive updates within limits; with a power of 0, nothing would"
    for name, power in powers.items():
        check_value(power > 0, name, power, should, f"{how} stop a weight at its limit")


# ------------------------------------------------------------------------------ bounds
def bound_upper_multiplicative(param: Tensor, update: Tensor, limit: float) -> Tensor:
    r"""Returns potentiation under a multiplicative bound, :math:`(w_{\max} - w) \, u`.

    Arguments as for :func:`bound_upper_scaled_power`.

    Example:
        >>> import torch
        >>> bound_upper_multiplicative(torch.tensor([0.75, 1.5]), torch.tensor(2.0), 1.0)
        tensor([0.5000, 0.0000])
    """
    return _half(_ROOM, param, update, limit, upper=True)


def bound_lower_multiplicative(param: Tensor, update: Tensor, limit: float) -> Tensor:
    r"""Returns depression under a multiplicative bound, :math:`(w - w_{\min}) \, u`.

    Arguments as for :func:`bound_upper_scaled_power`.

    Example:
        >>> import torch
        >>> bound_lower_multiplicative(torch.tensor([0.25, -0.5]), torch.tensor(2.0), 0.0)
        tensor([0.5000, 0.0000])
    """
    return _half(_ROOM, param, update, limit, upper=False)


def bound_multiplicative(
    param: Tensor, pos: Tensor, neg: Tensor, max: float | None, min: float | None
) -> Tensor:
    r"""Returns the change under a multiplicative bound.

    .. math:: \Delta w = (w_{\max} - w) \, u_+ - (w - w_{\min}) \, u_-

    Arguments as for :func:`bound_scaled_power`.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 0.5, 1.0]), torch.ones(3)
        >>> bound_multiplicative(w, u, u, 1.0, 0.0)
        tensor([ 1.,  0., -1.])

    Source:
        Rubin, Lee & Sompolinsky (2001), doi:10.1103/PhysRevLett.86.364.
    """
    return _both((_ROOM, _ROOM), param, pos, neg, max, min)


def bound_upper_scaled_multiplicative(
    param: Tensor, update: Tensor, limit: float, *, range: float
) -> Tensor:
    r"""Returns potentiation under a bound by the relative room, :math:`(w_{\max} - w) / r \, u`.

    Arguments as for :func:`bound_upper_scaled_power`.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 1.5]), torch.ones(2)
        >>> bound_upper_scaled_multiplicative(w, u, 2.0, range=2.0)
        tensor([1.0000, 0.2500])
    """
    return _half(_power(range=range), param, update, limit, upper=True)


def bound_lower_scaled_multiplicative(
    param: Tensor, update: Tensor, limit: float, *, range: float
) -> Tensor:
    r"""Returns depression under a bound by the relative room, :math:`(w - w_{\min}) / r \, u`.

    Arguments as for :func:`bound_upper_scaled_power`.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.5, 2.0]), torch.ones(2)
        >>> bound_lower_scaled_multiplicative(w, u, 0.0, range=2.0)
        tensor([0.2500, 1.0000])
    """
    return _half(_power(range=range), param, update, limit, upper=False)


def bound_scaled_multiplicative(
    param: Tensor, pos: Tensor, neg: Tensor, max: float | None, min: float | None
) -> Tensor:
    r"""Returns the change under a bound by the relative room.

    .. math::
        \Delta w = \frac{w_{\max} - w}{w_{\max} - w_{\min}} \, u_+
            - \frac{w - w_{\min}}{w_{\max} - w_{\min}} \, u_-

    Arguments as for :func:`bound_scaled_power`.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 1.0, 2.0]), torch.ones(3)
        >>> bound_scaled_multiplicative(w, u, u, 2.0, 0.0)
        tensor([ 1.,  0., -1.])

    Source:
        Rubin, Lee & Sompolinsky (2001), doi:10.1103/PhysRevLett.86.364.
    """
    share = _power(range=_range(max, min))
    return _both((share, share), param, pos, neg, max, min)


def bound_upper_power(param: Tensor, update: Tensor, limit: float, *, power: float = 1.0) -> Tensor:
    r"""Returns potentiation under a power bound, :math:`(w_{\max} - w)^\mu \, u`.

    Arguments as for :func:`bound_upper_scaled_power`.

    Example:
        >>> import torch
        >>> bound_upper_power(torch.tensor([0.75, 1.5]), torch.tensor(2.0), 1.0, power=0.5)
        tensor([1., 0.])
    """
    return _half(_power(power), param, update, limit, upper=True)


def bound_lower_power(param: Tensor, update: Tensor, limit: float, *, power: float = 1.0) -> Tensor:
    r"""Returns depression under a power bound, :math:`(w - w_{\min})^\mu \, u`.

    Arguments as for :func:`bound_upper_scaled_power`.

    Example:
        >>> import torch
        >>> bound_lower_power(torch.tensor([0.25, -0.5]), torch.tensor(2.0), 0.0, power=0.5)
        tensor([1., 0.])
    """
    return _half(_power(power), param, update, limit, upper=False)


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
    r"""Returns the change under a power bound.

    .. math:: \Delta w = (w_{\max} - w)^\mu \, u_+ - (w - w_{\min})^\mu \, u_-

    Arguments as for :func:`bound_scaled_power`.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 0.5, 1.0]), torch.ones(3)
        >>> bound_power(w, u, u, 1.0, 0.0, power=2.0)
        tensor([ 1.,  0., -1.])

    Source:
        Gütig, Aharonov, Rotter & Sompolinsky (2003), doi:10.1523/JNEUROSCI.23-09-03697.2003.
    """
    shares = _powers(power, upper_power, lower_power)
    return _both(shares, param, pos, neg, max, min)


def bound_upper_scaled_power(
    param: Tensor, update: Tensor, limit: float, *, range: float, power: float = 1.0
) -> Tensor:
    r"""Returns potentiation under a power of relative room, :math:`((w_{\max} - w) / r)^\mu \, u`.

    Args:
        param: weights :math:`w`, of any shape.
        update: potentiating part :math:`u`, or depressing part for a lower bound; it broadcasts.
        limit: upper limit :math:`w_{\max}`, or lower limit :math:`w_{\min}` for a lower bound.
        range: :math:`r = w_{\max} - w_{\min} > 0`, in the units of the weight.
        power: exponent :math:`\mu > 0`; 1 is the multiplicative rule.

    Raises:
        ValueError: if ``range`` or ``power`` is not positive.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 1.5]), torch.ones(2)
        >>> bound_upper_scaled_power(w, u, 2.0, range=2.0, power=0.5)
        tensor([1.0000, 0.5000])
    """
    return _half(_power(power, range), param, update, limit, upper=True)


def bound_lower_scaled_power(
    param: Tensor, update: Tensor, limit: float, *, range: float, power: float = 1.0
) -> Tensor:
    r"""Returns depression under a power of relative room, :math:`((w - w_{\min}) / r)^\mu \, u`.

    Arguments as for :func:`bound_upper_scaled_power`.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.5, 2.0]), torch.ones(2)
        >>> bound_lower_scaled_power(w, u, 0.0, range=2.0, power=0.5)
        tensor([0.5000, 1.0000])
    """
    return _half(_power(power, range), param, update, limit, upper=False)


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
    r"""Returns the change under a power of relative room.

    .. math::
        \Delta w = \left(\frac{w_{\max} - w}{w_{\max} - w_{\min}}\right)^\mu u_+
            - \left(\frac{w - w_{\min}}{w_{\max} - w_{\min}}\right)^\mu u_-

    Args:
        param: weights :math:`w`, of any shape.
        pos: potentiating part :math:`u_+`, broadcastable with ``param``.
        neg: depressing part :math:`u_-`, broadcastable with ``param``.
        max: upper limit :math:`w_{\max}`; a bound without scale takes ``None`` for no limit.
        min: lower limit :math:`w_{\min}`, likewise.
        power: exponent :math:`\mu > 0`; 1 is the multiplicative rule.
        upper_power: exponent of the upper side; ``power`` when ``None``.
        lower_power: exponent of the lower side; ``power`` when ``None``.

    Raises:
        ValueError: if ``max`` is not above ``min``, or a power is not positive.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 1.0, 2.0]), torch.ones(3)
        >>> bound_scaled_power(w, u, u, 2.0, 0.0, power=2.0)
        tensor([ 1.,  0., -1.])

    Source:
        Gütig, Aharonov, Rotter & Sompolinsky (2003), doi:10.1523/JNEUROSCI.23-09-03697.2003.
    """
    shares = _powers(power, upper_power, lower_power, _range(max, min))
    return _both(shares, param, pos, neg, max, min)


def bound_upper_sharp(param: Tensor, update: Tensor, limit: float) -> Tensor:
    r"""Returns potentiation under a sharp bound, :math:`[w < w_{\max}] \, u`.

    Arguments as for :func:`bound_upper_scaled_power`. See :func:`bound_sharp`.

    Example:
        >>> import torch
        >>> bound_upper_sharp(torch.tensor([0.9, 1.0, 1.1]), torch.tensor(2.0), 1.0)
        tensor([2., 0., 0.])
    """
    return _half(_sharp, param, update, limit, upper=True)


def bound_lower_sharp(param: Tensor, update: Tensor, limit: float) -> Tensor:
    r"""Returns depression under a sharp bound, :math:`[w > w_{\min}] \, u`.

    Arguments as for :func:`bound_upper_scaled_power`. See :func:`bound_sharp`.

    Example:
        >>> import torch
        >>> bound_lower_sharp(torch.tensor([-0.1, 0.0, 0.1]), torch.tensor(2.0), 0.0)
        tensor([0., 0., 2.])
    """
    return _half(_sharp, param, update, limit, upper=False)


def bound_sharp(
    param: Tensor, pos: Tensor, neg: Tensor, max: float | None, min: float | None
) -> Tensor:
    r"""Returns the change under a sharp bound.

    .. math:: \Delta w = [w < w_{\max}] \, u_+ - [w > w_{\min}] \, u_-

    One update may still step over the limit; clamp after applying where it must not.

    Arguments as for :func:`bound_scaled_power`.

    Example:
        >>> import torch
        >>> w, u = torch.tensor([0.0, 0.5, 1.0]), torch.ones(3)
        >>> bound_sharp(w, u, u, 1.0, 0.0)
        tensor([ 1.,  0., -1.])

    Source:
        Morrison, Diesmann & Gerstner (2008), doi:10.1007/s00422-008-0233-1.
    """
    return _both((_sharp, _sharp), param, pos, neg, max, min)

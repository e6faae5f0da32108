"""Functions of the room to a limit, and the change that both bounded parts make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_tensors


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


# ---------------------------------------------------------------- functions of the room
def power_of(room: Tensor, power: float) -> Tensor:
    check_powers(power=power)
    return room_left(room) if power == 1 else room_left(room).pow(float(power))


def check_powers(**powers: float) -> None:
    check_finite(**powers)
    for name, power in powers.items():
        if not power > 0:
            raise ValueError(
                f"Argument `{name}` should be a positive number, 1 for multiplicative updates."
                f" Found `{name} = {power}`: take `bound_sharp` for additive updates within limits;"
                " with a power of 0, nothing would stop a weight at its limit."
            )


def scaled_power_of(room: Tensor, range: float, power: float) -> Tensor:
    return power_of(scaled(room, range), power)


def room_left(room: Tensor) -> Tensor:
    return room.clamp(min=0)


def scaled_room_left(room: Tensor, range: float) -> Tensor:
    return room_left(scaled(room, range))


def is_room_left(room: Tensor) -> Tensor:
    return (room > 0).to(room.dtype)


# ------------------------------------------------------------------------- composition
def bound_upper(
    headroom: Callable[..., Tensor], param: Tensor, update: Tensor, limit: float, *args: float
) -> Tensor:
    check_tensors(param=param, update=update)
    check_finite(limit=limit)
    return headroom(float(limit) - widened(param, update), *args) * update


def bound_lower(
    headroom: Callable[..., Tensor], param: Tensor, update: Tensor, limit: float, *args: float
) -> Tensor:
    check_tensors(param=param, update=update)
    check_finite(limit=limit)
    return headroom(widened(param, update) - float(limit), *args) * update


def bound_both(
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
    up = pos if max is None else bound_upper(headroom, param, pos, max, *up_args)
    down = neg if min is None else bound_lower(headroom, param, neg, min, *down_args)
    return up - down


def widened(param: Tensor, update: Tensor) -> Tensor:
    return param.to(torch.promote_types(param.dtype, update.dtype))


def scaled(room: Tensor, range: float) -> Tensor:
    check_finite(range=range)
    if not range > 0:
        raise ValueError(
            "Argument `range` should be positive, the upper limit minus the lower one."
            f" Found `range = {range}`."
        )
    return room / range


def range_of(max: float | None, min: float | None) -> float:
    check_finite(**{k: v for k, v in (("max", max), ("min", min)) if v is not None})
    if max is None or min is None or not max > min:
        raise ValueError(
            "A scaled full bound needs both limits, `max` above `min`, because its scale is their"
            f" difference. Found `max = {max}`, `min = {min}`: give both, or set a half bound,"
            " which takes its `range`."
        )
    return max - min


def powers_of_sides(
    power: float, upper: float | None, lower: float | None
) -> tuple[tuple[float], tuple[float]]:
    """Returns the exponents of the upper and the lower side, checked even for an unbounded side."""
    given = {"power": power, "upper_power": upper, "lower_power": lower}
    check_powers(**{name: value for name, value in given.items() if value is not None})
    return (power if upper is None else upper,), (power if lower is None else lower,)

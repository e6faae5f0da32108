"""Bounds, which scale an update by the distance of the parameter from its limits."""

import math
import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_numbers, check_tensors, check_value, quoted

Kind: TypeAlias = Literal[
    "power", "scaled_power", "multiplicative", "scaled_multiplicative", "sharp"
]
KINDS: tuple[str, ...] = get_args(Kind)


# The trailing `*args, **kwargs` stand for any further arguments: without `*args` a type checker
# would reject a function that names its keywords.
class HalfBounding(Protocol):
    """A bound on one side, ``fn(param, update, limit, **kw)``."""

    def __call__(
        self, param: Tensor, update: Tensor, limit: float, /, *args: Any, **kwargs: Any
    ) -> Tensor:
        """Returns the bounded part, as a new tensor."""


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


class Room(NamedTuple):
    """The room between a weight and a limit, of which a change takes a share; none beyond it."""

    limit: float
    range: float = 1.0  # the room is relative to it
    power: float = 1.0  # of the relative room; 0 is 1 where there is room, and 0 elsewhere
    most: float = math.inf  # the largest relative room

    def bounded(self, param: Tensor, update: Tensor, upper: bool) -> Tensor:
        """Returns what the room at the limit leaves of an update, in the wider dtype of both."""
        # The room of a bfloat16 weight is not rounded to bfloat16.
        wide = param.to(torch.promote_types(param.dtype, update.dtype))
        room = self.limit - wide if upper else wide - self.limit
        if self.power == 0:
            return (room > 0).to(room.dtype) * update
        room = (room if self.range == 1 else room / self.range).clamp(min=0, max=self.most)
        return (room if self.power == 1 else room.pow(self.power)) * update


def options_of(kind: str, full: bool) -> tuple[str, ...]:
    """Returns the names of the options that a bound takes, on both sides or on one."""
    powers = ("power", "upper_power", "lower_power") if full else ("power",)
    scale = ("range",) if kind.startswith("scaled") and not full else ()
    return (powers if kind.endswith("power") else ()) + scale


def rooms_of(
    kind: str, limits: tuple[float, ...], options: Mapping[str, float]
) -> tuple[Room, ...]:
    """Returns the room to each limit, the upper and the lower one or one of them."""
    known, full = options_of(kind, len(limits) == 2), len(limits) == 2
    unfit = [name for name in options if name not in known]
    if unfit or ("range" in known and "range" not in options):
        raise TypeError(
            f"The options of the bound `{kind}` should be among {quoted(known) or 'none'}"
            f"{', `range` among them' * ('range' in known)}. Found"
            f" {quoted(options) or 'none'}: {'leave out ' + quoted(unfit) if unfit else 'give it'}."
        )
    check_numbers(**dict(zip(("max", "min") if full else ("limit",), limits, strict=True)))
    check_finite(**options)
    for name, value in options.items():
        how = "take the bound `sharp` for additive updates within limits" * (name != "range")
        check_value(value > 0, name, value, "positive", how)
    width = limits[0] - limits[-1] if full else options.get("range", 1.0)
    power = 0.0 if kind == "sharp" else options.get("power", 1.0)
    sides = [options.get(f"{side}_power", power) for side in ("upper", "lower")]
    return tuple(
        Room(float(limit), float(width) if kind.startswith("scaled") else 1.0, float(own))
        for limit, own in zip(limits, sides[: len(limits)], strict=True)
    )


class NamedBound(NamedTuple):
    """A bound of this package as a function of the parameter, its parts and their limits."""

    kind: str
    side: str  # "full", "upper" or "lower"

    def __call__(self, param: Tensor, *args: Any, **options: float) -> Tensor:
        """Returns the bounded part, or for both sides the change: parts come first, then limits."""
        count = 2 if self.side == "full" else 1
        parts, limits = args[:count], args[count:]
        names = ("pos", "neg") if count == 2 else ("update",)
        check_tensors(param=param, **dict(zip(names, parts, strict=True)))
        rooms = rooms_of(self.kind, limits, options)
        first = rooms[0].bounded(param, parts[0], self.side != "lower")
        return first - rooms[1].bounded(param, parts[1], False) if count == 2 else first


def bound_named(name: str) -> NamedBound:
    """Returns the function of a name such as ``bound_power`` or ``bound_upper_power``."""
    named = re.fullmatch(rf"bound_(?:(upper|lower)_)?({'|'.join(KINDS)})", name)
    if named is None:
        raise AttributeError(f"module 'lightning_accum.functional' has no attribute '{name}'")
    return NamedBound(named[2], named[1] or "full")

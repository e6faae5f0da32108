"""The bounds of one parameter, checked when they are set, and the bounded change of both parts."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from lightning_accum._checked_state import ANYTHING, MAPPING, TEXT, check_state, check_that, list_of
from lightning_accum._checks import check_finite, check_value, name_of, nearest
from lightning_accum.functional.bounds import KINDS, NamedBound, Room, options_of, rooms_of

Side: TypeAlias = Literal["full", "upper", "lower"]
_LIMITS: dict[Side, tuple[str, ...]] = {
    "full": ("max", "min"),
    "upper": ("max",),
    "lower": ("min",),
}


@dataclass(frozen=True)
class Bound:
    """A bound, with the limits and options that it is called with."""

    # the name of one of this package; or `fn(param, update, limit, **options)` for one part, or
    # `fn(param, pos, neg, max, min, **options)` for both
    fn: str | Callable[..., Tensor]
    limits: tuple[float, ...]
    options: dict[str, Any]

    @cached_property
    def rooms(self) -> tuple[Room, ...]:
        """The room to each limit; none for a user's own function."""
        return rooms_of(self.fn, self.limits, self.options) if isinstance(self.fn, str) else ()

    @property
    def name(self) -> str:
        """The bound's name, or that of the function's type."""
        return self.fn if isinstance(self.fn, str) else name_of(self.fn)

    def call(self, param: Tensor, *parts: Tensor) -> Tensor:
        """Returns what a user's function makes of one part, or of both."""
        result = self.fn(param, *parts, *self.limits, **self.options)  # type: ignore[operator]
        if not isinstance(result, Tensor) or result.shape != param.shape:
            found = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise TypeError(
                f"The bound `{self.name}` should give a tensor of the parameter's shape"
                f" {tuple(param.shape)}. Found {found}."
            )
        return result

    def takes(self, name: str) -> bool:
        """Returns whether the bound takes a keyword other than the arguments of every bound."""
        if isinstance(self.fn, str):
            return name in options_of(self.fn, len(self.limits) == 2)
        try:
            params = list(inspect.signature(self.fn).parameters.values())
        except ValueError:  # the function has no signature
            return False
        rest = params[1 + 2 * len(self.limits) :]
        by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return any(
            each.kind is each.VAR_KEYWORD or (each.name == name and each.kind in by_name)
            for each in rest
        )

    def with_options(self, given: Mapping[str, Any]) -> Bound:
        """Returns this bound with those of the given keywords that it takes."""
        taken = {name: value for name, value in given.items() if self.takes(name)}
        return Bound(self.fn, self.limits, {**self.options, **taken})

    def state(self) -> dict[str, Any]:
        """Returns the name, the limits and the options."""
        return {"name": self.name, "limits": list(self.limits), "kwargs": dict(self.options)}


def _checked_bound(side: Side, fn: Any, limits: dict[str, Any], options: dict[str, Any]) -> Bound:
    """Returns a bound, if it can be applied."""
    if isinstance(fn, NamedBound):
        if fn.side != side:
            raise ValueError(
                f"Argument `bound` of the {side} bound should be one for the {side} side. Found one"
                f" for the {fn.side} side: pass {fn.kind!r}, or set it by `{fn.side}bound`."
            )
        fn = fn.kind
    if not callable(fn) and not (isinstance(fn, str) and fn in KINDS):
        found = f"{fn!r}{nearest(fn, KINDS)}" if isinstance(fn, str) else f"`{type(fn).__name__}`."
        raise (ValueError if isinstance(fn, str) else TypeError)(
            f"Argument `bound` of the {side} bound should be one of {KINDS}, callable, or None."
            f" Found {found}"
        )
    for name, limit in limits.items():
        check_value(limit is not None, name, limit, f"a number if there is a bound, the {side} one")
    check_finite(**limits)
    if side == "full":
        top, least = limits["max"], limits["min"]
        check_value(top > least, "max", top, f"above `min = {least}`", "`max` comes first")
    bound = Bound(fn, tuple(float(limit) for limit in limits.values()), options)
    if not bound.rooms:  # which checks the options of a bound of this package
        _check_call(bound, side, fn)
    return bound


def _saved_bound(name: str, side: Side, state: Any) -> Bound:
    """Returns the bound that :meth:`Bound.state` describes, or raises a ``RuntimeError``."""
    place, names = f"`{name}`", _LIMITS[side]
    kinds = {"name": TEXT, "limits": list_of(ANYTHING), "kwargs": MAPPING}
    check_state(f"{place}, the {side} bound,", state, kinds)
    fn = state["name"]
    check_that(fn in KINDS, place, f"a bound of this package as `name`, one of {KINDS}", fn)
    check_that(len(state["limits"]) == len(names), place, f"limits {names}", state["limits"])
    limits = dict(zip(names, state["limits"], strict=True))
    try:
        return _checked_bound(side, fn, limits, dict(state["kwargs"]))
    except (TypeError, ValueError) as error:
        raise RuntimeError(f"The state of `{name}` has a bound. {error}") from error


def _check_call(bound: Bound, side: Side, fn: Callable[..., Tensor]) -> None:
    """Raises a ``TypeError`` if a function cannot be called with the arguments of a bound."""
    try:
        inspect.signature(fn).bind(*[None] * (1 + 2 * len(bound.limits)), **bound.options)
    except ValueError:  # the function has no signature
        return
    except TypeError as error:
        expected = "param, pos, neg, max, min" if side == "full" else "param, update, limit"
        raise TypeError(
            f"Argument `bound` of the {side} bound should be callable as `bound({expected}, **kw)`"
            f" with {bound.options or 'no further arguments'}. Found `{bound.name}`: {error}."
        ) from None


class Bounds(dict[Side, Bound]):
    """A full bound, or half bounds on either side; a full one and half ones replace each other."""

    def set(
        self, side: Side, fn: Any, limits: dict[str, float | None], options: dict[str, Any]
    ) -> None:
        """Sets the bound of a side, or removes it if ``fn`` is ``None``."""
        bound = None if fn is None else _checked_bound(side, fn, limits, options)
        if bound is not None and side != "full":
            _check_order({**self, side: bound})
        self._put(side, bound)

    def _put(self, side: Side, bound: Bound | None) -> None:
        replaced: tuple[Side, ...] = ("upper", "lower") if side == "full" else ("full",)
        for other in (side, *replaced):
            self.pop(other, None)
        if bound is not None:
            self[side] = bound

    def takes(self, name: str) -> bool:
        """Returns whether one of the bounds takes a keyword."""
        return any(bound.takes(name) for bound in self.values())

    def with_options(self, given: Mapping[str, Any]) -> Bounds:
        """Returns bounds with those of the given keywords that they take."""
        if not given:
            return self
        return Bounds({side: bound.with_options(given) for side, bound in self.items()})

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The lower and the upper limit, ``None`` for a side without."""
        upper, lower = self["full"].limits if "full" in self else (None, None)
        if "upper" in self:
            (upper,) = self["upper"].limits
        if "lower" in self:
            (lower,) = self["lower"].limits
        return lower, upper

    @property
    def rooms(self) -> tuple[Room | None, Room | None] | None:
        """The rooms of which both parts take a share; ``None`` if a bound is a user's own."""
        found: dict[Side, Room] = {}
        for side, bound in self.items():
            if not bound.rooms:
                return None
            sides: tuple[Side, ...] = ("upper", "lower") if side == "full" else (side,)
            found.update(zip(sides, bound.rooms, strict=True))
        return found.get("upper"), found.get("lower")

    def change(self, param: Tensor, pos: Tensor | None, neg: Tensor | None) -> Tensor | None:
        """Returns the bounded change of a parameter as a new tensor; ``None`` for empty parts."""
        if self:
            pos, neg = _non_negative(pos, neg)
        if pos is None and neg is None:
            return None
        full = self.get("full")
        if full is not None and not full.rooms:
            zeros = torch.zeros_like(pos if neg is None else neg)  # type: ignore[arg-type]
            up, down = zeros if pos is None else pos, zeros if neg is None else neg
            result = full.call(param, up, down)
            memory = result.untyped_storage().data_ptr()
            shared = (memory == t.untyped_storage().data_ptr() for t in (param, up, down))
            return result.clone() if any(shared) else result
        pos, neg = self._half("upper", param, pos), self._half("lower", param, neg)
        if pos is None:
            return None if neg is None else -neg
        return pos.clone() if neg is None else pos - neg

    def _half(self, side: Side, param: Tensor, part: Tensor | None) -> Tensor | None:
        bound = self.get(side, self.get("full"))
        if part is None or bound is None:
            return part
        if not bound.rooms:
            return bound.call(param, part)
        return bound.rooms[-1 if side == "lower" else 0].bounded(param, part, side == "upper")

    def state(self) -> dict[str, Any]:
        """Returns the bounds of this package, by side; functions of users have no safe name."""
        return {side: b.state() for side, b in self.items() if b.rooms}

    def load(self, name: str, saved: dict[Side, Bound]) -> None:
        """Sets what :func:`saved_bounds` returned for a parameter; warns if others were set."""
        after = Bounds(self)
        for side, bound in saved.items():
            after._put(side, bound)
        if self and after != self:
            warnings.warn(
                f"The bounds of `{name}` should be those of the state that is loaded. Found"
                f" {_shown(self)}, which the saved {_shown(saved)} replaces: set the bounds"
                " again after the state is loaded if the change is meant.",
                UserWarning,
                stacklevel=2,
            )
        self.clear()
        self.update(after)


def _shown(bounds: Mapping[Side, Bound]) -> str:
    return ", ".join(f"{bound.name}{bound.limits} ({side})" for side, bound in bounds.items())


def saved_bounds(name: str, state: Mapping[str, Any]) -> dict[Side, Bound]:
    """Returns the bounds that :meth:`Bounds.state` describes, by side, or raises."""
    sides: tuple[Side, ...] = ("full", "upper", "lower") if len(state) < 2 else ("upper", "lower")
    should = "as `bounds` a full one, or an upper and a lower one"
    check_that(state.keys() <= set(sides), f"`{name}`", should, [*state])
    found = {side: _saved_bound(name, side, state[side]) for side in sides if side in state}
    try:
        _check_order(found)
    except ValueError as error:
        raise RuntimeError(f"The state of `{name}` has bounds. {error}") from error
    return found


def _check_order(found: Mapping[Side, Bound]) -> None:
    """Raises a ``ValueError`` if the limit of an upper bound is not above that of a lower one."""
    if "upper" in found and "lower" in found:
        (top,), (bottom,) = found["upper"].limits, found["lower"].limits
        if not top > bottom:
            raise ValueError(
                "The limit of the upper bound should lie above that of the lower bound. Found"
                f" `max = {top}`, `min = {bottom}`: correct one of them, or first remove the other"
                " bound, with `None`."
            )


def _non_negative(pos: Tensor | None, neg: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Moves what is negative in one part to the other, so that neither is below zero."""
    # A bound scales each part by the room on its own side. A negative value would let the
    # parameter out on the other side.
    parts = [part for part in (pos, neg) if part is not None]
    # On another device, a look at the values would wait for the device.
    if all(part.is_cpu and bool((part >= 0).all()) for part in parts):
        return pos, neg
    up, down = (None if part is None else part.clamp(min=0) for part in (pos, neg))
    rise, fall = (None if part is None else part.clamp(max=0).neg_() for part in (neg, pos))
    return _sum(up, rise), _sum(down, fall)


def _sum(first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first + second

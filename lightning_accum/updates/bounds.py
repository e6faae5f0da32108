"""The bounds of one parameter, checked when they are set, and the bounded change of both parts."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, name_of
from lightning_accum._state import ANYTHING, MAPPING, TEXT, check_state, check_that, list_of
from lightning_accum.functional import bounds as built_in
from lightning_accum.functional.bounds import Room

Side: TypeAlias = Literal["full", "upper", "lower"]
_LIMITS: dict[Side, tuple[str, ...]] = {
    "full": ("max", "min"),
    "upper": ("max",),
    "lower": ("min",),
}


@dataclass(frozen=True)
class Bound:
    """A bounding function with the limits and options that it is called with."""

    # `fn(param, update, limit, **options)` for one part, or
    # `fn(param, pos, neg, max, min, **options)` for both
    fn: Callable[..., Tensor]
    limits: tuple[float, ...]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """The name of the function, or of its type."""
        return name_of(self.fn)

    @property
    def is_built_in(self) -> bool:
        """Whether the function is one of this package, which a state dict can name."""
        return _built_in(self.name) is self.fn

    def __call__(self, param: Tensor, *parts: Tensor) -> Tensor:
        """Returns the bounded part, or for both parts the bounded change."""
        result = self.fn(param, *parts, *self.limits, **self.options)
        if not isinstance(result, Tensor) or result.shape != param.shape:
            found = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise TypeError(
                f"The bound `{self.name}` should give a tensor of the parameter's shape"
                f" {tuple(param.shape)}. Found {found}."
            )
        return result

    def rooms(self, side: Side) -> dict[Side, Room]:
        """Returns the room of each part, for a function of this package."""
        sides: tuple[Side, ...] = ("upper", "lower") if side == "full" else (side,)
        options, found = self.options, {}
        for each, limit in zip(sides, self.limits, strict=True):
            own = options.get(f"{each}_power")
            power = (
                0.0 if "sharp" in self.name else options.get("power", 1.0) if own is None else own
            )
            wide = self.limits[0] - self.limits[-1] if side == "full" else options.get("range", 1.0)
            found[each] = Room(limit, float(wide) if "scaled" in self.name else 1.0, float(power))
        return found

    def takes(self, name: str) -> bool:
        """Returns whether the function takes a keyword other than the arguments of every bound."""
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
        """Returns this bound with those of the given keywords that its function takes."""
        taken = {name: value for name, value in given.items() if self.takes(name)}
        return replace(self, options={**self.options, **taken})

    def state(self) -> dict[str, Any]:
        """Returns the name of the function, the limits and the options."""
        return {"name": self.name, "limits": list(self.limits), "kwargs": dict(self.options)}


def _checked_bound(side: Side, fn: Any, limits: dict[str, Any], options: dict[str, Any]) -> Bound:
    """Returns a bound, if it can be applied."""
    if not callable(fn):
        raise TypeError(
            f"Argument `bound` of the {side} bound should be callable or None."
            f" Found `{type(fn).__name__}`."
        )
    for name, limit in limits.items():
        if limit is None:
            raise ValueError(
                f"Argument `{name}` of the {side} bound should be a number when there is a"
                f" bound. Found `{name} = None`."
            )
    check_finite(**limits)
    if side == "full" and not limits["max"] > limits["min"]:
        raise ValueError(
            "Argument `max` of the full bound should lie above `min`. Found"
            f" `max = {limits['max']}`, `min = {limits['min']}`: `max` comes first."
        )
    bound = Bound(fn, tuple(float(limit) for limit in limits.values()), options)
    other = {"upper": "lower", "lower": "upper"}.get(side, "")
    if other and bound.is_built_in and bound.name.startswith(f"bound_{other}_"):
        raise ValueError(
            f"Argument `bound` of the {side} bound should be one for the {side} side. Found"
            f" `{bound.name}`: pass `{bound.name.replace(other, side)}`, or set it by"
            f" `{other}bound`."
        )
    tensors = 3 if side == "full" else 2  # the parameter, and both parts or one of them
    _check_call(bound, side, tensors + len(limits))
    if bound.is_built_in:
        bound(*[torch.zeros(1)] * tensors)  # which checks the options
    return bound


def _saved_bound(name: str, side: Side, state: Any) -> Bound:
    """Returns the bound that :meth:`Bound.state` describes, or raises a ``RuntimeError``."""
    place, names = f"`{name}`", _LIMITS[side]
    kinds = {"name": TEXT, "limits": list_of(ANYTHING), "kwargs": MAPPING}
    check_state(f"{place}, the {side} bound,", state, kinds)
    fn = _built_in(state["name"])
    check_that(fn is not None, place, "a bound of this package as `name`", state["name"])
    count = len(state["limits"])
    check_that(count == len(names), place, f"limits {names}", state["limits"])
    limits = dict(zip(names, state["limits"], strict=True))
    try:
        return _checked_bound(side, fn, limits, dict(state["kwargs"]))
    except (TypeError, ValueError) as error:
        raise RuntimeError(f"The state of `{name}` has a bound. {error}") from error


def _built_in(name: str) -> Callable[..., Tensor] | None:
    """Returns the bounding function of this package that has a name."""
    return getattr(built_in, name, None) if name.startswith("bound_") else None


def _check_call(bound: Bound, side: Side, count: int) -> None:
    """Raises a ``TypeError`` if a bound cannot be called with so many positional arguments."""
    try:
        inspect.signature(bound.fn).bind(*[None] * count, **bound.options)
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
            if not bound.is_built_in:
                return None
            found |= bound.rooms(side)
        return found.get("upper"), found.get("lower")

    def change(self, param: Tensor, pos: Tensor | None, neg: Tensor | None) -> Tensor | None:
        """Returns the bounded change of a parameter as a new tensor; ``None`` for empty parts."""
        if self:
            pos, neg = _non_negative(pos, neg)
        if pos is None and neg is None:
            return None
        if "full" in self:
            zeros = torch.zeros_like(pos if neg is None else neg)  # type: ignore[arg-type]
            up, down = zeros if pos is None else pos, zeros if neg is None else neg
            result = self["full"](param, up, down)
            memory = result.untyped_storage().data_ptr()
            shared = (memory == t.untyped_storage().data_ptr() for t in (param, up, down))
            return result.clone() if any(shared) else result
        pos, neg = self._half("upper", param, pos), self._half("lower", param, neg)
        if pos is None:
            return None if neg is None else -neg
        return pos.clone() if neg is None else pos - neg

    def _half(self, side: Side, param: Tensor, part: Tensor | None) -> Tensor | None:
        bound = self.get(side)
        return part if part is None or bound is None else bound(param, part)

    def state(self) -> dict[str, Any]:
        """Returns the bounds of this package, by side; functions of users have no safe name."""
        return {side: b.state() for side, b in self.items() if b.is_built_in}

    def load(self, name: str, saved: dict[Side, Bound]) -> None:
        """Sets what :func:`saved_bounds` returned for a parameter; warns if others were set."""
        if saved and self and saved != self:
            warnings.warn(
                f"The bounds of `{name}` should be those of the state that is loaded. Found"
                f" {_shown(self)}, which the saved {_shown(saved)} replaces: set the bounds"
                " again after the state is loaded if the change is meant.",
                UserWarning,
                stacklevel=2,
            )
        for side, bound in saved.items():
            self._put(side, bound)


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

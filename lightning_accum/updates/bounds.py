"""The bounds of one parameter, and the bounded change of both parts."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lightning_accum._state import check_that
from lightning_accum.updates.bound import Bound, Side, checked_bound, saved_bound


class Bounds:
    """A full bound, or half bounds on either side; a full one and half ones replace each other."""

    def __init__(self) -> None:
        self._bounds: dict[Side, Bound] = {}

    def __bool__(self) -> bool:
        return bool(self._bounds)

    @property
    def sides(self) -> list[Side]:
        """The sides that have a bound."""
        return list(self._bounds)

    def set(
        self, side: Side, fn: Any, limits: dict[str, float | None], options: dict[str, Any]
    ) -> None:
        """Sets the bound of a side, or removes it.

        Args:
            side: the part that it is for, or both.
            fn: the bounding function, or ``None`` to remove the bound.
            limits: the limits by name, in the order of the call.
            options: further keywords of the function.

        Raises:
            TypeError: if the function cannot be called with these arguments.
            ValueError: if a limit is missing or not finite, or the upper one is not above the
                lower one.
        """
        bound = None if fn is None else checked_bound(side, fn, limits, options)
        if bound is not None and side != "full":
            _check_order({**self._bounds, side: bound})
        self._put(side, bound)

    def _put(self, side: Side, bound: Bound | None) -> None:
        replaced: tuple[Side, ...] = ("upper", "lower") if side == "full" else ("full",)
        for other in (side, *replaced):
            self._bounds.pop(other, None)
        if bound is not None:
            self._bounds[side] = bound

    def takes(self, name: str) -> bool:
        """Returns whether one of the bounds takes a keyword."""
        return any(bound.takes(name) for bound in self._bounds.values())

    def with_options(self, given: Mapping[str, Any]) -> Bounds:
        """Returns bounds with those of the given keywords that they take."""
        if not given:
            return self
        other = Bounds()
        other._bounds = {side: bound.with_options(given) for side, bound in self._bounds.items()}
        return other

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The lower and the upper limit, ``None`` for a side without."""
        upper, lower = self._bounds["full"].limits if "full" in self._bounds else (None, None)
        if "upper" in self._bounds:
            (upper,) = self._bounds["upper"].limits
        if "lower" in self._bounds:
            (lower,) = self._bounds["lower"].limits
        return lower, upper

    def change(self, param: Tensor, pos: Tensor | None, neg: Tensor | None) -> Tensor | None:
        """Returns the bounded change of a parameter as a new tensor.

        Args:
            param: the parameter's current value.
            pos: the potentiating part, ``None`` if it is empty.
            neg: the depressing part, ``None`` if it is empty.

        Returns:
            The change; ``None`` if both parts are empty.
        """
        if self._bounds:
            pos, neg = non_negative(pos, neg)
        if pos is None and neg is None:
            return None
        if "full" in self._bounds:
            zeros = torch.zeros_like(pos if neg is None else neg)  # type: ignore[arg-type]
            up, down = zeros if pos is None else pos, zeros if neg is None else neg
            result = self._bounds["full"](param, up, down)
            memory = result.untyped_storage().data_ptr()
            shared = (memory == t.untyped_storage().data_ptr() for t in (param, up, down))
            return result.clone() if any(shared) else result
        pos, neg = self._half("upper", param, pos), self._half("lower", param, neg)
        if pos is None:
            return None if neg is None else -neg
        return pos.clone() if neg is None else pos - neg

    def _half(self, side: Side, param: Tensor, part: Tensor | None) -> Tensor | None:
        bound = self._bounds.get(side)
        return part if part is None or bound is None else bound(param, part)

    def state(self) -> dict[str, Any]:
        """Returns the bounds of this package, by side; functions of users have no safe name."""
        return {side: b.state() for side, b in self._bounds.items() if b.is_built_in}

    def load(self, name: str, saved: dict[Side, Bound]) -> None:
        """Sets the bounds that :func:`saved_bounds` returned; warns if others were set here.

        Args:
            name: the parameter's name, for messages.
            saved: the bounds by side.
        """
        if saved and self._bounds and saved != self._bounds:
            warnings.warn(
                f"The bounds of `{name}` should be those of the state that is loaded. Found"
                f" {_shown(self._bounds)}, which the saved {_shown(saved)} replaces: set the bounds"
                " again after the state is loaded if the change is meant.",
                UserWarning,
                stacklevel=2,
            )
        for side, bound in saved.items():
            self._put(side, bound)


def _shown(bounds: Mapping[Side, Bound]) -> str:
    return ", ".join(f"{bound.name}{bound.limits} ({side})" for side, bound in bounds.items())


def saved_bounds(name: str, state: Mapping[str, Any]) -> dict[Side, Bound]:
    """Returns the bounds that :meth:`Bounds.state` describes, by side.

    Args:
        name: the parameter's name, for messages.
        state: the description.

    Raises:
        RuntimeError: if it does not describe bounds of this package that can be applied.
    """
    sides: tuple[Side, ...] = ("full", "upper", "lower") if len(state) < 2 else ("upper", "lower")
    should = "as `bounds` a full one, or an upper and a lower one"
    check_that(state.keys() <= set(sides), f"`{name}`", should, [*state])
    found = {side: saved_bound(name, side, state[side]) for side in sides if side in state}
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


def non_negative(pos: Tensor | None, neg: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Moves what is negative in one part to the other, so that neither is below zero.

    A bound scales each part by the room on its own side. A negative value would let the parameter
    out on the other side.

    Args:
        pos: the potentiating part, ``None`` if it is empty.
        neg: the depressing part, ``None`` if it is empty.
    """
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

"""Bounds as they are set: each with its limits and options, checked before it is used."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from lightning_accum._checks import check_finite
from lightning_accum._state import ANYTHING, MAPPING, TEXT, check_state, check_that, list_of
from lightning_accum.functional import bounds

Bound: TypeAlias = tuple[Callable[..., Tensor], tuple[float, ...], dict[str, Any]]
"""A bound, its limits and its options."""


def is_ours(fn: Callable[..., Tensor]) -> bool:
    """Whether this is one of the package's own bounds, which a state dict can name."""
    name = getattr(fn, "__name__", "")
    return name.startswith("bound_") and getattr(bounds, name, None) is fn


def checked_bound(
    side: str, bound: Callable[..., Tensor], limits: dict[str, Any], kw: dict[str, Any]
) -> Bound:
    """A bound with its limits, if it can be applied.

    Raises:
        TypeError: if it is not callable with what it will be given.
        ValueError: if a limit is missing or makes no sense, or, of the package's own, an option.
    """
    if not callable(bound):
        raise TypeError(
            f"Argument `bound` of the {side} bound should be callable or None."
            f" Found `{type(bound).__name__}`."
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
    found = tuple(float(limit) for limit in limits.values())
    given = 2 if side != "full" else 3
    _check_call(bound, side, given + len(found), kw)
    if is_ours(bound):
        bound(*[torch.zeros(1)] * given, *found, **kw)  # for its check of the options
    return bound, found, kw


def bounds_in(name: str, saved: dict[str, dict[str, Any]]) -> dict[str, Bound]:
    """The bounds that the state of a parameter's accumulator has, by side.

    Raises:
        RuntimeError: if they are not bounds of this package, with what they take.
    """
    place, found = f"`{name}`", {}
    known = {"full", "upper", "lower"} if len(saved) < 2 else {"upper", "lower"}
    should = "as `bounds` a full one, or an upper and a lower one"
    check_that(saved.keys() <= known, place, should, [*saved])
    for side, bound in saved.items():
        kinds = {"name": TEXT, "limits": list_of(ANYTHING), "kwargs": MAPPING}
        check_state(f"{place}, the {side} bound,", bound, kinds)
        fn: Any = getattr(bounds, bound["name"], None)
        should = "a bound of this package as `name`"
        check_that(fn is not None and is_ours(fn), place, should, bound["name"])
        names = {"full": ("max", "min"), "upper": ("max",), "lower": ("min",)}[side]
        limits = dict(zip(names, bound["limits"], strict=False))
        check_that(len(bound["limits"]) == len(names), place, f"limits {names}", bound["limits"])
        try:
            found[side] = checked_bound(side, fn, limits, dict(bound["kwargs"]))
        except (TypeError, ValueError) as error:
            raise RuntimeError(f"The state of `{name}` has a bound. {error}") from error
    return found


def own_result(
    result: Tensor, bound: Callable[..., Tensor], param: Tensor, given: tuple[Tensor, ...] = ()
) -> Tensor:
    """What a bound gave, as a tensor that shares no memory with what it was given."""
    if not isinstance(result, Tensor) or result.shape != param.shape:
        found = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
        raise TypeError(
            f"The bound `{getattr(bound, '__name__', type(bound).__name__)}` should give a tensor"
            f" of the parameter's shape {tuple(param.shape)}. Found {found}."
        )
    shared = result.untyped_storage().data_ptr()
    return (
        result.clone() if any(shared == g.untyped_storage().data_ptr() for g in given) else result
    )


def _check_call(bound: Callable[..., Tensor], side: str, count: int, kw: dict[str, Any]) -> None:
    """A bound that cannot take what it will be given is turned away when it is set."""
    try:
        inspect.signature(bound).bind(*[None] * count, **kw)
    except ValueError:  # it has no signature to look at
        return
    except TypeError as error:
        expected = "param, pos, neg, max, min" if side == "full" else "param, update, limit"
        raise TypeError(
            f"Argument `bound` of the {side} bound should be callable as `bound({expected}, **kw)`"
            f" with {kw or 'no further arguments'}. Found"
            f" `{getattr(bound, '__name__', type(bound).__name__)}`: {error}."
        ) from None


def unsigned(pos: Tensor | None, neg: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Parts of which neither is below zero: what is in one counts for the other.

    A bound scales each by the room on its own side, and would let the parameter out on the other.

    Args:
        pos: the potentiating part.
        neg: the depressing part.
    """
    signed = [part for part in (pos, neg) if part is not None]
    if all(part.is_cpu and bool((part >= 0).all()) for part in signed):  # elsewhere it would wait
        return pos, neg
    up, down = (None if part is None else part.clamp(min=0) for part in (pos, neg))
    rise, fall = (None if part is None else part.clamp(max=0).neg_() for part in (neg, pos))
    return _added(up, rise), _added(down, fall)


def _added(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    return one if other is None else other if one is None else one + other

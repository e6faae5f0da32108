"""One bound with its limits and options, checked before it is used."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, name_of
from lightning_accum._state import ANYTHING, MAPPING, TEXT, check_state, check_that, list_of
from lightning_accum.functional import bounds

Side: TypeAlias = Literal["full", "upper", "lower"]
LIMITS: dict[Side, tuple[str, ...]] = {
    "full": ("max", "min"),
    "upper": ("max",),
    "lower": ("min",),
}


@dataclass(frozen=True)
class Bound:
    """A bounding function with the limits and options that it is called with.

    Args:
        fn: ``fn(param, update, limit, **options)`` for one part, or
            ``fn(param, pos, neg, max, min, **options)`` for both.
        limits: the limits, in the order of the call.
        options: the keywords.
    """

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
        """Returns the bounded part, or for both parts the bounded change.

        Raises:
            TypeError: if the function returns anything but a tensor of the parameter's shape.
        """
        result = self.fn(param, *parts, *self.limits, **self.options)
        if not isinstance(result, Tensor) or result.shape != param.shape:
            found = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise TypeError(
                f"The bound `{self.name}` should give a tensor of the parameter's shape"
                f" {tuple(param.shape)}. Found {found}."
            )
        return result

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


def checked_bound(side: Side, fn: Any, limits: dict[str, Any], options: dict[str, Any]) -> Bound:
    """Returns a bound, if it can be applied.

    Args:
        side: the part that it is for, or both.
        fn: the function.
        limits: the limits by name, in the order of the call.
        options: the keywords.

    Raises:
        TypeError: if the function cannot be called with these arguments.
        ValueError: if a limit is missing or not finite, ``max`` is not above ``min``, or a function
            of this package is for the other side, or rejects an option.
    """
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


def saved_bound(name: str, side: Side, state: Any) -> Bound:
    """Returns the bound that :meth:`Bound.state` describes.

    Args:
        name: the parameter's name, for messages.
        side: the part that it is for, or both.
        state: the description.

    Raises:
        RuntimeError: if it does not describe a bound of this package that can be applied.
    """
    place, names = f"`{name}`", LIMITS[side]
    kinds = {"name": TEXT, "limits": list_of(ANYTHING), "kwargs": MAPPING}
    check_state(f"{place}, the {side} bound,", state, kinds)
    fn = _built_in(state["name"])
    check_that(fn is not None, place, "a bound of this package as `name`", state["name"])
    count = len(state["limits"])
    check_that(count == len(names), place, f"limits {names}", state["limits"])
    limits = dict(zip(names, state["limits"], strict=True))
    try:
        return checked_bound(side, fn, limits, dict(state["kwargs"]))
    except (TypeError, ValueError) as error:
        raise RuntimeError(f"The state of `{name}` has a bound. {error}") from error


def _built_in(name: str) -> Callable[..., Tensor] | None:
    """Returns the bounding function of this package that has a name."""
    return getattr(bounds, name, None) if name.startswith("bound_") else None


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

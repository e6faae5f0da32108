"""How what one stage returned becomes the arguments of the next."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch import nn
from torchmetrics import Metric


class Selection(dict[str, Any]):
    """Items by name, to be a stage's arguments."""


def call(stage: Any, item: Any) -> Any:
    """What a stage returns for what the stage before it returned."""
    args, kwargs = arguments(stage, item)
    return stage(*args, **kwargs)


def arguments(stage: Any, item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that an item is to a stage: itself, or those that were selected."""
    if not isinstance(item, Selection):
        return (item,), {}
    taken = _parameters(stage)
    if taken is None:
        return tuple(item.values()), {}
    free = [name for name in taken.names if name not in item]
    others = [name for name in item if name not in taken.names]
    if len(others) > len(free) and not taken.any_name:
        raise TypeError(
            f"Stage `{stage}` should take what was selected before it, {list(item)}. Found its"
            f" arguments {list(taken.names)}: select fewer items, or put a function in between."
        )
    renamed = dict(zip(others, free, strict=False))
    return (), {renamed.get(name, name): value for name, value in item.items()}


class Parameters(NamedTuple):
    """The arguments of a stage that can be given by name, and whether it takes any other name."""

    names: tuple[str, ...]
    any_name: bool


def parameters(function: Callable[..., Any], bound: int = 0) -> Parameters | None:
    """A function's parameters less the first ``bound``; None where order is all that is known."""
    try:
        found = list(inspect.signature(function).parameters.values())[bound:]
    except (TypeError, ValueError):  # A builtin may have no signature.
        return None
    return _of(found)


def _of(found: Iterable[inspect.Parameter]) -> Parameters | None:
    kinds = {parameter.kind for parameter in found}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY}:
        return None
    last = inspect.Parameter.VAR_KEYWORD
    return Parameters(tuple(p.name for p in found if p.kind is not last), last in kinds)


_of_method = functools.lru_cache(maxsize=256)(parameters)


def _parameters(stage: Any) -> Parameters | None:
    if isinstance(stage, Function):
        return stage.parameters_by_name
    if isinstance(stage, Metric):
        within = getattr(stage, "accumulator", None)  # `Except` takes what that does.
        return _parameters(within) if within else _of(stage._update_signature.parameters.values())
    return _of_method(type(stage).forward, 1)


class Function(nn.Module):
    """A function as a module, for modules alone stand in a pipe."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.parameters_by_name = parameters(function)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the function returns."""
        return self.function(*args, **kwargs)

    def extra_repr(self) -> str:
        """The function."""
        return getattr(self.function, "__qualname__", repr(self.function))

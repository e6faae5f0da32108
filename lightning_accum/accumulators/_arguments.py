"""Turns the result of one stage into the arguments of the next."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple


class Selection(dict[str, Any]):
    """Items by name, which become the arguments of the next stage."""


class Parameters(NamedTuple):
    """The arguments that a function takes by name, and whether it takes any other name too."""

    names: tuple[str, ...]
    any_name: bool


def parameters(function: Callable[..., Any], bound: int = 0) -> Parameters | None:
    """Returns the parameters of a function without the first ``bound``.

    Returns:
        The parameters; ``None`` if arguments can only be passed in order.
    """
    try:
        found = list(inspect.signature(function).parameters.values())[bound:]
    except (TypeError, ValueError):  # Some builtins have no signature.
        return None
    kinds = {parameter.kind for parameter in found}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY}:
        return None
    last = inspect.Parameter.VAR_KEYWORD
    return Parameters(tuple(p.name for p in found if p.kind is not last), last in kinds)


def arguments(
    stage: Any, taken: Parameters | None, item: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of a stage for an item.

    Args:
        stage: the stage, for messages.
        taken: its parameters.
        item: the result of the stage before; a :class:`Selection` gives several arguments.

    Raises:
        TypeError: if more items were selected than the stage takes.
    """
    if not isinstance(item, Selection):
        return (item,), {}
    if taken is None:
        return tuple(item.values()), {}
    free = [name for name in taken.names if name not in item]
    others = [name for name in item if name not in taken.names]
    if len(others) > len(free) and not taken.any_name:
        raise TypeError(
            f"Stage `{stage}` should take the items that were selected before it, {list(item)}."
            f" Found its arguments {list(taken.names)}: select fewer items, or put a function in"
            " between."
        )
    renamed = dict(zip(others, free, strict=False))
    return (), {renamed.get(name, name): value for name, value in item.items()}

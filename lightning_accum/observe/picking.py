"""Pickers, which find the tensor to record in what a module takes or returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

Picker = Callable[[Any], Tensor]


def first_tensor(value: Any) -> Tensor:
    """Returns the first tensor of a module's arguments or results, depth first.

    Args:
        value: a tensor, or tuples, lists and dictionaries that contain at least one.

    Raises:
        TypeError: if there is no tensor.

    Example:
        >>> import torch
        >>> first_tensor((None, (torch.ones(1), torch.zeros(1))))
        tensor([1.])
    """
    if type(value) is tuple and value and isinstance(value[0], Tensor):
        return value[0]  # as nearly always, at every step
    found = _search(value)
    if found is None:
        raise TypeError(
            "A monitored module should take or return at least one tensor."
            f" Found `{type(value).__name__}`: pass a `picker` that finds the activity."
        )
    return found


def _search(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    items = value.values() if isinstance(value, dict) else value
    if not isinstance(items, str) and hasattr(items, "__iter__"):
        for item in items:
            found = _search(item)
            if found is not None:
                return found
    return None

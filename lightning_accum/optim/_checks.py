"""Checks of options, and the one form of what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from lightning_accum._checks import is_number


def check(name: str, value: object, ok: Callable[[Any], bool], should: str) -> None:
    """Raises a ``ValueError`` unless ``ok(value)``."""
    if not ok(value):
        raise ValueError(f"Argument `{name}` should be {should}. Found `{name} = {value!r}`.")


def non_negative(value: Any) -> bool:
    """Whether this is a number from zero on; NaN is none."""
    return is_number(value) and value >= 0


def at_least_one(value: Any) -> bool:
    """Whether this is a number from one on."""
    return is_number(value) and value >= 1


def is_rate(value: Any) -> bool:
    """Whether this is a learning rate, which may be a tensor, for a scheduler on the device."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and bool((value >= 0).all())
    return non_negative(value)


def is_betas(value: Any) -> bool:
    """Whether these are the decays of two moving averages."""
    try:
        pair = tuple(value)
    except TypeError:
        return False
    return len(pair) == 2 and all(is_number(beta) and 0 <= beta < 1 for beta in pair)

"""Checks of options, and the one form of what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import is_number


def check(name: str, value: object, ok: Callable[[Any], bool], should: str) -> None:
    """Raises a ``ValueError`` unless ``ok(value)``."""
    if not ok(value):
        raise ValueError(f"Argument `{name}` should be {should}. Found `{name} = {value!r}`.")


def non_negative(value: Any) -> bool:
    """Whether this is a number from zero on; NaN is none."""
    return is_number(value) and value >= 0


def is_flag(value: Any) -> bool:
    """Whether this is True or False."""
    return isinstance(value, bool)


def is_choice(value: Any) -> bool:
    """Whether this is True or False, or None, which leaves the choice open."""
    return value is None or isinstance(value, bool)


def at_least_one(value: Any) -> bool:
    """Whether this is a number from one on."""
    return is_number(value) and value >= 1


def is_rate(value: Any) -> bool:
    """Whether this is a learning rate, which may be a tensor, for a scheduler on the device."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and bool((value >= 0).all())
    return non_negative(value)


def is_count_on(step: Any, device: torch.device) -> bool:
    """Whether this is the tensor by which a step counts on the device."""
    return isinstance(step, Tensor) and step.device == device and step.dim() == 0


def checked_count(step: Any) -> int:
    """How many steps this says were taken, a number or a one-element tensor.

    Raises:
        ValueError: if it is not a count.
    """
    given = step
    if isinstance(step, Tensor) and step.numel() == 1:
        step = step.item()
    if not is_number(step) or not step >= 0 or not float(step).is_integer():
        raise ValueError(
            "The state of a parameter should count its steps, from zero, in `step`. Found"
            f" `step = {given!r}`: load a state that was saved by `state_dict()`."
        )
    return int(step)


def check_moment(name: str, value: Any, param: Tensor) -> None:
    """Raises a ``ValueError`` if a state's ``value`` cannot be a moment of the parameter."""
    shape, found = tuple(param.shape), f"`{type(value).__name__}`"
    if isinstance(value, Tensor):
        # of a complex parameter, pairs or complex numbers
        real = (*shape, 2) if param.is_complex() and not value.is_complex() else shape
        dense = value.layout is torch.strided and value.is_meta == param.is_meta
        kind = value.is_floating_point() or (value.is_complex() and param.is_complex())
        if dense and kind and value.shape == real:
            return
        found = f"one of shape {tuple(value.shape)}, {value.dtype}, {value.layout}, {value.device}"
    raise ValueError(
        f"The state of a parameter should hold `{name}` as a dense floating-point tensor of the"
        f" parameter's shape, {shape}. Found {found}: load a state of the same parameters in the"
        " same order, or begin without one."
    )


def is_betas(value: Any) -> bool:
    """Whether these are the decays of two moving averages."""
    try:
        pair = tuple(value)
    except TypeError:
        return False
    return len(pair) == 2 and all(is_number(beta) and 0 <= beta < 1 for beta in pair)

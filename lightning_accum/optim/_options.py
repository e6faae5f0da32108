"""The options of adaptive optimizers, and their checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from torch import Tensor

from lightning_accum._checks import is_number


class MomentOptions(TypedDict, total=False):
    """Options of every optimizer that steps by a first and a second moment.

    Attributes:
        maximize: whether to ascend the gradient; ``False`` by default.
        foreach: ``True`` to step lists of tensors, ``False`` to step one tensor at a time; the
            optimizer chooses by default.
        capturable: whether a step can be captured in a CUDA graph; ``False`` by default.
        differentiable: whether autograd follows the step; ``False`` by default.
        defaults: further options of every group, for a subclass or a scheduler; they are copied.
    """

    maximize: bool
    foreach: bool | None
    capturable: bool
    differentiable: bool
    defaults: dict[str, Any] | None


class AdamOptions(MomentOptions, total=False):
    """Options of every optimizer that steps by Adam's formula.

    Attributes:
        fused: ``True`` to require torch's fused kernel, ``False`` to do without it; by default it
            is used if it can be, and this package has no compiled kernel for the parameters.
    """

    fused: bool | None


def check(name: str, value: object, ok: Callable[[Any], bool], should: str) -> None:
    """Raises a ``ValueError`` unless ``ok(value)``."""
    if not ok(value):
        raise ValueError(f"Argument `{name}` should be {should}. Found `{name} = {value!r}`.")


def non_negative(value: Any) -> bool:
    """Returns whether a value is a number of at least zero, and not NaN."""
    return is_number(value) and value >= 0


def is_flag(value: Any) -> bool:
    """Returns whether a value is True or False."""
    return isinstance(value, bool)


def is_choice(value: Any) -> bool:
    """Returns whether a value is True, False, or None for a default."""
    return value is None or isinstance(value, bool)


def at_least_one(value: Any) -> bool:
    """Returns whether a value is a number of at least one."""
    return is_number(value) and value >= 1


def is_warmup(value: Any) -> bool:
    """Returns whether a value is a number of steps, and not a share of them; 0 for none."""
    return at_least_one(value) or (is_number(value) and value == 0)


def is_rate(value: Any) -> bool:
    """Returns whether a value is a learning rate: a finite number, or a one-element tensor."""
    if isinstance(value, Tensor):
        return value.numel() == 1 and bool((value >= 0).all())
    return non_negative(value) and value < math.inf


def is_betas(value: Any) -> bool:
    """Returns whether a value is a pair of decays of moving averages."""
    try:
        pair = tuple(value)
    except TypeError:
        return False
    return len(pair) == 2 and all(is_number(beta) and 0 <= beta < 1 for beta in pair)


def check_rectifies(group: Mapping[str, Any]) -> None:
    """Raises a ``ValueError`` if a group waits for a rectification that never comes."""
    waits = group.get("rectify", True) and not group.get("degenerate_to_sgd", True)
    if waits and 2 / (1 - group["betas"][1]) - 1 <= 5:  # the limit of ρ_t
        raise ValueError(
            "Argument `betas` should have a second decay above 2 / 3 where `degenerate_to_sgd ="
            f" False`. Found `betas = {group['betas']}`, with which no step would change a"
            " parameter: raise the decay, or leave out `degenerate_to_sgd`."
        )

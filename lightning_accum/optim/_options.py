"""The options of adaptive optimizers, and their checks."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from torch import Tensor

from lightning_accum._checks import check_value, is_number


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


# Options whose change requires a new plan of the step.
PLANNED = ("capturable", "differentiable", "foreach", "fused", "amsgrad", "optimized_update")


def _is_rate(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1 and bool((value >= 0).all())
    return is_number(value) and 0 <= value < math.inf


def _is_betas(value: Any) -> bool:
    try:
        pair = tuple(value)
    except TypeError:
        return False
    return len(pair) == 2 and all(is_number(beta) and 0 <= beta < 1 for beta in pair)


_NON_NEGATIVE = lambda value: is_number(value) and value >= 0, "a non-negative number"
_FLAG = lambda value: isinstance(value, bool), "True or False"
_CHOICE = lambda value: value is None or isinstance(value, bool), "True, False or None"
# By option that is not a flag, a predicate of its values, and the values in words.
_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "lr": (_is_rate, "a non-negative learning rate"),
    "betas": (_is_betas, "two numbers in [0, 1)"),
    "eps": _NON_NEGATIVE,
    "weight_decay": _NON_NEGATIVE,
    **dict.fromkeys(("foreach", "fused"), _CHOICE),
    "warmup": (
        lambda value: is_number(value) and (value >= 1 or value == 0),
        "0, or a number of steps of at least 1",
    ),
}


def check_options(options: Mapping[str, Any], *names: str) -> None:
    """Raises a ``ValueError`` if one of the named options is there and out of its range."""
    for name in names:
        if name in options:
            fits, should = _RANGES.get(name, _FLAG)
            check_value(fits(options[name]), name, options[name], should)


def check_rectifies(group: Mapping[str, Any]) -> None:
    """Raises a ``ValueError`` if a group waits for a rectification that never comes."""
    waits = group.get("rectify", True) and not group.get("degenerate_to_sgd", True)
    lasts = 2 / (1 - group["betas"][1]) - 1 > 5  # the limit of ρ_t, for a rectification
    should = "two decays, the second above 2 / 3 where `degenerate_to_sgd = False`"
    how = "no step would change a parameter: raise it, or leave out `degenerate_to_sgd`"
    check_value(not waits or lasts, "betas", group["betas"], should, how)

"""The options that adaptive optimizers share, as keywords of their constructors."""

from __future__ import annotations

from typing import Any, TypedDict


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

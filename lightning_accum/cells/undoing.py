"""Finds constraints that undo small changes of a parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import name_of, quoted

_SMALL = 1e-3  # change as a share of the mean size of the weights


@torch.no_grad()
def undoing(constraints: Sequence[Callable[[Tensor], Any]], value: Tensor) -> tuple[str, ...]:
    """Returns the names of the constraints that undo small random changes of a copy.

    Args:
        constraints: the constraints of the parameter.
        value: the parameter, which they have changed already.

    Example:
        >>> import torch
        >>> undoing([lambda w: w.round_(), lambda w: w.clamp_(0.0, 3.0)], torch.ones(2))
        ('<lambda>',)
    """
    if not value.is_floating_point() or not value.numel():
        return ()
    generator = torch.Generator().manual_seed(0)
    change = torch.rand(value.shape, generator=generator).to(value) - 0.5
    changed = value + _SMALL * value.abs().mean() * change
    found = []
    for fn in constraints:
        copy = changed.clone()
        fn(copy)
        if not torch.equal(changed, value) and torch.equal(copy, value):
            found.append(name_of(fn))
    return tuple(found)


def undone_by(names: Sequence[str]) -> str:
    """Returns the part of a message that says which constraints undo small changes.

    Args:
        names: the names of the constraints.
    """
    return (
        f"Its constraint {quoted(names)} undoes small changes, as rounding does: train weights"
        " that are not rounded, and round a copy of them; or raise the rates."
    )

"""Finds constraints that undo changes of a parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from lightning_accum._checks import name_of, quoted
from lightning_accum.updates.constraints import Constraint

_SMALL = 1e-3  # change as a share of the mean size of the weights


def undoing(constraints: Sequence[Constraint], value: Tensor) -> tuple[str, ...]:
    """Returns the names of the constraints that undo small random changes of a copy.

    Args:
        constraints: the constraints of the parameter.
        value: the parameter, which they have changed already.

    Example:
        >>> import torch
        >>> undoing([lambda w: w.round_(), lambda w: w.clamp_(0.0, 3.0)], torch.ones(2))
        ('<lambda>',)
    """
    return _undoing(constraints, value, _slightly)


def resetting(constraints: Sequence[Constraint], value: Tensor) -> tuple[str, ...]:
    """Returns the names of the constraints that undo large random changes of a copy.

    Args:
        constraints: the constraints of the parameter.
        value: the parameter, which has not changed in a fit.

    Example:
        >>> import torch
        >>> resetting([lambda w: w.fill_(1.0), lambda w: w.clamp_(0.0, 3.0)], torch.ones(2))
        ('<lambda>',)
    """
    return _undoing(constraints, value, _greatly)


def _slightly(value: Tensor, noise: Tensor) -> Tensor:
    return value + _SMALL * value.abs().mean() * (noise - 0.5)


def _greatly(value: Tensor, noise: Tensor) -> Tensor:
    return (value + 1) * (noise + 0.5)


@torch.no_grad()
def _undoing(
    constraints: Sequence[Constraint],
    value: Tensor,
    change: Callable[[Tensor, Tensor], Tensor],
) -> tuple[str, ...]:
    """Returns the names of the constraints that undo a change.

    Args:
        constraints: the constraints of the parameter.
        value: the parameter.
        change: returns a changed copy from the parameter and from random numbers between 0 and 1.
    """
    if not value.is_floating_point() or not value.numel():
        return ()
    generator = torch.Generator().manual_seed(0)
    changed = change(value, torch.rand(value.shape, generator=generator).to(value))
    if torch.equal(changed, value):
        return ()
    found = []
    for fn in constraints:
        copy = changed.clone()
        fn(copy)
        if torch.equal(copy, value):
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

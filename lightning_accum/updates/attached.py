"""The updater of a module: how it is made, found and replaced."""

from __future__ import annotations

import copy

from torch import nn

from lightning_accum._checks import check_module
from lightning_accum._compat import compiled_from
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.updates.nonfinite import NonFinite
from lightning_accum.updates.unattached import forget_unattached, warn_of_unattached
from lightning_accum.updates.updater import Updater

# The updater is kept in the module's __dict__, not among its submodules: it is copied and pickled
# with the module, and the module's state dict, parameters and `load_from_checkpoint` do not see it.
_SLOT = "_lightning_accum_updater"


def get_updater(module: nn.Module) -> Updater | None:
    """Returns the updater of a module, or ``None`` if it has none.

    Args:
        module: any module.

    Example:
        >>> from torch import nn
        >>> get_updater(nn.Linear(2, 2)) is None
        True
    """
    if not isinstance(module, nn.Module):
        check_module(module=module)
    module = compiled_from(module)
    updater: Updater | None = module.__dict__.get(_SLOT)
    if updater is not None and updater.known_parent is not module:
        updater = _of_copy(updater)
        set_updater(module, updater)
    return updater


def _of_copy(updater: Updater) -> Updater:
    """Returns the updater of a module that is a copy, and has the updater of its original."""
    parent = updater.known_parent
    if parent is None or parent.__dict__.get(_SLOT) is not updater:
        return updater  # a deep copy has its own
    # A shallow copy shares the parameters: what is pending stays with the original.
    own: Updater = copy.deepcopy(updater)
    own.clear()
    return own


def set_updater(module: nn.Module, updater: Updater | None) -> None:
    """Sets the updater of a module, in place of any that it has.

    Args:
        module: any module.
        updater: its parameters become those of the module; ``None`` removes the module's updater.

    Raises:
        TypeError: if ``updater`` is not an :class:`Updater`.
    """
    check_module(module=module)
    module = compiled_from(module)
    if updater is None:
        module.__dict__.pop(_SLOT, None)
        return
    if not isinstance(updater, Updater):
        raise TypeError(
            f"Argument `updater` should be an Updater or None. Found `{type(updater).__name__}`."
        )
    updater.bind(module)
    updater.attached = True
    forget_unattached(module)
    module.__dict__[_SLOT] = updater


def attach_updater(
    module: nn.Module,
    *params: str,
    reduction: ReductionFn | str | None = None,
    nonfinite: NonFinite | None = None,
) -> Updater:
    """Returns the updater of a module; makes one, or adds the parameters to it, if necessary.

    The module needs no base class.

    Args:
        module: any module.
        *params: names of the module's own parameters.
        reduction: how contributions are reduced; ``None`` for the sum in a new updater, and for no
            change in one that the module has.
        nonfinite: the policy for NaN and Inf; ``None`` for ``"raise"`` in a new updater, and for no
            change in one that the module has.

    Returns:
        The module's updater.

    Raises:
        RuntimeError: if the reduction would change while contributions are pending; then nothing
            has changed.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> conv = nn.Conv2d(1, 2, 3)
        >>> updater = attach_updater(conv, "weight")
        >>> updater.weight = torch.ones(2, 1, 3, 3)
        >>> updater()
    """
    updater = get_updater(module)
    warn_of_unattached(compiled_from(module))
    if updater is None:
        updater = Updater(module, *params, reduction=reduction, nonfinite=nonfinite or "raise")
        set_updater(module, updater)
    else:
        updater.add(*params)
        updater.configure(reduction, nonfinite)
    return updater

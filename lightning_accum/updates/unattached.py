"""Constraints and bounds that were set on an updater that rules do not use."""

from __future__ import annotations

import warnings

from torch import nn

# As text, so that a pickled module needs no class of this package to load.
_SLOT = "_lightning_accum_unattached"


def note_unattached(module: nn.Module, what: str) -> None:
    """Notes what was set on an updater that is not attached to its module.

    Args:
        module: the module.
        what: names it in a message.
    """
    module.__dict__[_SLOT] = what


def forget_unattached(module: nn.Module) -> str | None:
    """Returns what :func:`note_unattached` noted, and forgets it.

    Args:
        module: the module.
    """
    what: str | None = module.__dict__.pop(_SLOT, None)
    return what


def warn_of_unattached(module: nn.Module) -> None:
    """Warns, once, of constraints and bounds that were noted: rules use another updater.

    Args:
        module: the module.
    """
    what = forget_unattached(module)
    if what is not None:
        warnings.warn(
            f"Constraints and bounds of `{type(module).__name__}` should be set on the updater that"
            f" is attached to it, which rules use. Found {what} on another one, which was made by"
            " hand: set them on the updater that `attach_updater(module)` returns.",
            UserWarning,
            stacklevel=3,
        )

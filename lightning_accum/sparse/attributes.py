"""Assigns several attributes of a module at once, without the checks of ``nn.Module``."""

from __future__ import annotations

from torch import nn


def assign(module: nn.Module, **values: object) -> None:
    """Assigns attributes that are neither parameters, buffers, modules nor properties.

    It equals one ``setattr`` for each. ``nn.Module.__setattr__`` looks for parameters, buffers and
    modules of the name, which takes longer than to add two scalars.

    Args:
        module: the module.
        **values: the new values by name.

    Example:
        >>> module = nn.Module()
        >>> assign(module, total=1, count=2)
        >>> module.total, module.count
        (1, 2)
    """
    module.__dict__.update(values)

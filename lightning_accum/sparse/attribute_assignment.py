"""Assigns several attributes of a module at once, without the checks of ``nn.Module``."""

from torch import nn


def assign(module: nn.Module, **values: object) -> None:
    """Assigns attributes that are neither parameters, buffers, modules nor properties."""
    # It equals one `setattr` for each. `nn.Module.__setattr__` looks for parameters, buffers and
    # modules of the name, which takes longer than to add two scalars.
    module.__dict__.update(values)

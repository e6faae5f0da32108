"""Which of a module's tensors can be updated, and why another cannot."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized


def uncompiled(module: nn.Module) -> nn.Module:
    """The module itself, where it is what :func:`torch.compile` gave for it.

    Example:
        >>> fc = nn.Linear(2, 1)
        >>> uncompiled(torch.compile(fc)) is uncompiled(fc) is fc
        True
    """
    known: Any = module._modules  # of a script, less than a dictionary
    return known["_orig_mod"] if "_orig_mod" in known else module


def parameter_of(module: nn.Module, name: str) -> Tensor | None:
    """The module's own parameter or buffer of a name; ``None`` where there is none.

    Where ``torch.nn.utils.prune`` computes ``name``, it is the original that it computes it from.

    Example:
        >>> from torch.nn.utils import prune
        >>> fc = nn.Linear(2, 1)
        >>> weight = fc.weight
        >>> _ = prune.l1_unstructured(fc, "weight", 1)
        >>> parameter_of(fc, "weight") is weight
        True
    """
    found: Tensor | None = module._parameters.get(name)
    if found is None:
        found = module._buffers.get(name)
    if found is None and module._buffers.get(f"{name}_mask") is not None:
        found = module._parameters.get(f"{name}_orig")
    return found


def updatable_param(module: nn.Module, name: str) -> Tensor:
    """The module's own parameter or buffer of that name.

    Raises:
        AttributeError: if there is none, or it is computed from others.
        TypeError: if it does not hold floating-point numbers, or the module is a script.
        ValueError: if it has no shape yet.
    """
    label = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError(
            "Argument `module` should be a module of Python. Found what `torch.jit` made of a"
            f" `{getattr(module, 'original_name', label)}`: train the module itself, and script it"
            " afterwards."
        )
    own = {k: v for k, v in (module._parameters | module._buffers).items() if v is not None}
    param = parameter_of(module, name)
    if param is None:
        computed = getattr(module, name, None) is not None
        raise AttributeError(
            f"Argument `params` should name parameters of `{label}`, which has {[*own]}."
            f" Found `{name}`{_remedy(module, name) if computed else '.'}"
        )
    if is_lazy(param):
        raise ValueError(
            f"Argument `params` should name parameters that have a shape. Found `{name}` of"
            f" `{label}`, which waits for its first input: call the module once before."
        )
    if not (param.is_floating_point() or param.is_complex()):
        raise TypeError(
            f"Argument `params` should name parameters and buffers of floating-point numbers: in"
            f" integers small changes would be lost. Found `{name}` of `{label}`, {param.dtype}:"
            " keep it in floating point, and round it where it is used."
        )
    return param


def _remedy(module: nn.Module, name: str) -> str:
    """How to train what is computed."""
    undo = "make it a parameter of the module"
    if is_parametrized(module, name):
        undo = f"call `torch.nn.utils.parametrize.remove_parametrizations(module, {name!r})`"
    elif f"{name}_g" in module._parameters:
        undo = f"call `torch.nn.utils.remove_weight_norm(module, {name!r})`"
    elif f"{name}_orig" in module._parameters:
        undo = f"call `torch.nn.utils.remove_spectral_norm(module, {name!r})`"
    return (
        f", which is computed from others before each use, so that a change of it would not last:"
        f" {undo}, and have what should hold after each update set by"
        " `updater.register_constraint(...)`, `Normalize()` for instance."
    )

"""The parameters of a module that can be updated, and messages for those that cannot."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from lightning_accum._compat.torch_internals import own_tensor
from lightning_accum.updates.pending import Pending

_TRANSPOSED = nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d  # [in, out, ...]


class PendingTarget(NamedTuple):
    """A parameter for which a change is pending, for one call of its updater."""

    name: str
    param: Tensor
    pending: Pending
    sharded: bool = False  # whether the parameter is spread over processes
    factor: float = 1.0  # of the bounded change
    options: Mapping[str, Any] = MappingProxyType({})  # for the bounds that take them


def parameter_of(module: nn.Module, name: str) -> Tensor | None:
    """Returns the module's own parameter or buffer of a name; ``None`` if it has none."""
    # If `torch.nn.utils.prune` computes the tensor, the original parameter is returned.
    found = own_tensor(module, name)
    if found is None and own_tensor(module, f"{name}_mask") is not None:
        found = own_tensor(module, f"{name}_orig")
    return found


def by_output(module: nn.Module, name: str, param: Tensor) -> list[Tensor]:
    """Returns views of a parameter, one for each group, whose first dimension counts outputs."""
    if name.removesuffix("_orig") == "weight":  # or what `torch.nn.utils.prune` made of it
        if isinstance(module, _TRANSPOSED):
            return [group.transpose(0, 1) for group in param.chunk(module.groups)]
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            return [param.transpose(0, 1)]
    return [param]


def follow_synapses(module: nn.Module, follower: Any) -> None:
    """Has a connection tell a follower, weakly, when its synapses are replaced, if they may be."""
    followers = getattr(module, "followers", None)
    if isinstance(followers, WeakSet):
        followers.add(follower)


def updatable_param(module: nn.Module, name: str) -> Tensor:
    """Returns the module's own parameter or buffer of a name, if it can be updated."""
    label = type(module).__name__
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError(
            "Argument `module` should be a module of Python. Found what `torch.jit` made of a"
            f" `{getattr(module, 'original_name', label)}`: train the module itself, and script it"
            " afterwards."
        )
    param = parameter_of(module, name)
    if param is None:
        own = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        raise AttributeError(
            f"Argument `params` should name parameters of `{label}`, which has"
            f" {[name for name, _ in own]}. Found `{name}`"
            f"{_remedy(module, name) if getattr(module, name, None) is not None else '.'}"
        )
    if is_lazy(param):
        raise ValueError(
            f"Argument `params` should name parameters that have a shape. Found `{name}` of"
            f" `{label}`, which waits for its first input: call the module once before."
        )
    if not (param.is_floating_point() or param.is_complex()):
        raise TypeError(
            f"Argument `params` should name parameters and buffers of floating-point numbers:"
            f" integers would lose small changes. Found `{name}` of `{label}`, {param.dtype}: keep"
            " it in floating point, and round it where it is used."
        )
    strides = param.stride() if param.layout == torch.strided else ()
    if any(size > 1 and not step for size, step in zip(param.shape, strides, strict=False)):
        raise ValueError(
            "Argument `params` should name parameters whose elements each have a place in memory."
            f" Found `{name}` of `{label}`, which was made by `expand`, so that a change of one"
            " element would change others: call `clone()` on it before it becomes a parameter."
        )
    return param


def _remedy(module: nn.Module, name: str) -> str:
    """Returns the end of a message: how to train a tensor that is computed from others."""
    undo = "make it a parameter of the module"
    if is_parametrized(module, name):
        undo = f"call `torch.nn.utils.parametrize.remove_parametrizations(module, {name!r})`"
    elif own_tensor(module, f"{name}_g") is not None:
        undo = f"call `torch.nn.utils.remove_weight_norm(module, {name!r})`"
    elif own_tensor(module, f"{name}_orig") is not None:
        undo = f"call `torch.nn.utils.remove_spectral_norm(module, {name!r})`"
    return (
        ", which is computed from others before each use, so that a change of it would not last:"
        f" {undo}, and register what should hold after each update with"
        " `updater.register_constraint(...)`, for example `Normalize()`."
    )

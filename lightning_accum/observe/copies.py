"""Copies of modules that may hold results of a forward pass."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from torch import Tensor, nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def copied(module: ModuleT, instead: Mapping[int, Tensor] | None = None) -> ModuleT:
    """Returns a deep copy of a module.

    Tensors that were computed with gradients, which ``copy.deepcopy`` rejects, are detached in it.

    Args:
        module: the module.
        instead: by the ``id`` of tensors that the module keeps, what the copy has in their place.

    Example:
        >>> import torch
        >>> relu = nn.ReLU()
        >>> relu.last = relu(torch.ones(2, requires_grad=True))
        >>> copied(relu).last
        tensor([1., 1.])
    """
    memo: dict[int, Any] = {id(each): each.detach().clone() for each in kept_tensors(module)}
    memo.update(instead or {})
    return copy.deepcopy(module, memo)


def kept_tensors(module: nn.Module) -> Iterator[Tensor]:
    """Yields the tensors, other than parameters, that a module and its submodules keep.

    Args:
        module: the module.
    """
    for owner in module.modules():
        yield from _tensors(vars(owner))


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yields the tensors in a value, which may be a container."""
    if isinstance(value, Tensor):
        if not isinstance(value, nn.Parameter):
            yield value
    elif isinstance(value, (dict, list, tuple)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _tensors(each)

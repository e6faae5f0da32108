"""Sharded parameters (torch's ``DTensor``): conversions between whole tensors and local shards.

All functions return a plain tensor unchanged.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor


def _module() -> Any:
    """Returns the module ``torch.distributed.tensor``; ``None`` if it was never imported."""
    return sys.modules.get("torch.distributed.tensor")


def is_sharded(tensor: Tensor) -> bool:
    """Returns whether this is a ``DTensor``.

    Example:
        >>> is_sharded(torch.ones(2))
        False
    """
    known = _module()
    return known is not None and isinstance(tensor, known.DTensor)


def local(tensor: Tensor) -> Tensor:
    """Returns the shard of this process, which shares memory with the tensor."""
    found: Any = tensor
    return found.to_local() if is_sharded(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """Returns the whole tensor from all shards; every process has to call it."""
    found: Any = tensor
    return found.full_tensor() if is_sharded(tensor) else tensor


def shard_like(value: Tensor, param: Tensor) -> Tensor:
    """Returns the section of ``value`` that matches the shard of ``param`` in this process.

    Args:
        value: a whole tensor of the shape of ``param``, the same in every process.
        param: the parameter.
    """
    if not is_sharded(param):
        return value
    mesh: Any = param.device_mesh  # type: ignore[attr-defined]
    replicated = [_module().Replicate()] * mesh.ndim
    spread = _module().DTensor.from_local(value, mesh, replicated, run_check=False)
    return local(spread.redistribute(placements=param.placements))  # type: ignore[attr-defined]


def sharded_like(shard: Tensor, param: Tensor) -> Tensor:
    """Returns a tensor with the layout of ``param`` that is made of every process's ``shard``.

    Args:
        shard: the shard of this process.
        param: the parameter.
    """
    if not is_sharded(param):
        return shard
    like: Any = param
    made: Tensor = _module().DTensor.from_local(
        shard,
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )
    return made


def any_process(flag: Tensor, param: Tensor) -> Tensor:
    """Returns whether a boolean scalar is true in any process that has a shard of ``param``.

    Every process has to call it.
    """
    if not is_sharded(param):
        return flag
    mesh: Any = param.device_mesh  # type: ignore[attr-defined]
    largest = [_module().Partial("max")] * mesh.ndim
    return whole(_module().DTensor.from_local(flag.to(torch.uint8), mesh, largest)).bool()

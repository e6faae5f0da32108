"""Parameters of which each process has a shard, torch's ``DTensor``: what is whole, what is local.

A plain tensor passes as it is, at the cost of a look at its type.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor


def _module() -> Any:
    """Torch's module of such tensors; ``None`` where nobody imported it, and there are none."""
    return sys.modules.get("torch.distributed.tensor")


def is_sharded(tensor: Tensor) -> bool:
    """Whether this is a ``DTensor``.

    Example:
        >>> is_sharded(torch.ones(2))
        False
    """
    known = _module()
    return known is not None and isinstance(tensor, known.DTensor)


def local(tensor: Tensor) -> Tensor:
    """This process' shard, which shares memory with the tensor."""
    found: Any = tensor
    return found.to_local() if is_sharded(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All shards together; every process has to ask for it."""
    found: Any = tensor
    return found.full_tensor() if is_sharded(tensor) else tensor


def shard_like(value: Tensor, param: Tensor) -> Tensor:
    """What of ``value``, whole and the same in every process, is in this one's shard of ``param``.

    Args:
        value: of the shape of ``param``.
        param: the parameter.
    """
    if not is_sharded(param):
        return value
    mesh: Any = param.device_mesh  # type: ignore[attr-defined]
    replicated = [_module().Replicate()] * mesh.ndim
    spread = _module().DTensor.from_local(value, mesh, replicated, run_check=False)
    return local(spread.redistribute(placements=param.placements))  # type: ignore[attr-defined]


def sharded_like(shard: Tensor, param: Tensor) -> Tensor:
    """The tensor, laid out as ``param``, of which this process has ``shard``."""
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


def anywhere(flag: Tensor, param: Tensor) -> Tensor:
    """Whether ``flag`` is set in any process that has a shard of ``param``; all have to ask."""
    if not is_sharded(param):
        return flag
    mesh: Any = param.device_mesh  # type: ignore[attr-defined]
    largest = [_module().Partial("max")] * mesh.ndim
    return whole(_module().DTensor.from_local(flag.to(torch.uint8), mesh, largest)).bool()

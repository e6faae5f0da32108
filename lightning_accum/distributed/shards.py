"""Sharded parameters, torch's ``DTensor``, and FSDP2; a plain tensor is returned unchanged."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

_NOTHING = nullcontext()


def _module() -> Any:
    """Returns the module ``torch.distributed.tensor``; ``None`` if it was never imported."""
    return sys.modules.get("torch.distributed.tensor")


def is_sharded(tensor: Tensor) -> bool:
    """Returns whether this is a ``DTensor``."""
    known = _module()
    return known is not None and isinstance(tensor, known.DTensor)


def local(tensor: Any) -> Tensor:
    """Returns the shard of this process, which shares memory with the tensor."""
    found: Tensor = tensor.to_local() if is_sharded(tensor) else tensor
    return found


def whole(tensor: Any) -> Tensor:
    """Returns the whole tensor from all shards; every process has to call it."""
    found: Tensor = tensor.full_tensor() if is_sharded(tensor) else tensor
    return found


def shard_like(value: Tensor, param: Any) -> Tensor:
    """Returns the section of ``value`` that matches the shard of ``param`` in this process."""
    if not is_sharded(param):
        return value
    mesh = param.device_mesh
    replicated = [_module().Replicate()] * mesh.ndim
    spread = _module().DTensor.from_local(value, mesh, replicated, run_check=False)
    return local(spread.redistribute(placements=param.placements))


def sharded_like(shard: Tensor, param: Any) -> Tensor:
    """Returns a tensor with the layout of ``param`` that is made of every process's ``shard``."""
    if not is_sharded(param):
        return shard
    layout = {"shape": param.shape, "stride": param.stride(), "run_check": False}
    make = _module().DTensor.from_local
    return make(shard, param.device_mesh, param.placements, **layout)  # type: ignore[no-any-return]


def any_process(flag: Tensor, param: Any) -> Tensor:
    """Returns whether a boolean scalar is true in any process that has a shard of ``param``."""
    # Every process has to call it.
    if not is_sharded(param):
        return flag
    mesh = param.device_mesh
    largest = [_module().Partial("max")] * mesh.ndim
    return whole(_module().DTensor.from_local(flag.to(torch.uint8), mesh, largest)).bool()


def is_fsdp(module: nn.Module) -> bool:
    """Returns whether ``fully_shard`` was called on this module."""
    known = sys.modules.get("torch.distributed.fsdp")  # a sharded module has imported it
    return known is not None and isinstance(module, known.FSDPModule)


def whole_parameters(holders: Sequence[Any]) -> AbstractContextManager[None]:
    """Gathers parameters inside the context, and shards them afterwards."""
    # Every process has to enter it.
    return _whole(holders) if holders else _NOTHING


@contextmanager
def _whole(holders: Sequence[Any]) -> Iterator[None]:
    for module in holders:
        module.unshard()
    try:
        yield
    finally:
        for module in holders:
            module.reshard()


class WithoutHooks(nn.Module):
    """Runs a module without its hooks, because those of FSDP2 wait for other processes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        """Calls the module's ``forward`` directly."""
        return self.module.forward(x)

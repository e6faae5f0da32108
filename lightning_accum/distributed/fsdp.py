"""Parameters under FSDP2: they are gathered while a rule reads them, and sharded afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from torch import Tensor, nn

from lightning_accum.distributed.shards import is_sharded

_NOTHING = nullcontext()


class Holder(Protocol):
    """An object that names parameters of a module, as an ``Updater`` does."""

    label: str

    @property
    def parent(self) -> nn.Module:
        """The module."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters."""

    def target(self, name: str) -> Tensor:
        """Returns the parameter of that name."""


def is_fsdp(module: nn.Module) -> bool:
    """Returns whether ``fully_shard`` was called on this module.

    Args:
        module: any module.

    Example:
        >>> is_fsdp(nn.Linear(2, 2))
        False
    """
    known = sys.modules.get("torch.distributed.fsdp")  # a sharded module has imported it
    return known is not None and isinstance(module, known.FSDPModule)


def shard_holders(model: nn.Module, updaters: Iterable[Holder]) -> list[Any]:
    """Returns the modules whose ``unshard`` and ``reshard`` move the parameters of ``updaters``.

    All parameters are sharded afterwards.

    Args:
        model: the model that contains the parameters.
        updaters: the updaters that name them.

    Raises:
        ValueError: if a parameter is sharded, but not by FSDP2.
    """
    wrapped = {name: module for name, module in model.named_modules() if is_fsdp(module)}
    for module in wrapped.values():
        module.reshard()
    names = {id(module): name for name, module in model.named_modules()}
    found: dict[int, Any] = {}
    for updater in updaters:
        params: dict[str, Tensor] = {n: updater.target(n) for n in updater.names}
        sharded = [name for name, param in params.items() if is_sharded(param)]
        path = names.get(id(updater.parent), "").split(".")
        above = [".".join(path[:depth]) for depth in range(len(path), -1, -1)]
        holder = next((wrapped[name] for name in above if name in wrapped), None)
        if sharded and holder is None:
            raise ValueError(
                f"Parameters of {updater.label} that cells train should be plain, or sharded by"
                f" `torch.distributed.fsdp.fully_shard`. Found DTensors of another kind: {sharded}."
            )
        if sharded:
            found[id(holder)] = holder
    return list(found.values())


def whole_parameters(holders: Sequence[Any]) -> AbstractContextManager[None]:
    """Gathers parameters inside the context, and shards them afterwards.

    Every process has to enter it.

    Args:
        holders: what :func:`shard_holders` returned.
    """
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
    """Runs a module without its hooks, because those of FSDP2 wait for other processes.

    Args:
        module: the module; the names of its parameters begin with ``"module."`` here.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Any:
        """Calls the module's ``forward`` directly."""
        return self.module.forward(x)

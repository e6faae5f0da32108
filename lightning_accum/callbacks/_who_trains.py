"""Which parameters of a model are trained: by a cell, by an optimizer, or by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lightning.pytorch as pl
from torch import nn

from lightning_accum.callbacks._host import CellHost
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.updates import Updater, get_updater


def trained(hosts: Sequence[CellHost], module: pl.LightningModule) -> set[int]:
    """Returns the ``id`` of each parameter of a cell, or in an optimizer of the Trainer."""
    return {*in_cells(hosts, module), *optimized(module, by_updates=True)}


def optimized(module: pl.LightningModule, by_updates: bool) -> Iterator[int]:
    """Yields the ``id`` of every parameter in an optimizer, also in one that applies updates."""
    for optimizer in module.trainer.optimizers:
        if by_updates or not isinstance(optimizer, UpdateOptimizer):
            for group in optimizer.param_groups:
                yield from map(id, group["params"])


def in_cells(hosts: Sequence[CellHost], module: nn.Module) -> Iterator[int]:
    """Yields the ``id`` of every parameter of a cell, also of rules that are called by hand."""
    yield from of_hosts(hosts)
    for updater in _attached(module):
        yield from (id(updater.target(name)) for name in updater.names)


def of_hosts(hosts: Sequence[CellHost]) -> Iterator[int]:
    """Yields the ``id`` of every parameter of a cell."""
    for host in hosts:
        for updater in host.updaters.values():
            yield from (id(updater.target(name)) for name in updater.names)


def applied(module: nn.Module) -> Iterator[int]:
    """Yields the ``id`` of every parameter of which an updater has applied or holds a change."""
    for updater in _attached(module):
        for name in updater.names:
            if updater.applied.get(name) or getattr(updater, name).unused:
                yield id(updater.target(name))


def _attached(module: nn.Module) -> Iterator[Updater]:
    """Yields the updaters of a model's modules."""
    found = (get_updater(each) for each in module.modules())
    return (updater for updater in found if updater is not None)


def learning(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yields the parameters that require grad and belong to modules in training mode, by name."""
    for path, each in module.named_modules():
        for name, param in each.named_parameters(path, recurse=False):
            if each.training and param.requires_grad:
                yield name, param

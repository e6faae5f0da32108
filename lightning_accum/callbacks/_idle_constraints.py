"""Finds constraints and bounds that never run, because no rule updates their parameter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import nn

from lightning_accum._checks import quoted
from lightning_accum.callbacks._host import CellHost
from lightning_accum.updates import Updater, get_updater


def idle_constraints(hosts: Sequence[CellHost], module: nn.Module) -> list[str]:
    """Returns a line on the parameters whose constraints and bounds have never run.

    A constraint on several parameters may be meant for those that are updated alone. Modules in
    evaluation mode are left out: their turn may come.

    Args:
        hosts: the hosts of all callbacks of the fit, whose cells are bound.
        module: the module that is trained.
    """
    trained = {
        id(updater.target(param))
        for host in hosts
        for updater, cells in host.trainer.updaters.values()
        for cell in cells
        for param in host.trainer.params_of(cell)
    }
    found = [
        f"{path}.{name}" if path else name
        for path, each in module.named_modules()
        if each.training and (updater := get_updater(each)) is not None
        for name in _idle(updater, trained)
    ]
    if not found:
        return []
    return [
        f"No constraint or bound of {quoted(found)} has ever run: they run after a rule's update,"
        " and there was none. Name the parameter in a cell, as in"
        ' `CellSpec(connection, neuron, params=("weight", "bias"))`, set them on one that a cell'
        " trains, or, if an optimizer trains it, limit it yourself after the optimizer's step."
    ]


def _idle(updater: Updater, trained: set[int]) -> Iterator[str]:
    """Yields the parameters with a constraint or a bound that never ran."""
    used = {
        name
        for name in updater.names
        if updater.applied.get(name)
        or getattr(updater, name).unused
        or id(updater.target(name)) in trained
    }
    run = {id(fn) for name in used for fn in updater.constraints_of(name)}
    for name in updater.names:
        limits = {id(fn) for fn in updater.constraints_of(name)}
        if name not in used and (limits - run or getattr(updater, name).bounded):
            yield name

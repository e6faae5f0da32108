"""The checks that a network which learns from an error, or by gradients too, learns as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_warn
from torch import nn
from torch.optim import Optimizer

from lightning_accum.callbacks._host import CellHost
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.updates import Updater, get_updater

_MOST = 8  # names in a message


def check_trained(host: CellHost, hosts: Sequence[CellHost], module: pl.LightningModule) -> bool:
    """Warns of parameters that neither a cell nor an optimizer trains.

    Only the first of several hosts whose rules follow an error names them. Parameters without
    ``requires_grad``, and those of modules in evaluation mode, may stay as they are.

    Args:
        host: the host whose training begins.
        hosts: the hosts of all callbacks of this fit, whose cells are bound.
        module: the LightningModule.

    Returns:
        Whether this is the first of those whose rules follow an error.
    """
    trained = set(_in_cells(hosts, module)).union(
        id(param)
        for optimizer in module.trainer.optimizers
        for group in optimizer.param_groups
        for param in group["params"]
    )
    host.trainer.check_trained(trained)
    if host is not next((each for each in hosts if each.trainer.follows_error), None):
        return False
    left = [name for name, param in _learning(module) if id(param) not in trained]
    if left:
        rank_zero_warn(
            f"Each parameter of a network that learns from an error, by"
            f" `{type(host.trainer).__name__}`, should be trained by a cell or an optimizer. Found"
            f" neither for {_named(left)}: name it in a cell, as in `CellSpec(connection, neuron,"
            ' params=("weight", "bias"))`, pass it to an optimizer, or call'
            " `requires_grad_(False)` on it if it is to stay as it is."
        )
    return True


def check_gradients(
    optimizer: Optimizer, hosts: Sequence[CellHost], module: pl.LightningModule
) -> None:
    """Warns of an optimizer's parameters that got no gradient, if neurons of the model pass none.

    Parameters of a cell are left out, as are others of its connection if its rule is not one that
    trains the network as a whole.

    Args:
        optimizer: the optimizer, whose step begins.
        hosts: the hosts of all callbacks of this fit.
        module: the LightningModule.
    """
    params = (param for group in optimizer.param_groups for param in group["params"])
    lacks = {id(param): param.grad is None for param in params}
    walls = [path for path, each in module.named_modules() if _passes_none(each)]
    if isinstance(optimizer, UpdateOptimizer) or not walls or all(lacks.values()):
        return
    local = set(_in_cells(hosts, module)).union(
        id(param)
        for host in hosts
        for cell, _ in host.trainer.cells
        if not host.trainer.follows_error
        for param in cell.connection.parameters()
    )
    left = [name for name, p in _learning(module) if lacks.get(id(p), False) and id(p) not in local]
    if left:
        rank_zero_warn(
            f"Each parameter in `{type(optimizer).__name__}` should have a gradient when it steps."
            f" Found none of {_named(left)}, and neurons that pass no gradient to what is below"
            f" them: {_named(walls)}. Make these as"
            ' `SurrogateLIF(..., gradient="step")` or `"time"`, train the parameters by a cell, or'
            " leave them out of the optimizer."
        )


def _passes_none(module: nn.Module) -> bool:
    """Returns whether a module is a layer of neurons whose spikes have no gradient."""
    return getattr(module, "gradient", None) == "none"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(f"`{name}`" for name in names[:_MOST]) + more


def _in_cells(hosts: Sequence[CellHost], module: nn.Module) -> Iterator[int]:
    """Yields the ``id`` of every parameter of a cell, also of rules that are called by hand."""
    updaters: list[Updater | None] = [each for host in hosts for each in host.updaters.values()]
    updaters += [get_updater(each) for each in module.modules()]
    for updater in updaters:
        if updater is not None:
            yield from (id(updater.target(name)) for name in updater.names)


def _learning(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Yields the parameters that require grad and belong to modules in training mode, by name."""
    for path, each in module.named_modules():
        for name, param in each.named_parameters(path, recurse=False):
            if each.training and param.requires_grad:
                yield name, param

"""The checks for parameters of a model that neither cells nor optimizers train."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from lightning_accum._checks import quoted
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._marks import has_changed, mark
from lightning_accum.callbacks._who_trains import (
    applied,
    in_cells,
    learning,
    of_hosts,
    optimized,
    trained,
)
from lightning_accum.optim import UpdateOptimizer

_MOST = 8  # names in a message
_PASS = (
    'Make these as `SurrogateLIF(..., gradient="step")` or `"time"`, train the parameters by a cell'
)


def check_trained(host: CellHost, hosts: Sequence[CellHost], module: pl.LightningModule) -> bool:
    """Warns of parameters that neither a cell nor an optimizer trains.

    Only the first of several hosts whose rules follow an error names them. Parameters without
    ``requires_grad``, and those of modules in evaluation mode, need not be trained.

    Args:
        host: the host whose training begins.
        hosts: the hosts of all callbacks of this fit, whose cells are bound.
        module: the LightningModule.

    Returns:
        Whether ``host`` is the first of those whose rules follow an error.
    """
    known = trained(hosts, module)
    host.trainer.check_trained(known)
    if host is not next((each for each in hosts if each.trainer.follows_error), None):
        return False
    left = [name for name, param in learning(module) if id(param) not in known]
    if left:
        _warn_of_untrained(host, left)
    return True


def untrained_layers(hosts: Sequence[CellHost], module: pl.LightningModule) -> list[str]:
    """Returns a line on the layers of which neither a cell nor an optimizer trains anything.

    There is none if a rule follows an error, of whose network a warning names each parameter.

    Args:
        hosts: the hosts of all callbacks of this fit, whose cells are bound.
        module: the LightningModule.
    """
    known = {id(param) for _, param in learning(module)}
    done = {*of_hosts(hosts), *applied(module), *optimized(module, by_updates=False)}
    left = []
    for path, each in module.named_modules():
        own = {id(param) for param in each.parameters(recurse=False)}
        if own and own <= known and not own & done:
            left.append(path or type(each).__name__)
    if not left or any(host.trainer.follows_error for host in hosts):
        return []
    return [
        f"Neither a rule nor an optimizer trained {_named(left)}: name it in a cell, pass it to an"
        " optimizer, or call `requires_grad_(False)` on what should not be trained."
    ]


def check_gradients(
    optimizer: Optimizer, hosts: Sequence[CellHost], module: pl.LightningModule
) -> bool:
    """Warns of an optimizer's parameters that got no gradient, if neurons of the model pass none.

    Parameters of a cell are left out, and so are all of its connection unless its rule follows an
    error.

    Args:
        optimizer: the optimizer, whose step begins.
        hosts: the hosts of all callbacks of this fit.
        module: the LightningModule.

    Returns:
        Whether it has warned.
    """
    params = (param for group in optimizer.param_groups for param in group["params"])
    lacks = {id(param): param.grad is None for param in params}
    if isinstance(optimizer, UpdateOptimizer) or all(lacks.values()):
        return False
    own = {*in_cells(hosts, module), *_beside_local_rules(hosts)}
    left = [name for name, p in learning(module) if lacks.get(id(p), False) and id(p) not in own]
    walls = _walls(module)
    above = _may_be_above(walls, left, module)
    if above:
        rank_zero_warn(
            f"Each parameter in `{type(optimizer).__name__}` should have a gradient when it steps."
            f" Found none of {_named(left)}, and neurons that pass no gradient to what is below"
            f" them: {_named(walls)}. {_PASS}, or leave them out of the optimizer."
        )
    return above


class IdleParameters:
    """Finds parameters that the optimizers of a fit hold and never change.

    Args:
        hosts: the hosts of all callbacks of this fit, whose cells are bound.
        module: the LightningModule.
    """

    def __init__(self, hosts: Sequence[CellHost], module: pl.LightningModule) -> None:
        self._cells = set(in_cells(hosts, module))
        self._module = module
        self._began = {key: mark(p) for key, (p, _) in self._optimized().items()}

    def lines(self) -> list[str]:
        """Returns a line on each optimizer with such parameters, at the end of the fit."""
        idle: dict[str, list[str]] = {}
        names = {id(param): name for name, param in learning(self._module)}
        for key, (param, optimizer) in self._optimized().items():
            began = self._began.get(key)
            if began and key in names and not has_changed(began, mark(param)):
                idle.setdefault(optimizer, []).append(names[key])
        return [
            f"`{optimizer}` has not changed {_named(left)} since the fit began: return a loss that"
            " depends on them, not by way of a `detach()`, from `training_step`, or step it after"
            " `manual_backward(loss)`, or leave them out of it."
            for optimizer, left in idle.items()
        ]

    def _optimized(self) -> dict[int, tuple[Tensor, str]]:
        """Returns, by ``id``, parameters outside cells with the name of their optimizer."""
        return {
            id(param): (param, type(optimizer).__name__)
            for optimizer in self._module.trainer.optimizers
            if not isinstance(optimizer, UpdateOptimizer)
            for group in optimizer.param_groups
            for param in group["params"]
            if group.get("lr", 1.0) and id(param) not in self._cells and not is_lazy(param)
        }


class StillParameters:
    """Finds parameters that never change, in a loop that does not name its optimizers.

    A parameter counts as trained if it was written to, or has other values.

    Args:
        host: the host, whose cells are bound.
        module: the module that is trained.
    """

    def __init__(self, host: CellHost, module: nn.Module) -> None:
        self._host = host
        self._module = module
        self._began = {id(p): mark(p) for _, p in learning(module)}

    def check(self) -> None:
        """Warns, once, of parameters that neither a cell nor an optimizer trains."""
        began, self._began = self._began, {}
        now = [(name, p) for name, p in learning(self._module) if id(p) in began]
        moved = {id(p) for _, p in now if has_changed(began[id(p)], mark(p))}
        hosts = [self._host]
        known = moved.union(of_hosts(hosts), applied(self._module))
        if began:
            self._host.trainer.check_trained(known)
        if self._host.trainer.follows_error:
            left = [name for name, p in now if id(p) not in known]
            if left:
                _warn_of_untrained(self._host, left)
            return
        own = {*of_hosts(hosts), *applied(self._module), *_beside_local_rules(hosts)}
        left = [name for name, p in now if id(p) not in own | moved]
        walls = _walls(self._module)
        if left and walls and moved - own:  # an optimizer is at work
            why = ": optimize them by a loss that depends on them, not by way of a `detach()`"
            if _may_be_above(walls, left, self._module):
                why = f", and neurons that pass no gradient to what is below them: {_named(walls)}"
                why += f". {_PASS}"
            rank_zero_warn(
                "Each parameter outside of cells should change when an optimizer steps. Found"
                f" {_named(left)} as before{why}, or call `requires_grad_(False)` on them if they"
                " should not be trained."
            )


def _warn_of_untrained(host: CellHost, left: Sequence[str]) -> None:
    rank_zero_warn(
        f"Each parameter of a network that learns from an error, by"
        f" `{type(host.trainer).__name__}`, should be trained by a cell or an optimizer. Found"
        f" neither for {_named(left)}: name it in a cell, as in `CellSpec(connection, neuron,"
        ' params=("weight", "bias"))`, pass it to an optimizer, or call'
        " `requires_grad_(False)` on it if it should not be trained."
    )


def _beside_local_rules(hosts: Sequence[CellHost]) -> Iterator[int]:
    """Yields the ``id`` of every parameter of connections that learn by a local rule."""
    for host in hosts:
        if not host.trainer.follows_error:
            for cell, _ in host.trainer.cells:
                yield from map(id, cell.connection.parameters())


def _walls(module: nn.Module) -> list[str]:
    """Returns the paths of neurons that pass no gradient."""
    return [path for path, each in module.named_modules() if _passes_none(each)]


def _may_be_above(walls: Sequence[str], left: Sequence[str], module: nn.Module) -> bool:
    """Returns whether neurons may come after some parameters, as the last does in the module.

    Args:
        walls: the paths of neurons, in the module's order.
        left: the names of parameters, in the module's order.
        module: the module.
    """
    if not walls or not left:
        return False
    paths = [path for path, _ in module.named_modules()]
    first, last = left[0].rpartition(".")[0], walls[-1]
    return first.startswith(f"{last}.") or paths.index(first) <= paths.index(last)


def _passes_none(module: nn.Module) -> bool:
    """Returns whether a module is a layer of neurons whose spikes have no gradient."""
    return getattr(module, "gradient", None) == "none"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return quoted(names[:_MOST], ", ") + more

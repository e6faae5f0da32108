"""The check that the output of each cell's connection goes into the cell's neuron."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from lightning_accum.callbacks._module_watch import ModuleWatch
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.world import is_first
from lightning_accum.observe.tensors import shares_memory, tensors_in

_PLAIN = (nn.Identity, nn.Sequential, nn.Dropout)  # a network may have several for each neuron


class Wiring:
    """Watches the modules of cells in one batch.

    A cell is wrong if its connection's own output went into another module of its neuron's class,
    which no cell of that connection names, and never into its neuron. Results of further modules,
    sums, products and copies are not followed.

    Args:
        trainer: the trainer of the cells.
        model: the model with the cells, and perhaps other neurons of the same classes.
    """

    def __init__(self, trainer: CellTrainer, model: nn.Module) -> None:
        self._model = model
        self._cells = [
            (name, cell, others)
            for name, (cell, _) in trainer.named_cells
            if (others := _others(cell.neuron, model))
        ]
        self._out = _Outputs(trainer)
        self._in = _Inputs(trainer, self._out.latest)

    def register(self) -> None:
        """Registers the hooks."""
        connections = {id(cell.connection): cell.connection for _, cell, _ in self._cells}
        neurons = (each for _, cell, others in self._cells for each in (cell.neuron, *others))
        self._out.hook(connections.values(), nn.Module.register_forward_hook)
        unique = {id(each): each for each in neurons}.values()
        self._in.hook(unique, nn.Module.register_forward_pre_hook, with_kwargs=True)

    def remove(self) -> None:
        """Removes the hooks."""
        self._out.remove()
        self._in.remove()
        self._out.latest.clear()

    def batch_ended(self) -> bool:
        """Removes the hooks, and warns of cells that name another neuron than the one in use.

        Returns:
            ``False``: one batch is enough.
        """
        self.remove()
        named: dict[int, set[int]] = {}  # neurons that cells name, by their connection
        for _, cell, _ in self._cells:
            named.setdefault(id(cell.connection), set()).add(id(cell.neuron))
        for name, cell, others in self._cells:
            connection = id(cell.connection)
            went = self._in.went.get(connection, set())
            found = [each for each in others if id(each) in went - named[connection]]
            if id(cell.neuron) not in went and found and is_first():
                warnings.warn(self._message(name, cell, found[0]), UserWarning, stacklevel=2)
        return False

    def _message(self, name: str, cell: Cell, found: nn.Module) -> str:
        paths = {id(module): path for path, module in self._model.named_modules()}
        connection, neuron, other = (
            paths.get(id(module), f"a {type(module).__name__}")
            for module in (cell.connection, cell.neuron, found)
        )
        return (
            f"The neuron of cell `{name}` should take in the output of its connection. Found that"
            f" the output of `{connection}` goes into `{other}`, and not into `{neuron}`, so that"
            f" the cell learns from neurons that it does not drive: name `{other}` as the neuron."
        )


class _Outputs(ModuleWatch):
    """Keeps the latest output of each connection, while activity is recorded."""

    def __init__(self, trainer: CellTrainer) -> None:
        super().__init__(trainer)
        self.latest: dict[int, Tensor] = {}

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Keeps an output."""
        for tensor in tensors_in(rest):
            self.latest[id(module)] = tensor.detach()
            return


class _Inputs(ModuleWatch):
    """Notes which neurons take in the latest output of which connection."""

    def __init__(self, trainer: CellTrainer, given: Mapping[int, Tensor]) -> None:
        super().__init__(trainer)
        self._given = given
        self.went: dict[int, set[int]] = {}

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Compares the inputs of a neuron with the outputs."""
        (kwargs,) = rest
        for tensor in tensors_in((*args, *kwargs.values())):
            for connection, given in self._given.items():
                if shares_memory(tensor, given):
                    self.went.setdefault(connection, set()).add(id(module))


def _others(neuron: nn.Module, model: nn.Module) -> list[nn.Module]:
    """Returns the other modules of a neuron's class, without those around or inside it."""
    if isinstance(neuron, _PLAIN):
        return []
    inside = {id(module) for module in neuron.modules()}
    return [
        module
        for module in model.modules()
        if type(module) is type(neuron)
        and id(module) not in inside
        and all(part is not neuron for part in module.modules())
    ]

"""The check that connections run with the weights that their rule changes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from lightning_accum.callbacks._module_watch import ModuleWatch
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.shards import is_sharded
from lightning_accum.distributed.world import is_first
from lightning_accum.updates.targets import parameter_of


class OtherWeights(ModuleWatch):
    """Watches in one batch whether connections have the parameters that they have after it.

    ``torch.func.functional_call`` replaces them for a call. Parameters that are sharded are not
    looked at: they are replaced by whole ones wherever they are used.

    Args:
        trainer: the trainer of the cells.
    """

    def __init__(self, trainer: CellTrainer) -> None:
        super().__init__(trainer)
        self._cells = [
            (name, cell.connection, tuple(trainer.params_of(name)))
            for name, (cell, _) in trainer.named_cells
        ]
        self._used: dict[tuple[int, str], Tensor | None] = {}

    def register(self) -> None:
        """Registers the hooks."""
        connections = {id(module): module for _, module, _ in self._cells}
        self.hook(connections.values(), nn.Module.register_forward_hook)

    def remove(self) -> None:
        """Removes the hooks, and forgets the parameters."""
        super().remove()
        self._used.clear()

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Notes the parameters that a connection has in a call."""
        for _, connection, params in self._cells:
            if connection is module:
                for param in params:
                    self._used[id(module), param] = parameter_of(module, param)

    def batch_ended(self) -> bool:
        """Warns of connections that have other parameters now.

        Returns:
            ``False``: one batch is enough.
        """
        found = list(self._replaced())
        self.remove()
        for cell, param in found if is_first() else ():
            warnings.warn(
                f"The connection of cell `{cell}` should run with the `{param}` that its rule"
                " changes. Found that it ran with another tensor, as under"
                " `torch.func.functional_call`, so that learning does not change what is"
                " recorded: call the module itself, or leave the call out of the training step.",
                UserWarning,
                stacklevel=2,
            )
        return False

    def _replaced(self) -> Iterator[tuple[str, str]]:
        for cell, connection, params in self._cells:
            for param in params:
                used, now = self._used.get((id(connection), param)), parameter_of(connection, param)
                if used is None or now is None or is_sharded(used) or is_sharded(now):
                    continue
                if used is not now and used.data_ptr() != now.data_ptr():
                    yield cell, param

"""The check that modules begin the first batches of a fit at rest."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping

from torch import nn

from lightning_accum.callbacks._module_watch import ModuleWatch
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.world import is_first

BATCHES = 4
"""The number of batches that are watched."""


class FirstCalls(ModuleWatch):
    """Warns of modules that begin each of the first batches in the state that the last one left.

    A subclass compares states at the first call of a module in a batch.

    Args:
        trainer: the trainer of the cells.
        modules: by ``id``, what to call each module in a warning, and the module.
    """

    def __init__(self, trainer: CellTrainer, modules: Mapping[int, tuple[str, nn.Module]]) -> None:
        super().__init__(trainer)
        self.modules = modules
        self.began: set[int] = set()  # the modules that were called in this batch
        self._kept: dict[int, int] = {}  # batches in a row that a module began with a state
        self._batches = 0

    @abstractmethod
    def why(self, module: nn.Module) -> tuple[str, str]:
        """Returns how a module kept its state, and how to mend it."""

    def note_first(self, module: nn.Module, kept: bool) -> None:
        """Notes the first call of a module in a batch.

        Args:
            module: the module.
            kept: whether it begins in the state that the previous batch left.
        """
        self._kept[id(module)] = self._kept.get(id(module), 0) + 1 if kept else 0

    def would_warn(self, module: nn.Module) -> bool:
        """Returns whether it warns of a module that begins this batch with a state too."""
        return self._kept.get(id(module), 0) == BATCHES - 2

    def batch_ended(self) -> bool:
        """Returns whether to go on watching; warns in the last batch."""
        self._batches += 1
        self.began.clear()
        if self._batches < BATCHES:
            return bool(self.modules)
        self.remove()
        for key, (what, module) in self.modules.items():
            if self._kept.get(key, 0) == BATCHES - 1 and is_first():
                found, how = self.why(module)
                warnings.warn(
                    f"{what}, a `{type(module).__name__}`, should begin each batch at rest. Found"
                    f" that {found}, so that samples begin in the state that others left: {how} at"
                    " the beginning of `training_step`, or pass `carry=True` if batches are pieces"
                    " of one stream.",
                    RuntimeWarning,
                    stacklevel=3,
                )
        return False

"""Hooks on modules in the first batches of a fit."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from lightning_accum.cells.trainer import CellTrainer


class ModuleWatch:
    """Sees the calls of modules while a trainer records; code that is compiled is not watched.

    A subclass registers :class:`~lightning_accum.observe.hooks.Hook` objects, and adds their
    handles to ``handles``.

    Args:
        trainer: the trainer of the cells.
    """

    def __init__(self, trainer: CellTrainer) -> None:
        self._trainer = trainer
        self.handles: list[RemovableHandle] = []

    def remove(self) -> None:
        """Removes the hooks."""
        for handle in self.handles:
            handle.remove()

    def is_recording(self, module: nn.Module) -> bool:
        """Returns whether activity is recorded."""
        return not torch.compiler.is_compiling() and self._trainer.recording

"""Hooks on modules in the first batches of a fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.observe.hooks import Hook


class ModuleWatch(ABC):
    """Sees the calls of modules while a trainer records; code that is compiled is not watched.

    A subclass registers :class:`~lightning_accum.observe.hooks.Hook` objects in ``register``.

    Args:
        trainer: the trainer of the cells.
    """

    def __init__(self, trainer: CellTrainer) -> None:
        self._trainer = trainer
        self._handles: list[RemovableHandle] = []

    @abstractmethod
    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Looks at a call of a module, as a hook on it gets it."""

    def hook(
        self,
        modules: Iterable[nn.Module],
        register: Callable[..., RemovableHandle],
        **options: bool,
    ) -> None:
        """Registers a hook on each module.

        Args:
            modules: the modules.
            register: the method of a module that registers it, as ``nn.Module`` has it.
            **options: passed to that method.
        """
        for module in modules:  # an interrupt in between leaves no hook without its handle
            self._handles.append(register(module, Hook(self, module), **options))

    def remove(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()

    def is_recording(self, module: nn.Module) -> bool:
        """Returns whether activity is recorded."""
        return not torch.compiler.is_compiling() and self._trainer.recording

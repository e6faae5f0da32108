"""Hooks on modules in the first batches of a fit, and what they look for in their calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
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


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Yields the tensors in arguments or results, which may be nested tuples, lists or dicts."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for each in values:
            yield from tensors_in(each)
    elif isinstance(values, dict):
        yield from tensors_in([*values.values()])


def shares_memory(tensor: Tensor, other: Tensor) -> bool:
    """Returns whether a tensor lies in the memory of another one."""
    try:
        place = tensor.untyped_storage().data_ptr()
        return place != 0 and place == other.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # a tensor without storage
        return False

"""The check that a state that the model passes to its neurons does not last over batches."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor, nn

from lightning_accum._compat import version
from lightning_accum.callbacks._module_watch import ModuleWatch, shares_memory, tensors_in
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.world import is_first
from lightning_accum.nn.neuron import Neurons
from lightning_accum.observe.hooks import Hook

_BATCHES = 4  # number of batches that are watched


class PassedState(ModuleWatch):
    """Watches whether neurons are given, at the first call of a batch, what the last one returned.

    These are neurons whose state the model keeps and passes on, as those of Norse and snnTorch.
    Such a state may be detached in between, but holds the same memory.

    Args:
        trainer: the trainer of the cells.
    """

    def __init__(self, trainer: CellTrainer) -> None:
        super().__init__(trainer)
        self._batches = 0
        self._returned: dict[int, list[tuple[Tensor, float]]] = {}  # in its last call
        self._kept: dict[int, int] = {}  # in how many batches in a row it was given that
        self._began: set[int] = set()  # the neurons that were called in this batch
        self._neurons = {
            id(cell.neuron): (name, cell.neuron)
            for name, (cell, _) in trainer.named_cells
            if not isinstance(cell.neuron, Neurons)  # which are never given a state
        }
        self.handles = [
            neuron.register_forward_hook(Hook(self, neuron), with_kwargs=True)
            for _, neuron in self._neurons.values()
        ]

    def remove(self) -> None:
        """Removes the hooks, and forgets what the neurons returned."""
        super().remove()
        self._returned.clear()

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Compares what the first call of a batch is given, and keeps what a call returns."""
        kwargs, returned = rest
        key = id(module)
        if key not in self._began:
            self._began.add(key)
            given = [*tensors_in((*args, *kwargs.values()))][1:]  # but for the current
            before = self._returned.get(key, ())
            kept = any(_is_that(each, *left) for each in given for left in before)
            self._kept[key] = self._kept.get(key, 0) + 1 if kept else 0
        # Kept as they are: memory that were given back could be that of other tensors.
        self._returned[key] = [(each, version(each)) for each in tensors_in(returned)]

    def batch_ended(self) -> bool:
        """Returns whether to go on watching; warns in the last batch."""
        self._batches += 1
        self._began.clear()
        if self._batches < _BATCHES:
            return bool(self._neurons)
        self.remove()
        for key, (name, neuron) in self._neurons.items():
            if self._kept.get(key, 0) == _BATCHES - 1 and is_first():
                warnings.warn(_message(name, neuron), RuntimeWarning, stacklevel=2)
        return False


def _message(name: str, neuron: nn.Module) -> str:
    return (
        f"The neuron of cell `{name}`, a `{type(neuron).__name__}`, should begin each batch at"
        " rest. Found that its first call is given the state that it returned in the batch"
        " before, so that samples begin in the state that others left: pass none, or a new one,"
        " at the beginning of `training_step`, or pass `carry=True` if batches are pieces of one"
        " stream."
    )


def _is_that(given: Tensor, left: Tensor, count: float) -> bool:
    """Returns whether a tensor is one that was returned, or detached from it, and not changed."""
    return given.shape == left.shape and shares_memory(given, left) and version(given) == count

"""The check that a state that the model passes to its neurons does not last over batches."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lightning_accum._compat import version
from lightning_accum.callbacks._first_calls import FirstCalls
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.nn.neuron import Neurons
from lightning_accum.observe.tensors import shares_memory, tensors_in


class PassedState(FirstCalls):
    """Watches whether neurons are given, at the first call of a batch, what the last one returned.

    These are neurons whose state the model keeps and passes on, as those of Norse and snnTorch.
    Such a state may be detached in between, but holds the same memory.

    Args:
        trainer: the trainer of the cells.
    """

    def __init__(self, trainer: CellTrainer) -> None:
        neurons = {
            id(cell.neuron): (f"The neuron of cell `{name}`", cell.neuron)
            for name, (cell, _) in trainer.named_cells
            if not isinstance(cell.neuron, Neurons)  # which are never given a state
        }
        super().__init__(trainer, neurons)
        self._returned: dict[int, list[tuple[Tensor, float]]] = {}  # in its last call

    def register(self) -> None:
        """Registers the hooks."""
        neurons = (neuron for _, neuron in self.modules.values())
        self.hook(neurons, nn.Module.register_forward_hook, with_kwargs=True)

    def remove(self) -> None:
        """Removes the hooks, and forgets what the neurons returned."""
        super().remove()
        self._returned.clear()

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Compares the arguments of the first call of a batch, and keeps the result of a call."""
        kwargs, returned = rest
        key = id(module)
        if key not in self.began:
            self.began.add(key)
            given = [*tensors_in((*args, *kwargs.values()))][1:]  # but for the current
            before = self._returned.get(key, ())
            self.note_first(module, any(_is_that(each, *left) for each in given for left in before))
        # The tensors themselves are kept, so that their memory does not become that of others.
        self._returned[key] = [(each, version(each)) for each in tensors_in(returned)]

    def why(self, module: nn.Module) -> tuple[str, str]:
        """Returns how a neuron keeps its state, and how to mend it."""
        return (
            "its first call is given the state that it returned in the batch before",
            "pass none, or a new one,",
        )


def _is_that(given: Tensor, left: Tensor, count: float) -> bool:
    """Returns whether a tensor is one that was returned, or detached from it, and not changed."""
    return given.shape == left.shape and shares_memory(given, left) and version(given) == count

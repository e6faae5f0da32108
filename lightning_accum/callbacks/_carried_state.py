"""The check that neurons of other libraries begin each batch at rest."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_accum._compat import version
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.world import is_first
from lightning_accum.observe.hooks import Hook

_BATCHES = 4  # number of batches that are watched
_RESETS = ("reset_mem", "reset", "reset_state", "reset_state_variables", "reset_states")

State = dict[str, tuple[weakref.ref[Tensor], int, torch.Size]]
"""By attribute, each tensor with its version and its shape."""


class CarriedState:
    """Watches whether neurons begin the first batches in the state that the previous batch left.

    Native neurons count their steps since a reset, and are checked with the traces of the rule.

    Args:
        trainer: the trainer of the cells.
    """

    def __init__(self, trainer: CellTrainer) -> None:
        self._trainer = trainer
        self._batches = 0
        self._left: dict[int, State] = {}  # by the id of each neuron, its state after a batch
        self._kept: dict[int, int] = {}  # and in how many batches in a row it began with that
        self._began: set[int] = set()  # the neurons that were called in this batch
        self._names: dict[int, str] = {}  # what a neuron kept
        self._neurons: dict[int, tuple[str, nn.Module]] = {}
        self._whole: set[int] = set()  # the neurons that take whole sequences
        for name, (cell, state) in trainer.named_cells:
            if not hasattr(cell.neuron, "steps_since_reset"):
                h = getattr(state, "hyperparameters", None)
                if getattr(h, "time_dim", None) == 0:
                    self._whole.add(id(cell.neuron))
                self._neurons.setdefault(id(cell.neuron), (name, cell.neuron))
        self._handles: list[RemovableHandle] = [
            neuron.register_forward_pre_hook(Hook(self, neuron), with_kwargs=True)
            for _, neuron in self._neurons.values()
        ]

    def remove(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()

    def is_recording(self, module: nn.Module) -> bool:
        """Returns whether activity is recorded; code that is compiled is not watched."""
        return not torch.compiler.is_compiling() and self._trainer.recording

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Compares the state at the first call of a batch with that after the previous batch."""
        if id(module) in self._began:
            return
        self._began.add(id(module))
        (kwargs,) = rest
        given = [each for each in (*args, *kwargs.values()) if each is not None]
        left = self._left.pop(id(module), {})
        kept = len(given) == 1 and isinstance(given[0], Tensor) and bool(left)
        if kept:  # otherwise the call was given a state too
            shape = given[0].shape[1 if id(module) in self._whole else 0 :]
            left = {name: was for name, was in left.items() if was[2] == shape}
            now = dict(_states(module))
            kept = bool(left) and all(_is_same(now.get(name), left[name]) for name in left)
            self._names[id(module)] = next(iter(left), "")
        self._kept[id(module)] = self._kept.get(id(module), 0) + 1 if kept else 0

    def batch_ended(self) -> bool:
        """Notes the states, and returns whether to go on watching; warns in the last batch."""
        self._batches += 1
        self._left = {
            key: {name: (weakref.ref(t), version(t), t.shape) for name, t in _states(neuron)}
            for key, (_, neuron) in self._neurons.items()
            if key in self._began
        }
        self._began.clear()
        if self._batches < _BATCHES:
            return bool(self._neurons)
        self.remove()
        for key, (name, neuron) in self._neurons.items():
            if self._kept.get(key, 0) == _BATCHES - 1 and is_first():
                warnings.warn(
                    _message(name, neuron, self._names[key]), RuntimeWarning, stacklevel=2
                )
        return False


def _message(name: str, neuron: nn.Module, state: str) -> str:
    resets = [each for each in _RESETS if callable(getattr(neuron, each, None))]
    how = f"call its `{resets[0]}()`" if resets else "set it to zero"
    return (
        f"The neuron of cell `{name}`, a `{type(neuron).__name__}`, should begin each batch at"
        f" rest. Found that it kept its `{state}` from batch to batch, so that samples begin in the"
        f" state that others left: {how} at the beginning of `training_step`, or pass `carry=True`"
        " if batches are pieces of one stream."
    )


def _states(neuron: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yields the tensors that a neuron and its submodules keep, other than parameters."""
    for path, module in neuron.named_modules():
        for name, value in _attributes(module):
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                yield f"{path}.{name}" if path else name, value


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        if isinstance(value, dict):  # such as the buffers
            yield from value.items()
        else:
            yield name, value


def _is_same(now: Tensor | None, left: tuple[weakref.ref[Tensor], int, torch.Size]) -> bool:
    return now is not None and left[0]() is now and version(now) == left[1]

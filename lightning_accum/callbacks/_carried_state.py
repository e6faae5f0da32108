"""The check that modules with a state begin each batch at rest."""

from __future__ import annotations

import math
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum._compat import version
from lightning_accum.callbacks._module_watch import ModuleWatch
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.world import is_first
from lightning_accum.nn import (
    LIF,
    AdaptiveLIF,
    Competition,
    DelayedLinear,
    LeakyIntegrator,
    SurrogateLIF,
)
from lightning_accum.observe.hooks import Hook

_BATCHES = 4  # number of batches that are watched
_NATIVE = (LIF, AdaptiveLIF, SurrogateLIF, Competition, LeakyIntegrator, DelayedLinear)
_RESETS = ("reset_mem", "reset", "reset_state", "reset_state_variables", "reset_states")

State = dict[str, tuple[weakref.ref[Tensor], float, torch.Size]]
"""By attribute, each tensor with its version and its shape."""


class CarriedState(ModuleWatch):
    """Watches whether modules begin the first batches in the state that the previous batch left.

    These are the neurons of the cells, and all modules of this package that keep a state. A cell's
    neuron that counts its steps since a reset is checked with the traces of the rule instead.

    Args:
        trainer: the trainer of the cells.
        rest: the model whose other modules are watched too, if there is one.
        others: other trainers of this fit, whose neurons are left to them.
    """

    def __init__(
        self, trainer: CellTrainer, rest: nn.Module | None, others: Sequence[CellTrainer] = ()
    ) -> None:
        super().__init__(trainer)
        self._batches = 0
        self._left: dict[int, State] = {}  # by the id of each module, its state after a batch
        self._kept: dict[int, int] = {}  # and in how many batches in a row it began with that
        self._began: set[int] = set()  # the modules that were called in this batch
        self._names: dict[int, str] = {}  # what a module kept
        self._modules: dict[int, tuple[str, nn.Module]] = {}  # what each is called, and itself
        self._whole: set[int] = set()  # the modules that take whole sequences
        for what, module, whole in _watched(trainer, rest, others):
            self._modules.setdefault(id(module), (what, module))
            if whole:
                self._whole.add(id(module))
        self.handles = [
            module.register_forward_pre_hook(Hook(self, module), with_kwargs=True)
            for _, module in self._modules.values()
        ]

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
            left = {name: was for name, was in left.items() if was[2][-len(shape) :] == shape}
            now = dict(_states(module))
            kept = bool(left) and all(_is_same(now.get(name), left[name]) for name in left)
            self._names[id(module)] = next(iter(left), "")
        self._kept[id(module)] = self._kept.get(id(module), 0) + 1 if kept else 0

    def batch_ended(self) -> bool:
        """Notes the states, and returns whether to go on watching; warns in the last batch."""
        self._batches += 1
        self._left = {
            key: {name: (weakref.ref(t), version(t), t.shape) for name, t in _states(module)}
            for key, (_, module) in self._modules.items()
            if key in self._began
        }
        self._began.clear()
        if self._batches < _BATCHES:
            return bool(self._modules)
        self.remove()
        for key, (what, module) in self._modules.items():
            if self._kept.get(key, 0) == _BATCHES - 1 and is_first():
                message = _message(what, module, self._names[key])
                warnings.warn(message, RuntimeWarning, stacklevel=2)
        return False


def _watched(
    trainer: CellTrainer, rest: nn.Module | None, others: Sequence[CellTrainer]
) -> Iterator[tuple[str, nn.Module, bool]]:
    """Yields what each module is called, the module, and whether it takes whole sequences."""
    neurons = [cell.neuron for each in (trainer, *others) for _, (cell, _) in each.named_cells]
    for name, (cell, state) in trainer.named_cells:
        neuron, h = cell.neuron, getattr(state, "hyperparameters", None)
        whole = getattr(h, "time_dim", None) == 0
        if getattr(neuron, "steps_since_reset", math.inf) == math.inf:
            yield f"The neuron of cell `{name}`", neuron, whole
        if isinstance(neuron, Competition):
            yield f"The neuron in the `Competition` of cell `{name}`", neuron.neuron, whole
    checked = {id(module) for neuron in neurons for module in neuron.modules()}
    for path, module in () if rest is None else rest.named_modules():
        if isinstance(module, _NATIVE) and id(module) not in checked:
            yield f"`{path}`", module, module.time_dim == 0


def _message(what: str, module: nn.Module, state: str) -> str:
    resets = [each for each in _RESETS if callable(getattr(module, each, None))]
    how = f"call its `{resets[0]}()`" if resets else "set it to zero"
    return (
        f"{what}, a `{type(module).__name__}`, should begin each batch at rest. Found that it kept"
        f" its `{state}` from batch to batch, so that samples begin in the state that others left:"
        f" {how} at the beginning of `training_step`, or pass `carry=True` if batches are pieces of"
        " one stream."
    )


def _states(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yields the tensors that a module and its submodules keep, other than parameters."""
    inner = [("", module)] if isinstance(module, _NATIVE) else module.named_modules()
    for path, owner in inner:
        for name, value in _attributes(owner):
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                yield f"{path}.{name}" if path else name, value


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        if isinstance(value, dict):  # such as the buffers
            yield from value.items()
        else:
            yield name, value


def _is_same(now: Tensor | None, left: tuple[weakref.ref[Tensor], float, torch.Size]) -> bool:
    return now is not None and left[0]() is now and version(now) == left[1]

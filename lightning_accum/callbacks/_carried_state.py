"""The check that modules do not keep their state from batch to batch."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum._compat import version
from lightning_accum.callbacks._first_calls import FirstCalls
from lightning_accum.callbacks._state_reads import reads_state
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.nn import (
    LIF,
    AdaptiveLIF,
    Competition,
    DelayedLinear,
    LeakyIntegrator,
    SurrogateLIF,
)
from lightning_accum.observe.copies import kept_tensors
from lightning_accum.observe.hooks import Hook

_NATIVE = (LIF, AdaptiveLIF, SurrogateLIF, Competition, LeakyIntegrator, DelayedLinear)
_RESETS = ("reset_mem", "reset", "reset_state", "reset_state_variables", "reset_states")

State = dict[str, tuple[weakref.ref[Tensor], float, torch.Size]]
"""By attribute, each tensor with its version and its shape."""


class CarriedState(FirstCalls):
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
        modules: dict[int, tuple[str, nn.Module]] = {}
        self._whole: set[int] = set()  # the modules that take whole sequences
        for what, module, whole in _watched(trainer, rest, others):
            modules.setdefault(id(module), (what, module))
            if whole:
                self._whole.add(id(module))
        super().__init__(trainer, modules)
        self._met: dict[int, State] = {}  # by the id of each module, what it begins a batch with
        self._left: dict[int, State] = {}  # likewise, what it changed in the batch
        neurons = [cell.neuron for _, (cell, _) in trainer.named_cells]
        self._inner = {id(each.neuron) for each in neurons if isinstance(each, Competition)}
        self._names: dict[int, str] = {}  # the first tensor that a module kept
        self.handles = [
            module.register_forward_pre_hook(Hook(self, module), with_kwargs=True)
            for _, module in modules.values()
        ]

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Compares the state at the first call of a batch with that after the previous batch."""
        if id(module) in self.began:
            return
        self.began.add(id(module))
        (kwargs,) = rest
        given = [each for each in (*args, *kwargs.values()) if each is not None]
        changed, now = self._left.pop(id(module), {}), dict(_states(module))
        self._met[id(module)] = _marks(now)
        kept = len(given) == 1 and isinstance(given[0], Tensor) and bool(changed)
        if kept:  # otherwise the call was given a state too
            shape = given[0].shape[1 if id(module) in self._whole else 0 :]
            left = {name: was for name, was in changed.items() if was[2][-len(shape) :] == shape}
            kept = bool(left) and all(_is_same(now.get(name), left[name]) for name in left)
            self._names[id(module)] = next(iter(left), "")
            if kept and self.would_warn(module) and not isinstance(module, _NATIVE):
                constant = {id(tensor) for name, tensor in now.items() if name not in changed}
                state = [t for t in kept_tensors(module) if t.shape[-len(shape) :] == shape]
                state = [tensor for tensor in state if id(tensor) not in constant]
                kept = reads_state(module, state, args, kwargs)  # otherwise it is only a record
        self.note_first(module, kept)

    def batch_ended(self) -> bool:
        """Notes the states, and returns whether to go on watching; warns in the last batch."""
        self._left = {
            key: {n: was for n, was in _marks(now).items() if not _is_same(now[n], met.get(n))}
            for key, met in self._met.items()
            for now in [dict(_states(self.modules[key][1]))]
        }
        self._met.clear()
        return super().batch_ended()

    def why(self, module: nn.Module) -> tuple[str, str]:
        """Returns which tensor a module kept, and how to reset it."""
        resets = [each for each in _RESETS if callable(getattr(module, each, None))]
        how = f"call its `{resets[0]}()`" if resets else "set it to zero"
        if id(module) in self._inner:
            how += f", as in `competition.neuron.{resets[0]}()`," if resets else ""
            how += " in addition to the `reset()` of the Competition, which leaves it as it is,"
        return f"it kept its `{self._names[id(module)]}` from batch to batch", how


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


def _marks(states: dict[str, Tensor]) -> State:
    return {name: (weakref.ref(t), version(t), t.shape) for name, t in states.items()}


def _is_same(
    now: Tensor | None, left: tuple[weakref.ref[Tensor], float, torch.Size] | None
) -> bool:
    if now is None or left is None:
        return False
    return left[0]() is now and version(now) == left[1]

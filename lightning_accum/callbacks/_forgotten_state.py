"""The check that the state that neurons return is passed to their next call in a batch."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum._compat import version
from lightning_accum.callbacks._first_calls import BATCHES
from lightning_accum.callbacks._module_watch import ModuleWatch
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.world import is_first
from lightning_accum.nn.neuron import Neurons
from lightning_accum.observe.copies import kept_tensors
from lightning_accum.observe.state_reads import reads_state
from lightning_accum.observe.tensors import shares_memory, tensors_in

_CALLS = 3  # in each batch, from which on modules are known to be called step by step


class ForgottenState(ModuleWatch):
    """Watches whether neurons are given a state after the first call of a batch.

    These are neurons that return their state, as those of Norse and snnTorch, and are called step
    by step. Neurons that keep a state of their own are left out.

    Args:
        trainer: the trainer of the cells.
    """

    def __init__(self, trainer: CellTrainer) -> None:
        super().__init__(trainer)
        self._calls = {
            id(cell.neuron): _Calls(name, cell.neuron)
            for name, (cell, state) in trainer.named_cells
            if not isinstance(cell.neuron, Neurons)  # which return spikes only
            and getattr(getattr(state, "hyperparameters", None), "time_dim", None) is None
        }
        self._batches = 0

    def register(self) -> None:
        """Registers the hooks."""
        neurons = [calls.module for calls in self._calls.values()]
        self.hook(neurons, nn.Module.register_forward_hook, with_kwargs=True)

    def remove(self) -> None:
        """Removes the hooks, and forgets what the neurons returned."""
        super().remove()
        self._calls.clear()

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Takes in a call of a neuron."""
        calls = self._calls.get(id(module))
        kwargs, returned = rest
        if calls is not None:
            calls.take(args, kwargs, returned, last=self._batches == BATCHES - 1)

    def batch_ended(self) -> bool:
        """Returns whether to go on watching; warns in the last batch."""
        self._batches += 1
        for calls in self._calls.values():
            calls.end_batch()
        if self._batches < BATCHES and any(calls.suspect for calls in self._calls.values()):
            return True
        found = [calls for calls in self._calls.values() if calls.are_without_state()]
        self.remove()
        for calls in found if is_first() else ():
            given = "a state of zeros" if calls.given else "no state"
            warnings.warn(
                f"The neuron of cell `{calls.cell}`, a `{type(calls.module).__name__}`, should be"
                " given in each step the state that it returned in the step before. Found that it"
                f" was given {given} in each step of the first {BATCHES} batches, so that it has"
                " no memory: pass the state on, as in `spk, mem = lif(x, mem)`.",
                RuntimeWarning,
                stacklevel=3,
            )
        return False


class _Calls:
    """The calls of one neuron, until one is given a state that is not zero.

    Args:
        cell: the name of the neuron's cell.
        module: the neuron.
    """

    def __init__(self, cell: str, module: nn.Module) -> None:
        self.cell, self.module = cell, module
        self.suspect = True
        self.given: list[Tensor] = []  # whether there was a value in the states of later calls
        self._left: list[Tensor] = []  # whether there was one in what the calls before them left
        self._state: list[Tensor] = []  # what the last call returned
        self._kept: list[tuple[Tensor, float]] = []  # with versions
        self._number = 0  # of calls in this batch
        self._optional = _has_optional(module)

    def take(self, args: Any, kwargs: dict[str, Any], returned: Any, last: bool) -> None:
        """Takes in a call.

        Args:
            args: the positional arguments.
            kwargs: the keyword arguments.
            returned: the result.
            last: whether this is in the last batch.
        """
        if not self.suspect:
            return
        self._number += 1
        further = [each for each in (*args, *kwargs.values())[1:] if each is not None]
        given, before = [*tensors_in(further)], self._state
        self._state = [*tensors_in(returned)][1:]
        if self._number > 1:
            self.suspect = bool(before) and self._may_be_zero(further, given, before)
            self.given += [each.detach().any() for each in given]
            self._left += [each.detach().any() for each in before]
        if last and self._number == _CALLS and self.suspect:
            changed = [each for each in kept_tensors(self.module) if not self._is_kept(each)]
            self.suspect = not (changed and reads_state(self.module, changed, args, kwargs))
        self._kept = []
        if last and self._number == _CALLS - 1:
            self._kept = [(each, version(each)) for each in kept_tensors(self.module)]

    def end_batch(self) -> None:
        """Begins a new batch."""
        self.suspect = self.suspect and self._number >= _CALLS
        self._number, self._state = 0, []

    def are_without_state(self) -> bool:
        """Returns whether all later calls were given none, or zeros, in place of another one."""
        return self.suspect and _any(self._left) and not _any(self.given)

    def _may_be_zero(self, further: list[Any], given: list[Tensor], before: list[Tensor]) -> bool:
        """Returns whether a call was given none of the tensors that the last one returned."""
        if any(next(tensors_in(each), None) is None for each in further):
            return False  # an object whose values are not known
        if not given and not self._optional:
            return False
        return not any(shares_memory(each, left) for each in given for left in before)

    def _is_kept(self, tensor: Tensor) -> bool:
        return any(tensor is each and version(tensor) == count for each, count in self._kept)


def _any(found: list[Tensor]) -> bool:
    return bool(found) and bool(torch.stack([each.to(found[0].device) for each in found]).any())


def _has_optional(module: nn.Module) -> bool:
    """Returns whether calls may leave out an argument that is then ``None``, as a state is."""
    try:
        taken = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):  # of a callable that was not written in Python
        return False
    return any(each.default is None for each in taken)

"""The check that modules do not keep their state from batch to batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from lightning_accum.callbacks._first_calls import FirstCalls
from lightning_accum.cells.kept_state import NATIVE, KeptState, reset_of
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.nn import Competition


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
        whole: set[int] = set()  # the modules that take whole sequences
        for what, module, takes_whole in _watched(trainer, rest, others):
            modules.setdefault(id(module), (what, module))
            if takes_whole:
                whole.add(id(module))
        super().__init__(trainer, modules)
        self._states = {key: KeptState(key in whole) for key in modules}
        neurons = [cell.neuron for _, (cell, _) in trainer.named_cells]
        self._inner = {id(each.neuron) for each in neurons if isinstance(each, Competition)}

    def register(self) -> None:
        """Registers the hooks."""
        modules = (module for _, module in self.modules.values())
        self.hook(modules, nn.Module.register_forward_pre_hook, with_kwargs=True)

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Compares the state at the first call of a batch with that after the previous batch."""
        if id(module) in self.began:
            return
        self.began.add(id(module))
        (kwargs,) = rest
        state, surely = self._states[id(module)], self.would_warn(module)
        self.note_first(module, state.begins(module, args, kwargs, surely))

    def batch_ended(self) -> bool:
        """Notes the states, and returns whether to go on watching; warns in the last batch."""
        for key, state in self._states.items():
            state.ended(self.modules[key][1])
        return super().batch_ended()

    def why(self, module: nn.Module) -> tuple[str, str]:
        """Returns which tensor a module kept, and how to reset it."""
        reset = reset_of(module)
        how = f"call its `{reset}()`" if reset else "set it to zero"
        if id(module) in self._inner:
            how += f", as in `competition.neuron.{reset}()`," if reset else ""
            how += " in addition to the `reset()` of the Competition, which leaves it as it is,"
        return f"it kept its `{self._states[id(module)].name}` from batch to batch", how


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
        if isinstance(module, NATIVE) and id(module) not in checked:
            yield f"`{path}`", module, module.time_dim == 0

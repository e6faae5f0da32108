"""Hooks on modules in the first batches of a fit: wiring, and state that lasts from batch to batch.

A probe sees only batches that are recorded, and removes its hooks after the fourth one.
"""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_accum._compat import version
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.health.chain import reset_of
from lightning_accum.nn import (
    LIF,
    AdaptiveLIF,
    Competition,
    DelayedLinear,
    LeakyIntegrator,
    SurrogateLIF,
)
from lightning_accum.nn.neuron import Neurons
from lightning_accum.observe.hooks import Hook
from lightning_accum.observe.tensors import shares_memory, tensors_in

BATCHES = 4
"""The number of batches that are watched."""

_NATIVE = (LIF, AdaptiveLIF, SurrogateLIF, Competition, LeakyIntegrator, DelayedLinear)
_PLAIN = (nn.Identity, nn.Sequential, nn.Dropout)  # a network may have several for each neuron

Say = Callable[[str, str, str], None]
"""Takes the name of a cell, the key of what was found, and the text."""

_Marks = dict[str, tuple["weakref.ref[Tensor]", float, torch.Size]]  # version and shape, by name


class Probe(ABC):
    """Sees the calls of modules while a trainer records; code that is compiled is not watched."""

    def __init__(self, trainer: CellTrainer, batch: Callable[[], int], say: Say) -> None:
        self._trainer, self._batch, self._say = weakref.ref(trainer), batch, say
        self._first = self._now = batch()
        self._handles: list[RemovableHandle] = []
        self._over = False

    @abstractmethod
    def register(self) -> None:
        """Registers the hooks."""

    def hook(
        self,
        modules: Iterable[nn.Module],
        register: Callable[..., RemovableHandle],
        **options: bool,
    ) -> None:
        """Registers a hook on each module by a method of ``nn.Module``."""
        for module in modules:  # an interrupt in between leaves no hook without its handle
            self._handles.append(register(module, Hook(self, module), **options))

    def is_recording(self, module: nn.Module) -> bool:
        """Returns whether activity is recorded in one of the first batches."""
        trainer = self._trainer()
        if torch.compiler.is_compiling() or trainer is None or not trainer.recording or self._over:
            return False
        now = self._batch()
        if now != self._now:
            self._now = now
            self.batch_ended()
            if now - self._first >= BATCHES:
                self.end()
        return not self._over

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Looks at a call of a module, as a hook on it gets it."""
        with torch.no_grad():
            self.look(module, args, rest)

    @abstractmethod
    def look(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Looks at a call."""

    def batch_ended(self) -> None:  # noqa: B027 - few probes note anything
        """Notes that a batch has ended, at the first call in the next one."""

    @abstractmethod
    def found(self) -> Iterator[tuple[str, str, str]]:
        """Yields what was found in all batches that were watched."""

    def remove(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()
        self._over = True

    def end(self) -> None:
        """Removes the hooks, and says what was found."""
        over = self._over
        self.remove()
        if not over and self._batch() > self._first:
            for each in self.found():
                self._say(*each)


def probes(
    trainer: CellTrainer,
    model: nn.Module,
    rest: nn.Module | None,
    carry: bool,
    batch: Callable[[], int],
    say: Say,
    others: Sequence[CellTrainer],
) -> list[Probe]:
    """Returns the probes of a fit, whose hooks are not registered yet."""
    wiring = Wiring(trainer, batch, say, model)
    if carry:
        return [wiring]
    return [wiring, KeptState(trainer, batch, say, rest, others), PassedState(trainer, batch, say)]


class Wiring(Probe):
    """Finds connections whose output goes into another neuron than that of their cell."""

    def __init__(
        self, trainer: CellTrainer, batch: Callable[[], int], say: Say, model: nn.Module
    ) -> None:
        super().__init__(trainer, batch, say)
        self._paths = {id(module): path for path, module in model.named_modules()}
        self._cells = [
            (name, cell, others)
            for name, (cell, _) in trainer.named_cells
            if (others := _others(cell.neuron, model))
        ]
        self._latest: dict[int, Tensor] = {}  # outputs of connections
        self._went: dict[int, set[int]] = {}  # neurons that took one in
        self._connections = {id(cell.connection) for _, cell, _ in self._cells}

    def register(self) -> None:
        """Registers the hooks."""
        connections = {id(cell.connection): cell.connection for _, cell, _ in self._cells}
        neurons = (each for _, cell, others in self._cells for each in (cell.neuron, *others))
        self.hook(connections.values(), nn.Module.register_forward_hook)
        unique = {id(each): each for each in neurons}
        self.hook(unique.values(), nn.Module.register_forward_pre_hook, with_kwargs=True)

    def look(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Keeps the output of a connection, or compares it with the input of a neuron."""
        (last,) = rest
        if id(module) in self._connections and not isinstance(last, dict):
            found = next(tensors_in(last), None)
            if found is not None:
                self._latest[id(module)] = found.detach()
            return
        given = last.values() if isinstance(last, dict) else ()
        for tensor in tensors_in((*args, *given)):
            for connection, output in self._latest.items():
                if shares_memory(tensor, output):
                    self._went.setdefault(connection, set()).add(id(module))

    def batch_ended(self) -> None:
        """Ends after one batch."""
        self.end()

    def found(self) -> Iterator[tuple[str, str, str]]:
        """Yields the cells that name another neuron than the one in use."""
        self._latest.clear()
        named: dict[int, set[int]] = {}  # neurons that cells name, by their connection
        for _, cell, _ in self._cells:
            named.setdefault(id(cell.connection), set()).add(id(cell.neuron))
        for name, cell, others in self._cells:
            went = self._went.get(id(cell.connection), set())
            taken = [e for e in others if id(e) in went - named[id(cell.connection)]]
            if id(cell.neuron) not in went and taken:
                yield name, "probes", self._text(name, cell, taken[0])

    def _text(self, name: str, cell: Cell, other: nn.Module) -> str:
        connection, neuron, taken = (
            self._paths.get(id(module), f"a {type(module).__name__}")
            for module in (cell.connection, cell.neuron, other)
        )
        return (
            f"The neuron of cell `{name}` should take in the output of its connection. Found that"
            f" the output of `{connection}` goes into `{taken}`, and not into `{neuron}`, so that"
            f" the cell learns from neurons that it does not drive: name `{taken}` as the neuron."
        )


def _others(neuron: nn.Module, model: nn.Module) -> list[nn.Module]:
    """Returns the other modules of a neuron's class, without those around or inside it."""
    if isinstance(neuron, _PLAIN):
        return []
    inside = {id(module) for module in neuron.modules()}
    return [
        module
        for module in model.modules()
        if type(module) is type(neuron)
        and id(module) not in inside
        and all(part is not neuron for part in module.modules())
    ]


class FirstCalls(Probe):
    """Finds modules that begin each of the first batches in the state that the last one left."""

    def __init__(
        self,
        trainer: CellTrainer,
        batch: Callable[[], int],
        say: Say,
        modules: Mapping[int, tuple[str, nn.Module]],
    ) -> None:
        super().__init__(trainer, batch, say)
        self.modules = modules
        self._began: set[int] = set()  # the modules that were called in this batch
        self._kept: dict[int, int] = {}  # batches in a row that a module began with a state

    def is_first(self, module: nn.Module) -> bool:
        """Returns whether this is the module's first call in the batch."""
        first = id(module) not in self._began
        self._began.add(id(module))
        return first

    def note(self, module: nn.Module, kept: bool) -> None:
        """Notes whether a module began a batch in the state that the previous one left."""
        self._kept[id(module)] = self._kept.get(id(module), 0) + 1 if kept else 0

    def kept(self, module: nn.Module) -> bool:
        """Returns whether a module kept a state in each batch."""
        return self._kept.get(id(module), 0) >= BATCHES - 1

    def batch_ended(self) -> None:
        """Begins a new batch."""
        self._began.clear()

    @abstractmethod
    def why(self, module: nn.Module) -> tuple[str, str]:
        """Returns how a module kept its state, and how to mend it."""

    def found(self) -> Iterator[tuple[str, str, str]]:
        """Yields the modules that kept a state in each of the batches."""
        for what, module in self.modules.values():
            if self.kept(module):
                found, how = self.why(module)
                text = (
                    f"{what}, a `{type(module).__name__}`, should begin each batch at rest. Found"
                    f" that {found}, so that samples begin in the state that others left: {how} at"
                    " the beginning of each batch, or pass `carry=True` if batches are pieces of"
                    " one stream."
                )
                yield what.strip("`"), "probes", text


class KeptState(FirstCalls):
    """Watches the neurons of the cells, and all modules of this package that keep a state."""

    def __init__(
        self,
        trainer: CellTrainer,
        batch: Callable[[], int],
        say: Say,
        rest: nn.Module | None,
        others: Sequence[CellTrainer],
    ) -> None:
        modules: dict[int, tuple[str, nn.Module]] = {}
        self._whole: set[int] = set()  # the modules that take whole sequences
        for what, module, whole in _watched(trainer, rest, others):
            if id(module) not in modules and whole:
                self._whole.add(id(module))
            modules.setdefault(id(module), (what, module))
        super().__init__(trainer, batch, say, modules)
        self._met: dict[int, _Marks] = {}  # what each began this batch with
        self._after: dict[int, _Marks] = {}  # the latest call in this batch
        self._left: dict[int, _Marks] = {}  # what each changed in the batch before
        self._names: dict[int, str] = {}
        self._rests: dict[int, list[Tensor]] = {}

    def register(self) -> None:
        """Registers the hooks."""
        found = [module for _, module in self.modules.values()]
        self.hook(found, nn.Module.register_forward_pre_hook, with_kwargs=True)
        self.hook(found, nn.Module.register_forward_hook, with_kwargs=True)

    def look(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Compares the state at the first call of a batch with that after the previous batch."""
        if len(rest) == 2:  # after a call; it may be reset before the next batch
            self._after[id(module)] = _marks(dict(_states(module)))
            return
        if not self.is_first(module):
            return
        key, now = id(module), dict(_states(module))
        left, self._met[key] = self._left.pop(key, {}), _marks(now)
        given = [e for e in (*args, *rest[0].values()) if e is not None]
        if len(given) != 1 or not isinstance(given[0], Tensor):  # the call is given a state too
            self.note(module, False)
            return
        shape = given[0].shape[1 if key in self._whole else 0 :]
        fits = {n: was for n, was in left.items() if was[2][-len(shape) :] == shape}
        kept = bool(fits) and all(_is_same(now.get(n), was) for n, was in fits.items())
        values = [] if isinstance(module, _NATIVE) else [now[n] for n in fits if n in now]
        self._names[key] = next(iter(fits), "")
        self._rests[key] = [_rests(value, len(shape)) for value in values]
        self.note(module, kept)

    def kept(self, module: nn.Module) -> bool:
        """Returns whether it kept a state in each batch; all samples have the same one at rest."""
        rests = self._rests.get(id(module), [])
        return super().kept(module) and not (rests and all(bool(each) for each in rests))

    def batch_ended(self) -> None:
        """Notes the states that the batch has left."""
        super().batch_ended()
        for key, met in self._met.items():
            left = self._after.get(key, {})
            changed = {n: was for n, was in left.items() if not _is_same(was[0](), met.get(n), was)}
            self._left[key] = changed
        self._met, self._after = {}, {}

    def why(self, module: nn.Module) -> tuple[str, str]:
        """Returns which tensor a module kept, and how to reset it."""
        reset = reset_of(module)
        how = f"call its `{reset}()`" if reset else "set it to zero"
        if "Competition" in self.modules[id(module)][0]:
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
        counts = getattr(neuron, "steps_since_reset", math.inf) != math.inf
        if not counts and (isinstance(neuron, _NATIVE) or reset_of(neuron)):  # else a mere record
            yield f"The neuron of cell `{name}`", neuron, whole
        if isinstance(neuron, Competition) and reset_of(neuron.neuron):
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


def _marks(states: dict[str, Tensor]) -> _Marks:
    return {name: (weakref.ref(t), version(t), t.shape) for name, t in states.items()}


def _is_same(
    now: Tensor | None, left: tuple[Any, float, torch.Size] | None, mark: Any = None
) -> bool:
    """Returns whether a tensor, or its mark, is the one that was marked, and not written to."""
    if now is None or left is None or left[0]() is not now:
        return False
    return (version(now) if mark is None else mark[1]) == left[1]


def _rests(state: Tensor, dims: int) -> Tensor:
    """Returns whether all samples have the same state, or all neurons of a single one."""
    batch = state.ndim - dims
    if not state.numel() or state.is_complex():
        return torch.tensor(False)
    if state.shape[batch] == 1:
        return state.amin() == state.amax()
    return (state.amin(batch) == state.amax(batch)).all()


class PassedState(FirstCalls):
    """Watches whether the first call of a batch is given what the last batch returned."""

    def __init__(self, trainer: CellTrainer, batch: Callable[[], int], say: Say) -> None:
        neurons = {
            id(cell.neuron): (f"The neuron of cell `{name}`", cell.neuron)
            for name, (cell, _) in trainer.named_cells
            if not isinstance(cell.neuron, Neurons)  # which are never given a state
        }
        super().__init__(trainer, batch, say, neurons)
        self._returned: dict[int, list[tuple[Tensor, float]]] = {}  # in its last call

    def register(self) -> None:
        """Registers the hooks."""
        found = (neuron for _, neuron in self.modules.values())
        self.hook(found, nn.Module.register_forward_hook, with_kwargs=True)

    def end(self) -> None:
        """Removes the hooks, and forgets what the neurons returned."""
        super().end()
        self._returned.clear()

    def look(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Compares the arguments of the first call of a batch, and keeps the result of a call."""
        kwargs, returned = rest
        key = id(module)
        if self.is_first(module):
            given = [*tensors_in((*args, *kwargs.values()))][1:]  # but for the current
            before = self._returned.get(key, ())
            self.note(module, any(_is_that(each, *left) for each in given for left in before))
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

"""Hooks on modules in the first batches of a fit: wiring, and state that lasts over batches."""

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_accum._checked_state import StateModule
from lightning_accum._compat.torch_internals import version
from lightning_accum.cells.state import CellState
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.nn import Competition
from lightning_accum.observe.hooks import Hook
from lightning_accum.observe.monitor import shares_memory, tensors_in

_BATCHES = 4  # that are watched
_PLAIN = (nn.Identity, nn.Sequential, nn.Dropout)  # a network may have several for each neuron
_RESETS = ("reset_mem", "reset", "reset_state", "reset_state_variables", "reset_states")

Say = Callable[[str, str, str], None]
"""Takes the name of a cell, the key of what was found, and the text."""

_Mark = tuple["weakref.ref[Tensor]", float, torch.Size]
"""A tensor, its version and its shape."""


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

    def hook(self, module: nn.Module, after: bool) -> None:
        """Registers a hook before or after a module's calls."""
        register = module.register_forward_hook if after else module.register_forward_pre_hook
        self._handles.append(register(Hook(self, module), with_kwargs=True))

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Looks at a call of a module, if activity is recorded, in one of the first batches."""
        trainer = self._trainer()
        if torch.compiler.is_compiling() or trainer is None or not trainer.recording or self._over:
            return
        now = self._batch()
        if now != self._now:
            self._now = now
            self.batch_ended()
            if now - self._first >= _BATCHES:
                self.end()
        if not self._over:
            self._look(module, args, rest)

    @abstractmethod
    def _look(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Looks at a call of a module, as a hook on it gets it."""

    @abstractmethod
    def batch_ended(self) -> None:
        """Notes that a batch has ended, at the first call in the next one."""

    @abstractmethod
    def found(self) -> Iterator[tuple[str, str]]:
        """Yields what was found in all batches that were watched: of which cell, and the text."""

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
            for cell, text in self.found():
                self._say(cell, "probes", text)


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
        self._connections = {id(cell.connection): cell.connection for _, cell, _ in self._cells}
        self._latest: dict[int, Tensor] = {}  # outputs of connections
        self._went: dict[int, set[int]] = {}  # neurons that took one in

    def register(self) -> None:
        """Registers the hooks."""
        for connection in self._connections.values():
            self.hook(connection, after=True)
        neurons = (each for _, cell, others in self._cells for each in (cell.neuron, *others))
        for neuron in {id(each): each for each in neurons}.values():
            self.hook(neuron, after=False)

    @torch.no_grad()
    def _look(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Keeps the output of a connection, or compares it with the input of a neuron."""
        if len(rest) == 2:  # the keywords and the output
            if (found := next(tensors_in(rest[1]), None)) is not None:
                self._latest[id(module)] = found.detach()
            return
        for tensor in tensors_in((args, *rest)):
            for connection, output in self._latest.items():
                if shares_memory(tensor, output):
                    self._went.setdefault(connection, set()).add(id(module))

    def batch_ended(self) -> None:
        """Ends after one batch."""
        self.end()

    def found(self) -> Iterator[tuple[str, str]]:
        """Yields the cells that name another neuron than the one in use."""
        self._latest.clear()
        named: dict[int, set[int]] = {}  # neurons that cells name, by their connection
        for _, cell, _ in self._cells:
            named.setdefault(id(cell.connection), set()).add(id(cell.neuron))
        for name, cell, others in self._cells:
            went = self._went.get(id(cell.connection), set())
            taken = [e for e in others if id(e) in went - named[id(cell.connection)]]
            if id(cell.neuron) in went or not taken:
                continue
            connection, neuron, other = (
                self._paths.get(id(module), f"a {type(module).__name__}")
                for module in (cell.connection, cell.neuron, taken[0])
            )
            yield (
                name,
                f"The neuron of cell `{name}` should take in the output of its connection. Found"
                f" that the output of `{connection}` goes into `{other}`, and not into `{neuron}`,"
                " so that the cell learns from neurons that it does not drive: name"
                f" `{other}` as the neuron.",
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


@dataclass
class _State:
    """What is known of the state of a module in the first batches."""

    what: str  # what it is called
    module: nn.Module
    own: bool  # whether it may keep a state itself
    whole: bool  # whether it takes whole sequences
    began: bool = False  # whether it was called in this batch
    met: dict[str, _Mark] = field(default_factory=dict)  # what it began this batch with
    after: dict[str, _Mark] = field(default_factory=dict)  # the latest call in this batch
    left: dict[str, _Mark] = field(default_factory=dict)  # what it changed in the batch before
    kept: int = 0  # batches in a row that it began in its own state
    name: str = ""  # of a tensor in this state
    rests: list[Tensor] = field(default_factory=list)  # whether tensors of others are at rest
    given: int = 0  # batches in a row that it began with the state that it had returned
    # What its last call returned. It is kept, so that its memory does not become that of others.
    returned: list[tuple[Tensor, float]] = field(default_factory=list)

    def begins(self, given: Sequence[Any]) -> None:
        """Compares the state at the first call of a batch with that after the previous batch."""
        others = [*tensors_in(given)][1:]  # but for the current
        self.given = self.given + 1 if any(map(self._was_returned, others)) else 0
        if self.own:
            now = dict(_states(self.module))
            left, self.left, self.met = self.left, {}, _marks(now)
            inputs = [each for each in given if each is not None]
            (x, *more) = inputs or [None]  # more, if the call is given a state too
            keeps = isinstance(x, Tensor) and not more and self._keeps(left, now, x)
            self.kept = self.kept + 1 if keeps else 0

    def _was_returned(self, tensor: Tensor) -> bool:
        """Returns whether a tensor is what the last call has returned."""
        return any(
            tensor.shape == left.shape and shares_memory(tensor, left) and version(tensor) == count
            for left, count in self.returned
        )

    def _keeps(self, left: dict[str, _Mark], now: dict[str, Tensor], x: Tensor) -> bool:
        """Returns whether the state that fits an input is as the batch before has left it."""
        shape = x.shape[1 if self.whole else 0 :]
        fits = {n: was for n, was in left.items() if was[2][-len(shape) :] == shape}
        values = [] if _is_native(self.module) else [now[n] for n in fits if n in now]
        self.name, self.rests = next(iter(fits), ""), [_rests(v, len(shape)) for v in values]
        same = (n in now and _is_same(was, now[n], version(now[n])) for n, was in fits.items())
        return bool(fits) and all(same)

    def batch_ended(self) -> None:
        """Notes the state that the batch has left."""
        if self.began and self.own:
            left = self.after.items()
            self.left = {
                n: was for n, was in left if not _is_same(self.met.get(n), was[0](), was[1])
            }
        self.began, self.met, self.after = False, {}, {}

    def why(self) -> tuple[str, str] | None:
        """Returns how a module began each batch in the last one's state, and how to mend it."""
        at_rest = self.rests and all(bool(each) for each in self.rests)
        if self.kept >= _BATCHES - 1 and not at_rest:  # all samples have the same state at rest
            reset = _reset_of(self.module)
            how = f"call its `{reset}()`" if reset else "set it to zero"
            if "Competition" in self.what:
                how += " in addition to the `reset()` of the Competition, which leaves it as it is,"
            return f"it kept its `{self.name}` from batch to batch", how
        if self.given >= _BATCHES - 1:
            found = "its first call is given the state that it returned in the batch before"
            return found, "pass none, or a new one,"
        return None


class LastingState(Probe):
    """Finds neurons, and modules of this package, that begin batches in the state of the last."""

    def __init__(
        self,
        trainer: CellTrainer,
        batch: Callable[[], int],
        say: Say,
        rest: nn.Module | None,
        others: Sequence[CellTrainer],
    ) -> None:
        super().__init__(trainer, batch, say)
        self._states: dict[int, _State] = {}
        layers = () if rest is None else _layers(rest, [trainer, *others])
        for each in (*_neurons(trainer), *layers):
            self._states.setdefault(id(each.module), each)

    def register(self) -> None:
        """Registers the hooks."""
        for each in self._states.values():
            self.hook(each.module, after=False)
            self.hook(each.module, after=True)

    @torch.no_grad()
    def _look(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Looks at a state before the first call of a batch, and after each call."""
        state = self._states[id(module)]
        if len(rest) == 1:
            if not state.began:
                state.began = True
                state.begins((*args, *rest[0].values()))
            return
        if state.own:  # it may be reset before the next batch
            state.after = _marks(dict(_states(module)))
        if not _is_native(module):  # which are never given a state
            state.returned = [(each, version(each)) for each in tensors_in(rest[1])]

    def batch_ended(self) -> None:
        """Begins a new batch."""
        for each in self._states.values():
            each.batch_ended()

    def found(self) -> Iterator[tuple[str, str]]:
        """Yields the modules that kept a state in each of the batches."""
        states, self._states = self._states, {}
        for each in states.values():
            if why := each.why():
                yield (
                    each.what.strip("`"),
                    f"{each.what}, a `{type(each.module).__name__}`, should begin each batch at"
                    f" rest. Found that {why[0]}, so that samples begin in the state that others"
                    f" left: {why[1]} at the beginning of each batch, or pass `carry=True` if"
                    " batches are pieces of one stream.",
                )


def _neurons(trainer: CellTrainer) -> Iterator[_State]:
    """Yields the neurons whose state is watched; one of several cells more than once."""
    for name, (cell, state) in trainer.named_cells:
        neuron = cell.neuron
        whole = isinstance(state, CellState) and state.options.time_dim == 0
        counts = getattr(neuron, "steps_since_reset", math.inf) != math.inf
        own = not counts and (_is_native(neuron) or _reset_of(neuron) is not None)
        if own or not _is_native(neuron):  # else a mere record
            yield _State(f"The neuron of cell `{name}`", neuron, own, whole)
        if isinstance(neuron, Competition) and _reset_of(neuron.neuron):
            what = f"The neuron in the `Competition` of cell `{name}`"
            yield _State(what, neuron.neuron, True, whole)


def _layers(model: nn.Module, trainers: Sequence[CellTrainer]) -> Iterator[_State]:
    """Yields the layers of this package that are not part of a cell's neuron."""
    neurons = (cell.neuron for each in trainers for _, (cell, _) in each.named_cells)
    checked = {id(module) for neuron in neurons for module in neuron.modules()}
    for path, module in model.named_modules():
        if _is_native(module) and id(module) not in checked:
            yield _State(f"`{path}`", module, True, module.time_dim == 0)


def _is_native(module: nn.Module) -> bool:
    """Returns whether this is a layer of this package, or derived, that keeps a state."""
    kinds = type(module).__mro__ if isinstance(module, StateModule) else ()
    return any(kind.__module__.startswith("lightning_accum.nn.") for kind in kinds)


def _reset_of(module: nn.Module) -> str | None:
    """Returns the name of the method that resets a module, ``None`` if it has none."""
    return next((each for each in _RESETS if callable(getattr(module, each, None))), None)


def _states(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yields the tensors that a module and its submodules keep, other than parameters."""
    inner = [("", module)] if _is_native(module) else module.named_modules()
    for path, owner in inner:
        own = vars(owner)
        for kept in (own, *(each for each in own.values() if isinstance(each, dict))):
            for name, value in kept.items():  # also of dictionaries, such as the buffers
                if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                    yield f"{path}.{name}" if path else name, value


def _marks(states: dict[str, Tensor]) -> dict[str, _Mark]:
    return {name: (weakref.ref(t), version(t), t.shape) for name, t in states.items()}


def _is_same(mark: _Mark | None, now: Tensor | None, count: float) -> bool:
    """Returns whether a tensor is the one that was marked, and has the same version."""
    return mark is not None and now is not None and mark[0]() is now and mark[1] == count


def _rests(state: Tensor, dims: int) -> Tensor:
    """Returns whether all samples have the same state, or all neurons of a single one."""
    batch = state.ndim - dims
    if not state.numel() or state.is_complex():
        return torch.tensor(False)
    if state.shape[batch] == 1:
        return state.amin() == state.amax()
    return (state.amin(batch) == state.amax(batch)).all()

"""A CellTrainer at work on the cells of a model, in any training loop."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from typing import Any, ClassVar

import torch
from torch import nn
from typing_extensions import Unpack

from lightning_accum._checked_state import ANOTHER_VERSION, MAPPING, TEXT, check_state, named
from lightning_accum._checks import check_type, check_value, quoted
from lightning_accum._training_events import SILENT, By, Observer
from lightning_accum.callbacks._processes import check_exchangeable, shard_holders, shares_of
from lightning_accum.cells.cell import Cell, CellSpec
from lightning_accum.cells.rule_trainer import RuleTrainer, cells_for, trainer_of
from lightning_accum.cells.state import RunOptions
from lightning_accum.cells.trainer import (
    CellTrainer,
    Undo,
    feedbacks_of,
    forget_samples,
    params_of,
    updaters_of,
)
from lightning_accum.distributed.shards import whole_parameters
from lightning_accum.distributed.world import exchange, is_first, processes
from lightning_accum.engine.rule import Rule
from lightning_accum.updates import Updater, attach_updater, get_updater
from lightning_accum.updates.atomic_changes import NonFinite, check_policy
from lightning_accum.updates.pending import Pending
from lightning_accum.updates.updater import claim, release, set_updater


class CellHost:
    """Runs a CellTrainer on the cells of a model, in any training loop; it needs no Lightning."""

    # An updater that another host uses too gets a sibling, so that pending changes stay separate. A
    # connection without an updater gets one for as long as the cells are bound.

    watching: ClassVar[Callable[[bool | Mapping[str, bool]], Callable[..., Observer]]]
    """Returns what makes an observer of a run, by the argument ``health``."""

    def __init__(
        self,
        what: Rule | CellTrainer,
        cells: dict[str, CellSpec] | None = None,
        carry: bool = False,
        nonfinite: NonFinite | None = None,
        health: bool | Mapping[str, bool] = True,
        **options: Unpack[RunOptions],
    ) -> None:
        trainer = trainer_of(what, {**options})
        if nonfinite is not None:
            check_policy(nonfinite)
        check_type(isinstance(carry, bool), "carry", carry, "a bool")
        fits = not carry or not isinstance(trainer, RuleTrainer) or bool(trainer.options.carry)
        should = f"False for a trainer of `{trainer.title}` that was made with `carry=False`"
        check_value(fits, "carry", carry, should, "leave it out of one of the two")
        self.cells = cells_for(trainer, cells)
        len(trainer.registry)  # raises if `super().__init__()` of the trainer was not called
        self.trainer, self.carry, self.nonfinite = trainer, carry, nonfinite
        self.bound = False
        self.events: Observer = SILENT
        self._make = type(self).watching(health)
        self.batches = self.updates = 0  # since it was bound
        self.alone = True  # whether this was the only process when it was bound
        self._sharded: list[Any] = []  # modules of the model, under FSDP2
        self._undo: Undo | None = None  # of a batch that was evaluated in part
        self._loaded: dict[str, Any] | None = None  # a state that waits for `bind`
        self._loaded_own = True  # whether this process saved it
        self._without: list[nn.Module] = []  # connections that had no updater before
        self._released: dict[str, Updater] = {}  # the updaters of cells that are not bound now
        self._combining: list[Pending] = []  # to which rules may add differences of parts
        self._records: dict[Pending, Pending] = {}  # of their parts, for the next one

    # ------------------------------------------------------------------ binding
    @property
    def names(self) -> list[str]:
        """The names of the cells, also before they are bound."""
        return [*(dict(self.trainer.named_cells) if self.cells is None else self.cells)]

    @property
    def updaters(self) -> dict[str, Updater]:
        """The cells' updaters, each once, by the name of the first cell that has it."""
        if self._released and not self.bound:
            return self._released
        return _updaters_of(self.trainer)

    def bind(self, model: nn.Module) -> bool:
        """Finds the cells in a model, and returns whether it has loaded a state that waited."""
        loaded, self._loaded = self._loaded, None
        self.batches, self.updates, self.alone = 0, 0, processes() == 1
        self.trainer.events.ended("released")  # those of a loop by hand
        self._listen(SILENT)
        self._bind_cells(model)
        for feedback in feedbacks_of(self.trainer):
            feedback.bind_model(model)
        check_exchangeable(self.trainer)
        self._sharded = shard_holders(model, self.updaters.values())
        self.trainer.recording = False
        self.trainer.clear()
        self.trainer.to(next((p.device for p in model.parameters()), torch.device("cpu")))
        for updater in self.updaters.values():
            updater.nonfinite = self.nonfinite or updater.nonfinite
            updater.clear()
        forget_samples(self.trainer)
        if loaded is not None:
            self._load(loaded)
        return loaded is not None

    def release(self) -> None:
        """Removes the hooks and the updaters that it attached; what is pending stays here."""
        self.events.ended("released")
        self._listen(SILENT)
        if self.bound:
            self._unbind()
        self._loaded = self._undo = None
        self._sharded = []
        self.trainer.recording = False
        self.trainer.eval()
        for monitor in self.trainer.monitors:
            monitor.deregister()

    def _bind_cells(self, model: nn.Module) -> None:
        """Registers the cells of a model with the trainer, and claims their updaters."""
        if self.bound:
            self._unbind()
        self.trainer.hosted = True
        try:
            self._register(model)
            self._claim()
            if not any(True for _ in self.trainer.cells):
                raise ValueError(
                    "Argument `cells` should name at least one cell. Found none, and none"
                    " registered with the trainer."
                )
        except BaseException:
            self._unbind()
            raise
        self.bound = True

    def _unbind(self) -> None:
        """Leaves the connections as they were before; what is pending stays in ``updaters``."""
        self._released = _updaters_of(self.trainer)
        for name, (cell, _) in self.trainer.named_cells:
            self.trainer.registry[name].replacement = None
            if (updater := get_updater(cell.connection)) is not None:
                release(updater, self)
        for module in self._without:
            if get_updater(module) in self._released.values():
                set_updater(module, None)
        self._without = []
        self.bound = self.trainer.hosted = False

    def _register(self, model: nn.Module) -> None:
        """Registers each cell that has a path, unless the trainer has it already."""
        if self.cells is None:
            return
        trainer = self.trainer
        assert isinstance(trainer, RuleTrainer)
        found, known = {n: spec.find(model) for n, spec in self.cells.items()}, trainer.registry
        self._give_back([cell.connection for cell in found.values()])
        for name, cell in found.items():
            if name in known and not known[name].loose and known[name].get() != cell:
                trainer.del_cell(name)  # it belongs to another model, which may be gone
        for name, cell in found.items():
            if name not in known or known[name].loose:
                self._register_cell(trainer, name, cell, self.cells[name])
            elif get_updater(cell.connection) is None:  # another host attached and removed it
                attach_updater(cell.connection, *params_of(trainer, name))

    def _give_back(self, connections: Sequence[nn.Module]) -> None:
        """Gives connections without an updater the one that they had before it was released."""
        without = {id(each): each for each in connections if get_updater(each) is None}
        self._without = [*without.values()]
        for updater in self._released.values():  # they keep their constraints and bounds
            if id(updater.changes.module()) in without:
                set_updater(updater.parent, updater)

    def _register_cell(self, trainer: RuleTrainer, name: str, cell: Cell, spec: CellSpec) -> None:
        """Registers a cell with its parameters, or leaves no trace of it."""
        overrides = dict(spec.overrides)
        if spec.params is not None:
            overrides.setdefault("params", tuple(spec.params))
        try:
            trainer.register_cell(name, cell, **overrides)
        except BaseException:  # also Ctrl-C: a cell that is half registered would train nothing
            if name in trainer.registry:
                trainer.del_cell(name)
            if any(cell.connection is each for each in self._without):
                set_updater(cell.connection, None)
            raise

    def _claim(self) -> None:
        """Separates the pending changes of the cells from those of other hosts."""
        self._released = {}
        claimed = cache(partial(claim, user=self))  # each updater once
        for name, (cell, _) in self.trainer.named_cells:
            if (updater := get_updater(cell.connection)) is not None:
                self.trainer.registry[name].replacement = claimed(updater)

    def check_places(self, model: nn.Module) -> None:
        """Raises an error if a module of a cell was replaced in the model after it was bound."""
        for name, spec in (self.cells or {}).items():
            if name not in self.trainer.registry:  # the cell was deleted
                continue
            bound = self.trainer.registry[name].get()  # None if a module of it is gone
            now = CellSpec(spec.connection, spec.neuron).find(model)
            sides = "connection", "neuron"
            new = [getattr(spec, s) for s in sides if getattr(bound, s, 0) is not getattr(now, s)]
            if new:
                raise RuntimeError(
                    f"The modules of cell `{name}` should stay the same while a fit runs. Found"
                    f" another {quoted(new, ' or ')} than when the fit began, which would not be"
                    " trained: replace a module in `__init__`, `setup` or `configure_model`."
                )

    def watch(
        self, model: nn.Module, by: By, hosts: Sequence[CellHost] = (), **of_fit: Any
    ) -> Observer:
        """Has the cells observed until they are released; returns what has a report in the end."""
        return self._make(self.trainer, by, self, self._listen, model, hosts, **of_fit)

    def _listen(self, events: Observer) -> None:
        """Sets what is told of windows and updates."""
        self.events = self.trainer.events = events
        for updater in self.updaters.values() if self.bound else ():
            updater.changes.events = events

    # ------------------------------------------------------------------ running
    def evaluate(self, **inputs: Any) -> None:
        """Accumulates the changes of the window since the last call; traces pass on."""
        self._undo = self._undo or Undo(self.trainer)
        with whole_parameters(self._sharded):
            self.trainer(**inputs)

    def finish_batch(self, **inputs: Any) -> None:
        """Evaluates the rest of a batch; traces pass on only if batches are one stream."""
        with whole_parameters(self._sharded) if self._sharded else nullcontext():
            self.trainer.finish_batch(self.carry, **inputs)
        self._undo = None
        self.batches += 1
        if not self.carry:
            self.trainer.clear()

    def abandon_batch(self) -> None:
        """Drops what an interrupted batch recorded; changes of earlier batches stay."""
        if self._undo is not None:
            self._undo.undo()
        self._undo = None
        if not self.carry:
            self.trainer.clear()
        for monitor in self.trainer.monitors:
            monitor.reducer.drop_window()

    def combine(self, at_once: bool, record: bool = False) -> None:
        """Has rules add only the difference of both parts of a change, unless these are read."""
        # What is applied does not depend on it. Those whose user has set `keep_parts` stay as is.
        if not at_once:
            for pending in self._combining:
                pending.may_combine = False
            self._combining, self._records = [], {}
        elif not self._combining and self.alone:
            found = (each for u in self.updaters.values() for each in u.changes.pending.values())
            self._combining = [each for each in found if each.keep_parts is None]
            for pending in self._combining:
                pending.may_combine = True
        for pending in self._combining if record else ():
            if pending.combines and pending.record is None:
                known = self._records.get(pending)
                self._records[pending] = pending.record_parts(known)

    def exchange(self, ids: set[int] | None = None) -> None:
        """Sums what is pending over processes; every process has to call this."""
        self.updates += 1
        if ids is None and self.alone:
            forget_samples(self.trainer)
        else:
            exchange(shares_of(self.trainer, ids))

    # ------------------------------------------------------------------ survival
    def state_dict(self) -> dict[str, Any]:
        """Returns the states of trainer and updaters, in builtins; empty without cells."""
        if self._loaded is not None:
            return self._loaded
        updaters = {name: dict(u.state_dict()) for name, u in self.updaters.items()}
        if not updaters:
            return {}
        rule, trainer = self.trainer.title, dict(self.trainer.state_dict())
        return {"rule": rule, "trainer": trainer, "updaters": updaters}

    def load_state_dict(self, state: dict[str, Any], own: bool | None = None) -> None:
        """Loads a state now, or when the cells are bound if they are not yet."""
        self._loaded_own = is_first() if own is None else own
        if self.bound:
            self._load(state)
        else:
            self._loaded = state

    def _load(self, state: dict[str, Any]) -> None:
        """Loads a state into the trainer and the updaters, which are bound."""
        kinds = {"rule": TEXT, "trainer": MAPPING, "updaters": named(MAPPING)}
        check_state("a host", state, kinds, ANOTHER_VERSION)
        here, there = set(self.updaters), set(state["updaters"])
        if here != there:
            raise ValueError(
                "The state should be of a trainer with the same cells. Missing from it:"
                f" {sorted(here - there)}; not known here: {sorted(there - here)}."
            )
        self.trainer.check_state_dict(state["trainer"])
        for name, updater in self.updaters.items():
            updater.check_state_dict(state["updaters"][name])
        own = self.trainer.title
        if (saved := state["rule"]) != own and is_first():
            warnings.warn(
                "The state that is loaded should be that of the rule that resumes. Found the state"
                f" of a `{saved}`, of which a `{own}` takes only pending changes and the traces"
                f" that it has too: resume with a `{saved}`, or begin a new fit with the weights of"
                " the checkpoint.",
                UserWarning,
                stacklevel=2,
            )
        self.trainer.load_state_dict(state["trainer"])
        for name, updater in self.updaters.items():
            updater.load_state_dict(state["updaters"][name])
        self.abandon_batch()  # it was running when the state was saved
        if not self._loaded_own:
            self.trainer.clear()
            for updater in self.updaters.values():
                updater.clear()
            forget_samples(self.trainer)

    def __getstate__(self) -> dict[str, Any]:
        # A copy is not bound: the modules belong to the original.
        gone: dict[str, Any] = {"_without": [], "_released": {}, "bound": False}
        gone |= {"_sharded": [], "_undo": None, "events": SILENT, "_combining": [], "_records": {}}
        return {**self.__dict__, **gone}


def _updaters_of(trainer: CellTrainer) -> dict[str, Updater]:
    """Returns the updaters of a trainer's cells, by the name of the first cell of each."""
    return {names[0]: updater for updater, names in updaters_of(trainer).values()}

"""A trainer at work on a model: binding, the recording gate, evaluation, and what is saved."""

from __future__ import annotations

import weakref
from typing import Any, get_args

import torch
from torch import nn

from lightning_accum._compat import forget_compiled
from lightning_accum._state import ANOTHER_VERSION, MAPPING, check_state, named
from lightning_accum.callbacks._shares import check_exchangeable, shares_of
from lightning_accum.cells.cell import CellSpec
from lightning_accum.cells.independent import IndependentCellTrainer, cells_for
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.cells.undo import Undo
from lightning_accum.distributed.exchange import exchange
from lightning_accum.distributed.fsdp import shard_holders, whole_parameters
from lightning_accum.distributed.world import is_first
from lightning_accum.optim import updates_as_gradients
from lightning_accum.rules.base import Rule
from lightning_accum.updates import (
    NonFinite,
    Updater,
    attach_updater,
    get_updater,
    set_updater,
)
from lightning_accum.updates.claims import claim, release


class CellHost:
    """Runs a CellTrainer on the cells of a model, in whatever loop; no Lightning is in it.

    Args:
        trainer: the trainer, usually a rule.
        cells: by name, where the trainer's cells are in the model; ``None`` where they were
            registered with the trainer by hand.
        carry: whether batches are pieces of one stream, so that traces pass between them.
        nonfinite: what the cells' updaters do with NaN and Inf; as they are set when ``None``.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from lightning_accum import STDP
        >>> model = nn.Sequential(nn.Linear(2, 1), nn.Identity())
        >>> host = CellHost(STDP(0.1, -0.1), {"enc": CellSpec("0", "1")})
        >>> host.bind(model)
        >>> host.trainer.recording = True
        >>> _ = model(torch.ones(1, 2))
        Traceback (most recent call last):
        ...
        ValueError: Activity of a rule on spikes should be 0 or 1. Found ...
        >>> host.release()
    """

    def __init__(
        self,
        trainer: CellTrainer,
        cells: dict[str, CellSpec] | None = None,
        carry: bool = False,
        nonfinite: NonFinite | None = None,
    ) -> None:
        if nonfinite is not None and nonfinite not in get_args(NonFinite):
            raise ValueError(
                f"Argument `nonfinite` should be one of {get_args(NonFinite)}."
                f" Found `{nonfinite = }`."
            )
        self.trainer = trainer
        self.cells = cells_for(trainer, cells)
        self.carry = carry
        self.nonfinite = nonfinite
        self._bound = False
        self._bare: list[nn.Module] = []  # connections that had no updater before
        self._left: list[tuple[weakref.ref[nn.Module], Updater]] = []  # what cells had in a run
        self._kept: dict[str, Updater] = {}  # of cells that were let go
        self._pending: dict[str, Any] | None = None
        self._undo: Undo | None = None  # of a batch that was evaluated in part
        self._other = False  # whether that is the state of another process
        self._sharded: list[Any] = []  # modules of the model, under FSDP2

    # ------------------------------------------------------------------ binding
    def bind(self, model: nn.Module) -> None:
        """Finds the cells in ``model``, and takes up a state that was loaded before.

        Without such a state, nothing is recorded, carried or pending afterwards.

        Raises:
            AttributeError: if a path or a parameter is not there.
            ValueError: if there is no cell at all.
        """
        pending, self._pending = self._pending, None
        if self._bound:
            self._leave_updaters()
        forget_compiled(model)  # what was compiled before would not call the hooks
        try:
            self._register(model)
            self._take_updaters()
        except BaseException:
            self._leave_updaters()
            raise
        if not any(True for _ in self.trainer.cells):
            raise ValueError(
                "Argument `cells` should name at least one cell. Found none, and none registered"
                " with the trainer."
            )
        check_exchangeable(self.trainer)
        self._sharded = shard_holders(model, self.updaters.values())
        self.trainer.recording = False
        self.trainer.clear()
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self.trainer.to(device)
        for updater in self.updaters.values():
            if self.nonfinite is not None:
                updater.nonfinite = self.nonfinite
            updater.clear()
        shares_of(self.trainer)  # counts anew
        self._bound = True
        if pending is not None:
            self._load(pending)

    def _register(self, model: nn.Module) -> None:
        """Gives the trainer the cells that are named, but for those that it has."""
        if self.cells is None:
            return
        assert isinstance(self.trainer, IndependentCellTrainer)
        found = {name: spec.find(model) for name, spec in self.cells.items()}
        connections = {id(cell.connection): cell.connection for cell in found.values()}
        self._bare = [each for each in connections.values() if get_updater(each) is None]
        for module, updater in self._left:  # they go on with their constraints and bounds
            if any(module() is each for each in self._bare):
                set_updater(updater.parent, updater)
        refs = self.trainer.registry
        for name, cell in found.items():
            if name in refs and not refs[name].loose and refs[name].get() != cell:
                self.trainer.del_cell(name)  # of another model, which may be gone
        for name, cell in found.items():
            if name in refs and not refs[name].loose:
                if get_updater(cell.connection) is None:  # which another host took along
                    attach_updater(cell.connection, *self.trainer.params_of(name))
                continue
            overrides = dict(self.cells[name].overrides)
            params = self.cells[name].params
            if isinstance(self.trainer, Rule) and params is not None:
                overrides.setdefault("params", tuple(params))
            try:
                self.trainer.register_cell(name, cell, **overrides)
            except BaseException:  # also Ctrl-C: what is half made would train nothing
                if name in refs:
                    self.trainer.del_cell(name)
                raise

    def _take_updaters(self) -> None:
        """Has what cells change accumulate apart from what other hosts have pending for them."""
        taken: dict[int, Updater] = {}
        self._kept = {}
        for name, (cell, _) in self.trainer.named_cells:
            updater = get_updater(cell.connection)
            if updater is not None:
                if id(updater) not in taken:
                    taken[id(updater)] = claim(updater, self)
                self.trainer.use_updater(name, taken[id(updater)])

    def _leave_updaters(self) -> None:
        """Leaves connections as they were, with the updaters of others and without our own."""
        self._kept = self._updaters_of_cells()
        self._left = [(weakref.ref(own.parent), own) for own in self._kept.values()]
        for name, (cell, _) in self.trainer.named_cells:
            self.trainer.use_updater(name, None)
            if (updater := get_updater(cell.connection)) is not None:
                release(updater, self)
        for module in self._bare:
            if get_updater(module) in self._kept.values():
                set_updater(module, None)
        self._bare = []

    @property
    def bound(self) -> bool:
        """Whether the cells were found in a model, which was not released since."""
        return self._bound

    @property
    def names(self) -> list[str]:
        """The names of the cells, also before they are bound."""
        return (
            [name for name, _ in self.trainer.named_cells] if self.cells is None else [*self.cells]
        )

    @property
    def resuming(self) -> bool:
        """Whether a state waits for the cells to be bound."""
        return self._pending is not None

    def release(self) -> None:
        """Takes hooks and own updaters away; what is learned, recorded and pending stays here.

        A state that was loaded and waits for a model is dropped.
        """
        if self._bound:
            self._leave_updaters()
        self._bound = False
        self._pending = self._undo = None
        self._sharded = []
        self.trainer.recording = False
        self.trainer.eval()

    @property
    def updaters(self) -> dict[str, Updater]:
        """The cells' updaters, each once, by the name of the first cell that has it."""
        return self._kept if self._kept and not self._bound else self._updaters_of_cells()

    def _updaters_of_cells(self) -> dict[str, Updater]:
        return {names[0]: updater for updater, names in self.trainer.updaters.values()}

    # ------------------------------------------------------------------ running
    def evaluate(self, **inputs: Any) -> None:
        """Accumulates what the window since the last call changes; traces pass on."""
        self._undo = self._undo or Undo(self.trainer)
        self._evaluate(**inputs)

    def _evaluate(self, **inputs: Any) -> None:
        with whole_parameters(self._sharded):
            self.trainer(**inputs)

    def abandon_batch(self) -> None:
        """Drops what an interrupted batch recorded; what came from earlier batches stays."""
        if self._undo is not None:
            self._undo.undo()
        self._undo = None
        if self.carry:
            self.trainer.drop_window()
        else:
            self.trainer.clear()

    def exchange(self, ids: set[int] | None = None) -> None:
        """Gives every process what all of them have pending; to be called in all of them.

        Args:
            ids: the ``id`` of every parameter that is about to change; all when ``None``.
        """
        exchange(shares_of(self.trainer, ids))

    def updates_as_gradients(self, **inputs: Any) -> None:
        """Evaluates, and hands what all processes have pending to whoever steps the parameters.

        To be called in all processes.
        """
        self.evaluate(**inputs)
        self.export_as_gradients()

    def export_as_gradients(self) -> None:
        """Hands what is pending, and evaluated, to whoever steps; to be called in all processes."""
        self.exchange()
        updates_as_gradients(*self.updaters.values())

    def finish_batch(self, **inputs: Any) -> None:
        """Evaluates the rest of a batch; traces pass on only where batches are one stream."""
        if isinstance(self.trainer, Rule):
            inputs["carry"] = self.carry
        self._evaluate(**inputs)
        self._undo = None
        if not self.carry:
            self.trainer.clear()

    # ------------------------------------------------------------------ survival
    def state_dict(self) -> dict[str, Any]:
        """Tensors and builtins alone: the trainer, and what is pending in the updaters.

        Empty where there are no cells yet.
        """
        if self._pending is not None:
            return self._pending
        updaters = {name: dict(u.state_dict()) for name, u in self.updaters.items()}
        if not updaters:
            return {}
        return {"trainer": dict(self.trainer.state_dict()), "updaters": updaters}

    def __getstate__(self) -> dict[str, Any]:
        # the cells stay with the original
        gone: dict[str, Any] = {"_bare": [], "_left": [], "_kept": {}, "_sharded": []}
        return {**self.__dict__, **gone, "_bound": False, "_undo": None}

    def load_state_dict(self, state: dict[str, Any], own: bool | None = None) -> None:
        """Takes what :meth:`state_dict` gave, now or, before the cells are bound, when they are.

        Args:
            state: what was saved.
            own: whether this process saved it. Of that of another, only what was learned is
                taken: what is pending would count twice. ``None`` for whether it is the first.
        """
        self._other = not (is_first() if own is None else own)
        if self._bound:
            self._load(state)
        else:
            self._pending = state

    def _load(self, state: dict[str, Any]) -> None:
        kinds = {"trainer": MAPPING, "updaters": named(MAPPING)}
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
        self.trainer.load_state_dict(state["trainer"])
        for name, updater in self.updaters.items():
            updater.load_state_dict(state["updaters"][name])
        self.abandon_batch()  # one that was running when the state was saved
        if self._other:
            self.trainer.clear()
            for updater in self.updaters.values():
                updater.clear()
            shares_of(self.trainer)  # counts anew

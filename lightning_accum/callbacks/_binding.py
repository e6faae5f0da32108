"""The binding of a trainer's cells to a model, for as long as a run lasts."""

from __future__ import annotations

import warnings
import weakref
from typing import Any

from torch import nn

from lightning_accum.cells.cell import Cell, CellSpec
from lightning_accum.cells.independent import IndependentCellTrainer, cells_for
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.world import is_first
from lightning_accum.updates import Updater, attach_updater, get_updater
from lightning_accum.updates.attached import claim, release, set_updater


def check_carry(trainer: object, carry: bool) -> None:
    """Raises a ``ValueError`` if a rule that carries nothing should carry.

    Args:
        trainer: the trainer.
        carry: whether batches are pieces of one stream.
    """
    if carry and getattr(trainer, "carry", True) is False:
        raise ValueError(
            f"Argument `carry` should be False for a `{type(trainer).__name__}` that was made with"
            " `carry=False`. Found `carry = True`: leave it out of one of the two."
        )


def check_rule(trainer: CellTrainer, saved: str) -> None:
    """Warns if a state was saved by a trainer of another class.

    Args:
        trainer: the trainer that is about to load it.
        saved: the name of the class of the one that saved it.
    """
    if saved != type(trainer).__name__ and is_first():
        warnings.warn(
            "The state that is loaded should be that of the rule that resumes. Found the state of a"
            f" `{saved}`, of which a `{type(trainer).__name__}` takes only pending changes and the"
            f" traces that it has too: resume with a `{saved}`, or begin a new fit with the weights"
            " of the checkpoint.",
            UserWarning,
            stacklevel=2,
        )


class Binding:
    """Finds the cells of a trainer in a model, and keeps their pending changes separate.

    A connection may already have an updater, which another host may use at the same time. Then the
    cell gets a sibling of it, and pending changes stay separate. A connection without an updater
    gets one for as long as the cells are bound.

    Args:
        trainer: the trainer.
        cells: by name, the paths of the trainer's cells in the model; ``None`` if they were
            registered with the trainer by hand.

    Raises:
        TypeError: if ``trainer`` is not a CellTrainer, or ``cells`` does not hold CellSpecs.
    """

    def __init__(self, trainer: CellTrainer, cells: dict[str, CellSpec] | None) -> None:
        self.cells = cells_for(trainer, cells)
        len(trainer.registry)  # raises if `super().__init__()` of the trainer was not called
        self.bound = False
        self._trainer = trainer
        self._without: list[nn.Module] = []  # connections that had no updater before
        self._earlier: list[tuple[weakref.ref[nn.Module], Updater]] = []  # of the last run
        self._released: dict[str, Updater] = {}  # the updaters of cells that are not bound now

    @property
    def names(self) -> list[str]:
        """The names of the cells, also before they are bound."""
        if self.cells is None:
            return [name for name, _ in self._trainer.named_cells]
        return [*self.cells]

    @property
    def updaters(self) -> dict[str, Updater]:
        """The cells' updaters, each once, by the name of the first cell that has it."""
        if self._released and not self.bound:
            return self._released
        return self._of_cells()

    def _of_cells(self) -> dict[str, Updater]:
        return {names[0]: updater for updater, names in self._trainer.updaters.values()}

    def bind(self, model: nn.Module) -> None:
        """Registers the cells of a model with the trainer, and claims their updaters.

        Args:
            model: the model.

        Raises:
            AttributeError: if the model lacks a module or a parameter.
            ValueError: if there is no cell.
        """
        if self.bound:
            self.release()
        self._trainer.hosted = True
        try:
            self._register(model)
            self._claim()
            if not any(True for _ in self._trainer.cells):
                raise ValueError(
                    "Argument `cells` should name at least one cell. Found none, and none"
                    " registered with the trainer."
                )
        except BaseException:
            self.release()
            raise
        self.bound = True

    def release(self) -> None:
        """Leaves the connections as they were before; what is pending stays in ``updaters``."""
        self._released = self._of_cells()
        self._earlier = [(weakref.ref(own.parent), own) for own in self._released.values()]
        for name, (cell, _) in self._trainer.named_cells:
            self._trainer.use_updater(name, None)
            if (updater := get_updater(cell.connection)) is not None:
                release(updater, self)
        for module in self._without:
            if get_updater(module) in self._released.values():
                set_updater(module, None)
        self._without = []
        self.bound = self._trainer.hosted = False

    def _register(self, model: nn.Module) -> None:
        """Registers each cell that has a path, unless the trainer has it already."""
        if self.cells is None:
            return
        trainer = self._trainer
        assert isinstance(trainer, IndependentCellTrainer)
        registry = trainer.registry
        found = {name: spec.find(model) for name, spec in self.cells.items()}
        connections = {id(cell.connection): cell.connection for cell in found.values()}
        self._without = [each for each in connections.values() if get_updater(each) is None]
        for module, updater in self._earlier:  # they keep their constraints and bounds
            if any(module() is each for each in self._without):
                set_updater(updater.parent, updater)
        for name, cell in found.items():
            if name in registry and not registry[name].loose and registry[name].get() != cell:
                trainer.del_cell(name)  # it belongs to another model, which may be gone
        for name, cell in found.items():
            if name not in registry or registry[name].loose:
                self._register_cell(trainer, name, cell, self.cells[name])
            elif get_updater(cell.connection) is None:  # another host attached and removed it
                attach_updater(cell.connection, *trainer.params_of(name))

    def _register_cell(
        self, trainer: IndependentCellTrainer, name: str, cell: Cell, spec: CellSpec
    ) -> None:
        """Registers a cell with its parameters, or leaves no trace of it."""
        overrides = dict(spec.overrides)
        if spec.params is not None and "params" in vars(trainer.defaults):
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
        claimed: dict[int, Updater] = {}
        self._released = {}
        for name, (cell, _) in self._trainer.named_cells:
            updater = get_updater(cell.connection)
            if updater is not None:
                if id(updater) not in claimed:
                    claimed[id(updater)] = claim(updater, self)
                self._trainer.use_updater(name, claimed[id(updater)])

    def __getstate__(self) -> dict[str, Any]:
        # A copy is not bound: the modules belong to the original.
        gone: dict[str, Any] = {"_without": [], "_earlier": [], "_released": {}, "bound": False}
        return {**self.__dict__, **gone}

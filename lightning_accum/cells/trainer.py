"""The CellTrainer: watches cells, and applies their pending changes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn

from lightning_accum._checked_state import CheckedState
from lightning_accum._checks import check_taken, check_type, check_value
from lightning_accum._training_events import SILENT, Observer
from lightning_accum.cells.cell import Cell, CellRef, CellRegistry, check_name
from lightning_accum.cells.state import CellState
from lightning_accum.engine.feedback import Feedback
from lightning_accum.observe import Monitor
from lightning_accum.observe.monitor import MonitorConstructor
from lightning_accum.observe.pool import MonitorPool
from lightning_accum.updates import Updater, attach_updater
from lightning_accum.updates.atomic_changes import AtomicChanges


class Unset:
    """Raises an error if an attribute is read before ``super().__init__`` has set it."""

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        raise RuntimeError(
            f"`{owner.__name__}.__init__` should call `super().__init__(...)` before anything else"
            " is done with it. Found that it has not: call it first."
        )


class CellTrainer(CheckedState):
    """Base class of trainers of the parameters of cells.

    A subclass accumulates changes in ``forward``; :meth:`update` applies them.

    The trainer owns monitors and auxiliary state, and moves them with ``.to()``. The cells belong
    to the model: they are held weakly, and a cell whose modules no longer exist is dropped. The
    monitors are registered in training mode and deregistered in evaluation mode; for the sake of
    compiled code, their hooks stay and pass nothing on. A copy of a trainer has all state and no
    cells: add the cells again under their names. A method that takes the name of a cell raises an
    ``AttributeError`` if there is no such cell.

    Example:
        >>> import torch
        >>> from lightning_accum import Cell
        >>> from lightning_accum.observe import OutputMonitor
        >>> fc, relu = torch.nn.Linear(2, 1), torch.nn.ReLU()
        >>> trainer = CellTrainer()
        >>> cell, state = trainer.add_cell("enc", Cell(fc, relu), params=["weight"])
        >>> monitor = trainer.add_monitor(
        ...     "enc", "post", "neuron", OutputMonitor.partialconstructor()
        ... )
        >>> _ = relu(fc(torch.ones(1, 2)))
        >>> monitor.peek().shape
        torch.Size([1, 1])
        >>> cell.updater.weight = torch.ones(1, 2)
        >>> trainer.update()
    """

    registry: CellRegistry = Unset()  # type: ignore[assignment]
    """The cells by name."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = CellRegistry(type(self).__name__)
        self.events: Observer = SILENT
        self.unread: list[str] = []  # inputs that the latest call has not read
        self.hosted = False  # whether a callback or a Fabric loop calls and applies it
        self._states = nn.ModuleDict()
        self._pool = MonitorPool()
        self.switch = self._pool.switch

    # ------------------------------------------------------------------ cells
    def add_cell(
        self,
        name: str,
        cell: Cell,
        state: nn.Module | None = None,
        params: Sequence[str] | None = None,
    ) -> tuple[Cell, nn.Module | None]:
        """Adds a cell and any auxiliary state.

        Args:
            name: name of the cell, without dots. In a copy of a trainer, the name of a cell of the
                original binds the copied state and monitors to ``cell``.
            cell: the cell.
            state: auxiliary state, owned by the trainer.
            params: parameters of the connection that must be updatable; the connection gets an
                updater if it has none.

        Returns:
            The cell and its auxiliary state.

        Raises:
            ValueError: if the name is taken, or is not a name.
            TypeError: if ``cell`` is not a cell.
            AttributeError: if the connection lacks one of ``params``.
        """
        how = "make one of two modules, `Cell(connection, neuron)`"
        check_type(isinstance(cell, Cell), "cell", cell, "a Cell", how)
        self._drop_dead()
        known, should = self.registry.get(name), f"new to the trainer, which has {[*self.registry]}"
        how = f"choose another, or call `del_cell({name!r})` first"
        check_value(known is None or known.loose, "name", name, should, how)
        check_name(name)
        if params:
            cell.check_params(params, name)
            updater = attach_updater(cell.connection, *params)
            updater.changes.label = f"{type(cell.connection).__name__} (cell {name})"
        self.registry[name] = CellRef(cell)
        if state is not None:
            self._states[name] = state
        if known is None:
            self._pool.add_group(name)
        else:
            self._pool.bind(name, cell)
        return cell, self._state_of(name)

    def get_cell(self, name: str) -> tuple[Cell, nn.Module | None]:
        """Returns a cell and its auxiliary state.

        Raises:
            RuntimeError: if the cell's modules no longer exist, or this trainer is a copy.
        """
        return self.registry.cell(name), self._state_of(name)

    def del_cell(self, name: str) -> None:
        """Deletes a cell from the trainer, with its state and its monitors; the model keeps it."""
        self.registry[name]  # raises
        self._pool.del_group(name)
        del self.registry[name]
        if name in self._states:
            del self._states[name]

    @property
    def cells(self) -> Iterator[tuple[Cell, nn.Module | None]]:
        """Added cells and their auxiliary states."""
        return (pair for _, pair in self.named_cells)

    @property
    def named_cells(self) -> Iterator[tuple[str, tuple[Cell, nn.Module | None]]]:
        """Added cells and their auxiliary states, by name."""
        self._drop_dead()
        return ((name, (cell, self._state_of(name))) for name, cell in self.registry.bound)

    def _bound_cells(self) -> list[tuple[str, Cell]]:
        """Returns the cells of which both modules exist, by name; raises if this is a copy."""
        found = self.registry.bound
        if len(found) < len(self.registry):
            # a copy would train nothing, in silence
            if loose := [name for name, ref in self.registry.items() if ref.loose]:
                raise RuntimeError(
                    f"This {type(self).__name__} is a copy, and its cells {loose} belong to the"
                    " original: add them again under their names, with the modules of the copy."
                )
            self._drop_dead()
        return found

    # ------------------------------------------------------------------ monitors
    def add_monitor(
        self,
        cell: str,
        name: str,
        attr: str,
        monitor: MonitorConstructor,
        unique: bool = False,
        /,
        **tags: Any,
    ) -> Monitor:
        """Adds a monitor to a cell, or an equal monitor that another cell has.

        Args:
            cell: name of the cell.
            name: name of the monitor, unique to the cell.
            attr: dotted path of the watched attribute, relative to the cell (``"neuron"``,
                ``"connection"``, ``"neuron.voltage"``).
            monitor: constructor, as from :meth:`Monitor.partialconstructor`.
            unique: whether to add a new monitor in any case, in place of one of that name.
            **tags: distinguish monitors that are equal in name, class, path and reducer.

        Returns:
            The monitor, new or shared.

        Raises:
            AttributeError: if the path leads nowhere.
            ValueError: if the name has dots, or is not a name.
        """
        watched = self.registry.cell(cell)
        check_name(name)
        made = monitor(watched, attr)
        made.deregister()
        return self._pool.add(cell, name, made, None if unique else tuple(sorted(tags.items())))

    def get_monitor(self, cell: str, name: str) -> Monitor | None:
        """Returns a monitor, ``None`` if the cell has none of that name."""
        self.registry[cell]  # raises
        return self._pool.get(cell, name)

    def del_monitor(self, cell: str, name: str) -> None:
        """Deletes a monitor from a cell; others that share it keep it.

        Raises:
            AttributeError: if the cell has no such monitor.
        """
        if self.get_monitor(cell, name) is None:
            raise AttributeError(
                f"Argument `name` should be a monitor of cell `{cell}`, one of"
                f" {[*self._pool.members(cell)]}. Found `{name = }`."
            )
        self._pool.delete(cell, name)

    @property
    def monitors(self) -> Iterator[Monitor]:
        """Added monitors, each once however many cells share it."""
        return self._pool.unique()

    @property
    def named_monitors(self) -> Iterator[tuple[tuple[str, str], Monitor]]:
        """Added monitors by the names of cell and monitor."""
        return self._pool.named()

    def named_monitors_of(self, cell: str) -> Iterator[tuple[str, Monitor]]:
        """Returns the monitors of one cell, by name."""
        self.registry[cell]  # raises
        return iter(self._pool.members(cell).items())

    @property
    def recording(self) -> bool:
        """Whether registered monitors record; false pauses them without removing their hooks."""
        return self.switch.on

    @recording.setter
    def recording(self, value: bool) -> None:
        self.switch.on = value

    def clear(self, **kwargs: Any) -> None:
        """Clears every monitor, and the values of samples that would pass to the next window.

        Updaters, which other trainers may share, keep what is pending.
        """
        self._pool.clear(**kwargs)
        for state in self._states.values():
            if isinstance(state, CellState) and state.carried:
                state.clear()

    def _drop_dead(self) -> None:
        """Drops cells of which a module no longer exists."""
        for name in self.registry.gone:
            self.del_cell(name)

    def _state_of(self, name: str) -> nn.Module | None:
        states = self._states
        return states[name] if name in states else None

    # ------------------------------------------------------------------ changes
    def update(self, **kwargs: Any) -> None:
        """Applies all pending changes of the cells, also those that others have accumulated.

        Each updater is called once, even if several cells share it.

        Args:
            **kwargs: passed to the updaters: ``scale``, ``clear``, and options of bounds.

        Raises:
            TypeError: if no updater takes one of the keywords; no cell has changed then.
            NonFiniteUpdateError: if an update holds NaN or Inf and the updater's policy is to
                raise; no cell has changed then.
        """
        updaters: dict[int, Updater] = {}
        for name, cell in self._bound_cells():
            updater = self.registry.updater(name, cell)
            if updater is not None:
                updaters[id(updater)] = updater
        if kwargs:
            taken = {
                name for name in kwargs for each in updaters.values() if each.changes.takes(name)
            }
            taken |= set(AtomicChanges.keywords)
            what = f"{type(self).__name__}.update"
            check_taken(what, kwargs, AtomicChanges.keywords, taken.__contains__)
        ready = []
        for updater in updaters.values():
            own = {k: v for k, v in kwargs.items() if updater.changes.takes(k)} if kwargs else {}
            ready.append((updater, updater.prepare(**own)))
        for updater, prepared in ready:
            updater(prepared=prepared)  # a call, so that hooks on the updater run

    @property
    def title(self) -> str:
        """What messages call the trainer: the name of its class, or that of its rule."""
        return type(self).__name__

    @property
    def cell_states(self) -> Mapping[str, CellState]:
        """By name, the states of cells whose hyperparameters the trainer keeps."""
        states = self._states.items()
        return {name: state for name, state in states if isinstance(state, CellState)}

    def finish_batch(self, carry: bool, **inputs: Any) -> None:
        """Processes the last window of a batch; ``carry`` says whether traces pass to the next."""
        self(**inputs)

    def updater_of(self, name: str, *params: str) -> Updater:
        """Returns the updater of a cell; the connection gets one with ``params`` if it has none."""
        return self.registry.updater_of(name, *params)

    def forward(self, *inputs: Any, **kwargs: Any) -> None:
        """Processes a training step; a subclass defines it."""
        raise NotImplementedError(
            f"`{type(self).__name__}.forward` should process a training step: use one of the rules,"
            " or define it in a subclass."
        )


# ---------------------------------------------------------------------- for hosts and health
def updaters_of(trainer: CellTrainer) -> dict[int, tuple[Updater, list[str]]]:
    """Returns the cells' updaters by id, each with the names of the cells that share it."""
    found: dict[int, tuple[Updater, list[str]]] = {}
    for name, (cell, _) in trainer.named_cells:
        updater = trainer.registry.updater(name, cell)
        if updater is not None:
            found.setdefault(id(updater), (updater, []))[1].append(name)
    return found


def params_of(trainer: CellTrainer, name: str) -> tuple[str, ...]:
    """Returns the parameters of a cell's connection that are trained."""
    if (state := trainer.cell_states.get(name)) is not None:
        return state.options.params
    updater = trainer.registry.updater(name)
    return () if updater is None else tuple(updater.names)


def recorded_steps(trainer: CellTrainer, name: str) -> int | None:
    """Returns how many recorded steps of a cell no call has evaluated; ``None`` if unknown."""
    monitor = trainer.get_monitor(name, "post")
    return None if monitor is None else getattr(monitor.reducer, "length", None)


def confirm(trainer: CellTrainer) -> None:
    """Waits for the device, and raises a ``ValueError`` if recorded spikes are not 0 or 1."""
    for monitor in trainer.monitors:
        monitor.reducer.confirm()


def forget_samples(trainer: CellTrainer) -> None:
    """Counts the samples of pending changes from zero again."""
    for state in trainer.cell_states.values():
        state.samples.clear()


def feedbacks_of(trainer: CellTrainer) -> list[Feedback]:
    """Returns what turns errors into learning signals, of all cells."""
    return [each for each in trainer.modules() if isinstance(each, Feedback)]


class Undo:
    """Remembers the state of a trainer before a batch, without copies of it, and restores it."""

    # An accumulator that had changes pending before the batch keeps those of the batch too.

    def __init__(self, trainer: CellTrainer) -> None:
        self._carried = [(state, state.snapshot()) for state in trainer.cell_states.values()]
        self._empty = [
            pending
            for updater, _ in updaters_of(trainer).values()
            for pending in updater.changes.pending.values()
            if not len(pending)
        ]

    def undo(self) -> None:
        """Restores the remembered state."""
        for state, kept in self._carried:
            state.restore(kept)
        for pending in self._empty:
            pending.clear()

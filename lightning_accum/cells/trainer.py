"""The CellTrainer: cells, what is kept for them, and the monitors that watch them."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn
from typing_extensions import Self

from lightning_accum._state import CheckedState
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.tally import Tally
from lightning_accum.observe import Monitor, MonitorConstructor, MonitorPool, WindowRecorder
from lightning_accum.updates import Updater, attach_updater, get_updater


class Unset:
    """Stands for an attribute until ``__init__`` sets it, and says if that was left out."""

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        raise RuntimeError(
            f"`{owner.__name__}.__init__` should call `super().__init__(...)` before anything else"
            " is done with it. Found that it has not: call it first, for a rule with its"
            " hyperparameters, `super().__init__({'lr': lr}, **options)`."
        )


class CellRef:
    """A trainer's weak hold on a cell; a copy of it is loose until it is bound anew."""

    def __init__(self, cell: Cell) -> None:
        self.connection: weakref.ref[nn.Module] | None = weakref.ref(cell.connection)
        self.neuron: weakref.ref[nn.Module] | None = weakref.ref(cell.neuron)
        self.updater: Updater | None = None  # in the place of the connection's

    @property
    def loose(self) -> bool:
        """Whether this is a copy that was not bound yet."""
        return self.connection is None

    @property
    def gone(self) -> bool:
        """Whether one of its modules no longer exists."""
        refs = (self.connection, self.neuron)
        return any(ref is not None and ref() is None for ref in refs)

    def get(self) -> Cell | None:
        """The cell, ``None`` when one of its modules no longer exists or this is loose."""
        connection = None if self.connection is None else self.connection()
        neuron = None if self.neuron is None else self.neuron()
        return None if connection is None or neuron is None else Cell(connection, neuron)

    def __getstate__(self) -> dict[str, Any]:
        return {"connection": None, "neuron": None, "updater": None}


class CellTrainer(CheckedState):
    """Base of everything that trains the parameters of cells.

    The trainer owns monitors and auxiliary state, and moves them with ``.to()``. The cells belong
    to the model: they are held weakly, and a cell whose modules are gone is reported and dropped.
    While the trainer is in training mode its monitors are registered, in evaluation mode they are
    not. A copy of a trainer has all its state and no cells: add them anew under their names.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> from lightning_accum.observe import OutputMonitor
        >>> fc, relu = nn.Linear(2, 1), nn.ReLU()
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

    _refs: dict[str, CellRef] = Unset()  # type: ignore[assignment]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        if kwargs:
            raise TypeError(
                f"{type(self).__name__} should be given its own arguments alone."
                f" Found {sorted(kwargs)}."
            )
        self._refs = {}
        self._states = nn.ModuleDict()
        self._pool = MonitorPool()
        self._recording = True

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
            name: name of the cell, without dots. The name of a cell of which this trainer is a
                copy binds that cell anew: its state and its monitors are kept.
            cell: the cell.
            state: auxiliary state, owned by the trainer.
            params: parameters of the connection that must be updatable; it gets an updater where
                it has none.

        Returns:
            The cell and its auxiliary state.

        Raises:
            ValueError: if the name is taken, or no name.
            TypeError: if ``cell`` is no cell.
            AttributeError: if the connection lacks one of ``params``.
        """
        if not isinstance(cell, Cell):
            raise TypeError(
                f"Argument `cell` should be a Cell. Found `{type(cell).__name__}`: make one of two"
                " modules, `Cell(connection, neuron)`."
            )
        self._drop_dead()
        known = self._refs.get(name)
        if known is not None and not known.loose:
            raise ValueError(
                f"Argument `name` should be new to the trainer, which has {list(self._refs)}."
                f" Found `{name = }`: choose another, or call `del_cell({name!r})` first."
            )
        if not isinstance(name, str) or not name or "." in name or name in _RESERVED:
            raise ValueError(
                "Argument `name` should be a name without dots that no method of a ModuleDict has."
                f" Found `{name = }`."
            )
        if params:
            cell.check_params(params, name)
            updater = attach_updater(cell.connection, *params)
            updater.label = f"{type(cell.connection).__name__} (cell {name})"
        self._refs[name] = CellRef(cell)
        if state is not None:
            self._states[name] = state
        if known is None:
            self._pool.add_group(name)
        else:
            for _, monitor in self._pool.of(name):
                monitor.bind(cell)
                self._set(monitor)
        return cell, self._state_of(name)

    def get_cell(self, name: str) -> tuple[Cell, nn.Module | None]:
        """Gets a cell and its auxiliary state.

        Raises:
            AttributeError: if there is no cell of that name.
            RuntimeError: if the cell's modules no longer exist, or this is a copy not bound yet.
        """
        return self._live(name), self._state_of(name)

    def del_cell(self, name: str) -> None:
        """Deletes a cell from the trainer, with its state and its monitors; the model keeps it.

        Raises:
            AttributeError: if there is no cell of that name.
        """
        self._require(name)
        self._pool.del_group(name)
        del self._refs[name]
        if name in self._states:
            del self._states[name]

    @property
    def cells(self) -> Iterator[tuple[Cell, nn.Module | None]]:
        """Added cells and their auxiliary states."""
        return (pair for _, pair in self.named_cells)

    @property
    def named_cells(self) -> Iterator[tuple[str, tuple[Cell, nn.Module | None]]]:
        """Added cells and their auxiliary states, by name; cells that are gone are dropped."""
        self._drop_dead()
        for name, ref in list(self._refs.items()):
            cell = ref.get()
            if cell is not None:
                yield name, (cell, self._state_of(name))

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
        """Adds a monitor to a cell, sharing an equal one where there is one.

        Args:
            cell: name of the cell.
            name: name of the monitor, unique to the cell.
            attr: dotted path of what is watched, relative to the cell (``"neuron"``,
                ``"connection"``, ``"neuron.voltage"``).
            monitor: constructor, as from :meth:`Monitor.partialconstructor`.
            unique: whether to make a new monitor in any case, in place of one of that name.
            **tags: tell apart monitors that are equal in name, class, path and reducer.

        Returns:
            The monitor, new or shared.

        Raises:
            AttributeError: if there is no such cell, or the path leads nowhere.
            ValueError: if the name has dots, or is not a name.
        """
        found = self._live(cell)
        if not isinstance(name, str) or not name or "." in name or name in _RESERVED:
            raise ValueError(
                "Argument `name` should be a name without dots that no method of a ModuleDict has."
                f" Found `{name = }`."
            )
        made = monitor(found, attr)
        made.deregister()
        served = self._pool.add(cell, name, made, None if unique else tuple(sorted(tags.items())))
        self._set(served)
        return served

    def get_monitor(self, cell: str, name: str) -> Monitor | None:
        """Gets a monitor, ``None`` if the cell has none of that name.

        Raises:
            AttributeError: if there is no such cell.
        """
        self._require(cell)
        return self._pool.get(cell, name)

    def del_monitor(self, cell: str, name: str) -> None:
        """Deletes a monitor from a cell; others that share it keep it.

        Raises:
            AttributeError: if there is no such cell, or it has no such monitor.
        """
        self._require(cell)
        if self._pool.get(cell, name) is None:
            raise AttributeError(
                f"Argument `name` should be a monitor of cell `{cell}`, one of"
                f" {[known for known, _ in self._pool.of(cell)]}. Found `{name = }`."
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
        """The monitors of one cell, by name.

        Raises:
            AttributeError: if there is no such cell.
        """
        self._require(cell)
        return iter(self._pool.of(cell))

    @property
    def recording(self) -> bool:
        """Whether registered monitors record; a gate beside the training mode."""
        return self._recording

    @recording.setter
    def recording(self, value: bool) -> None:
        # twice in every batch, where a module's own way to set an attribute takes its time
        vars(self)["_recording"] = value
        for monitor in self.monitors:
            vars(monitor)["recording"] = value

    # ------------------------------------------------------------------ running
    def train(self, mode: bool = True) -> Self:
        """Registers the monitors in training mode, deregisters them otherwise; clears nothing."""
        super().train(mode)
        for monitor in self.monitors:
            self._set(monitor)
        return self

    def clear(self, **kwargs: Any) -> None:
        """Clears every monitor; updaters, which other trainers may share, keep what is pending."""
        for monitor in self.monitors:
            monitor.clear(**kwargs)

    def confirm(self) -> None:
        """Raises an error if what was recorded since the last call could not be so.

        On an accelerator this alone says that activity of a rule on spikes was not 0 or 1: it
        waits for the device. The callback calls it when statistics are logged, and after an epoch.

        Raises:
            ValueError: if activity of a rule on spikes was not 0 or 1.
        """
        for monitor in self.monitors:
            monitor.reducer.confirm()

    def drop_window(self) -> None:
        """Drops what was recorded since the last call; what passes from call to call stays."""
        for monitor in self.monitors:
            # spares a module's own way to find an attribute, which takes its time
            if isinstance(monitor._modules["reducer"], WindowRecorder):
                monitor.clear()

    def update(self, **kwargs: Any) -> None:
        """Applies everything that is pending for the cells, by whomever it was accumulated.

        Each updater is called once, even if several cells share it.

        Args:
            **kwargs: passed to the updaters.

        Raises:
            NonFiniteUpdateError: if an update holds NaN or Inf, where the policy is to raise; then
                nothing has changed in any cell.
        """
        self._check_bound()
        updaters = [updater for updater, _ in self.updaters.values()]
        ready = [updater.prepare(**kwargs) for updater in updaters]
        for updater, prepared in zip(updaters, ready, strict=True):
            updater(prepared=prepared)  # a call, so that hooks on the updater run

    @property
    def updaters(self) -> dict[int, tuple[Updater, list[str]]]:
        """The cells' updaters, each once, with the names of the cells that share it."""
        found: dict[int, tuple[Updater, list[str]]] = {}
        for name, (cell, _) in self.named_cells:
            own = self._refs[name].updater
            updater = get_updater(cell.connection) if own is None else own
            if updater is not None:
                found.setdefault(id(updater), (updater, []))[1].append(name)
        return found

    def params_of(self, name: str) -> tuple[str, ...]:
        """The parameters of a cell's connection that are trained.

        Raises:
            AttributeError: if there is no such cell.
        """
        own = self._refs[name].updater if name in self._refs else None
        updater = get_updater(self._live(name).connection) if own is None else own
        return () if updater is None else updater.names

    def tally(self, name: str) -> Tally | None:
        """The counts of a cell's windows; ``None`` for a trainer that does not count any."""
        return None

    def use_updater(self, cell: str, updater: Updater | None) -> None:
        """Has a cell's changes accumulate in ``updater``, not in that of its connection.

        Args:
            cell: name of the cell.
            updater: of the same connection; ``None`` for the connection's own.

        Raises:
            AttributeError: if there is no such cell.
        """
        self._require(cell)
        self._refs[cell].updater = updater

    def _updater_of(self, name: str, *params: str) -> Updater:
        """Where changes of a cell accumulate; the connection gets an updater if it has none."""
        updater = self._refs[name].updater
        if updater is None:
            return attach_updater(self._live(name).connection, *params)
        updater.add(*params)
        return updater

    def forward(self, *inputs: Any, **kwargs: Any) -> None:
        """Processes a training step.

        Raises:
            NotImplementedError: a subclass has to say what a step is.
        """
        raise NotImplementedError(
            f"`{type(self).__name__}.forward` should process a training step: use one of the rules,"
            " or define it in a subclass."
        )

    # ------------------------------------------------------------------ inside
    def _set(self, monitor: Monitor) -> None:
        """Brings a monitor in line with the trainer's mode."""
        monitor.recording = self._recording
        if self.training and monitor.module is not None:
            monitor.register()
        else:
            monitor.deregister()

    def _drop_dead(self) -> None:
        """Drops, and reports, the cells of which a module no longer exists."""
        for name in [name for name, ref in self._refs.items() if ref.gone]:
            self.del_cell(name)
            warnings.warn(
                f"Cell `{name}` is dropped from {type(self).__name__}: its connection or its"
                " neuron no longer exists.",
                RuntimeWarning,
                stacklevel=3,
            )

    def _state_of(self, name: str) -> nn.Module | None:
        return self._states[name] if name in self._states else None

    def _check_bound(self) -> None:
        """Turns away a copy whose cells were not added anew: it would train nothing, silently."""
        loose = [name for name, ref in self._refs.items() if ref.loose]
        if loose:
            raise RuntimeError(
                f"This {type(self).__name__} is a copy, and its cells {loose} belong to the"
                " original: add them anew under their names, with the modules of the copy."
            )

    def _require(self, name: str) -> None:
        if name not in self._refs:
            raise AttributeError(
                f"There should be a cell of that name in {type(self).__name__}, which has"
                f" {list(self._refs)}. Found `{name}`: add it with `add_cell`."
            )

    def _live(self, name: str) -> Cell:
        self._require(name)
        cell = self._refs[name].get()
        if cell is None:
            raise RuntimeError(
                f"The modules of cell `{name}` no longer exist, or this trainer is a copy: add the"
                " cell anew under its name."
            )
        return cell


_RESERVED = frozenset(dir(nn.ModuleDict()))

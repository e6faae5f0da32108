"""A CellTrainer at work on the cells of a model, in any training loop."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, get_args

import torch
from torch import nn

from lightning_accum._compat import forget_compiled
from lightning_accum._events import SILENT, Events
from lightning_accum._state import ANOTHER_VERSION, MAPPING, TEXT, check_state, named
from lightning_accum.callbacks._binding import Binding, check_carry, check_rule
from lightning_accum.callbacks._exchange import check_exchangeable, exchange_pending
from lightning_accum.cells.cell import CellSpec
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.cells.undo import Undo
from lightning_accum.distributed.shards import shard_holders, whole_parameters
from lightning_accum.distributed.world import is_first
from lightning_accum.health import Health
from lightning_accum.health.facts import By
from lightning_accum.optim import updates_as_gradients
from lightning_accum.updates import Updater
from lightning_accum.updates.nonfinite import NonFinite


class CellHost:
    """Runs a CellTrainer on the cells of a model, in any training loop; it needs no Lightning.

    Args:
        trainer: the trainer, usually a rule.
        cells: by name, the paths of the trainer's cells in the model; ``None`` if they were
            registered with the trainer by hand.
        carry: whether batches are pieces of one stream, so that traces pass from one to the next.
        nonfinite: what the cells' updaters do with NaN and Inf; ``None`` leaves their setting.

    Raises:
        TypeError: if ``trainer`` is not a CellTrainer, or ``cells`` does not hold CellSpecs.
        ValueError: if ``nonfinite`` is not one of the policies, or the rule does not carry.

    Example:
        >>> from torch import nn, ones
        >>> from lightning_accum import Hebb
        >>> model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU())
        >>> _ = nn.init.ones_(model[0].weight)
        >>> host = CellHost(Hebb(0.25), {"enc": CellSpec("0", "1")})
        >>> host.bind(model)
        >>> host.trainer.recording = True
        >>> _ = model(ones(1, 2))
        >>> host.finish_batch()
        >>> host.trainer.update()
        >>> model[0].weight.tolist()
        [[1.5, 1.5]]
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
        check_carry(trainer, carry)
        self._binding = Binding(trainer, cells)
        self.trainer = trainer
        self.carry = carry
        self.nonfinite = nonfinite
        self.events: Events = SILENT
        self.batches = self.updates = 0  # since it was bound
        self._sharded: list[Any] = []  # modules of the model, under FSDP2
        self._undo: Undo | None = None  # of a batch that was evaluated in part
        self._loaded: dict[str, Any] | None = None  # a state that waits for `bind`
        self._loaded_own = True  # whether this process saved it

    # ------------------------------------------------------------------ binding
    @property
    def cells(self) -> dict[str, CellSpec] | None:
        """By name, the paths of the cells that this host registers."""
        return self._binding.cells

    @property
    def names(self) -> list[str]:
        """The names of the cells, also before they are bound."""
        return self._binding.names

    @property
    def bound(self) -> bool:
        """Whether the cells are bound to a model."""
        return self._binding.bound

    @property
    def updaters(self) -> dict[str, Updater]:
        """The cells' updaters, each once, by the name of the first cell that has it."""
        return self._binding.updaters

    @property
    def resuming(self) -> bool:
        """Whether a loaded state waits for the cells to be bound."""
        return self._loaded is not None

    def bind(self, model: nn.Module) -> None:
        """Finds the cells in ``model``, and loads a state that waits for them.

        Without such a state, nothing is recorded, carried or pending afterwards.

        Args:
            model: the model.

        Raises:
            AttributeError: if the model lacks a module or a parameter.
            ValueError: if there is no cell.
        """
        loaded, self._loaded = self._loaded, None
        self.batches = self.updates = 0
        self.trainer.events.ended("released")  # those of a loop by hand
        self._listen(SILENT)
        try:  # code that was compiled before would not call the hooks
            forget_compiled(model)
        except (AttributeError, KeyError, TypeError):  # a private name of torch has changed
            torch.compiler.reset()
        self._binding.bind(model)
        self.trainer.bind_model(model)
        check_exchangeable(self.trainer)
        self._sharded = shard_holders(model, self.updaters.values())
        self.trainer.recording = False
        self.trainer.clear()
        self.trainer.to(next((p.device for p in model.parameters()), torch.device("cpu")))
        for updater in self.updaters.values():
            updater.nonfinite = self.nonfinite or updater.nonfinite
            updater.clear()
        self.trainer.forget_samples()
        if loaded is not None:
            self._load(loaded)

    def release(self) -> None:
        """Removes the hooks and the updaters that it attached; what is pending stays here.

        A loaded state that waits for a model is dropped.
        """
        self.events.ended("released")
        self._listen(SILENT)
        if self.bound:
            self._binding.release()
        self._loaded = self._undo = None
        self._sharded = []
        self.trainer.recording = False
        self.trainer.eval()

    def watch(
        self,
        model: nn.Module,
        by: By,
        off: Collection[str] = (),
        hosts: Sequence[CellHost] = (),
        **known: Any,
    ) -> Health:
        """Has the cells' health listened to, until they are released.

        Args:
            model: the model that is trained.
            by: who applies updates.
            off: the checks that are left out.
            hosts: the hosts of all learners of the model.
            **known: what else is known, as for :class:`Health`.
        """
        others = [each for each in hosts if each is not self]
        beside = {id(u.target(n)) for e in others for u in e.updaters.values() for n in u.names}
        whole = not hosts or hosts[0] is self
        health = Health(
            *(self.trainer, by, model, self.carry, self, off, beside),
            whole=whole,
            **known,
        )
        self._listen(health)
        before = [*hosts].index(self) if hosts else 0
        health.begin([each.trainer for each in others], before)
        return health

    def _listen(self, events: Events) -> None:
        """Sets what is told of windows and updates."""
        self.events = self.trainer.events = events
        for updater in self.updaters.values() if self.bound else ():
            updater.events = events

    # ------------------------------------------------------------------ running
    def evaluate(self, **inputs: Any) -> None:
        """Accumulates the changes of the window since the last call; traces pass on.

        Args:
            **inputs: the inputs of the rule, such as a ``reward``.
        """
        self._undo = self._undo or Undo(self.trainer)
        with whole_parameters(self._sharded):
            self.trainer(**inputs)

    def finish_batch(self, **inputs: Any) -> None:
        """Evaluates the rest of a batch; traces pass on only if batches are one stream.

        Args:
            **inputs: the inputs of the rule, such as a ``reward``.
        """
        with whole_parameters(self._sharded):
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
        (self.trainer.drop_window if self.carry else self.trainer.clear)()

    def exchange(self, ids: set[int] | None = None) -> None:
        """Sums what is pending over processes; every process has to call this.

        Args:
            ids: the ``id`` of every parameter that is about to change. Default: all.
        """
        self.updates += 1
        exchange_pending(self.trainer, ids)

    def skip_exchange(self) -> None:
        """Prepares an update of all parameters in the only process."""
        self.updates += 1
        self.trainer.forget_samples()

    def updates_as_gradients(self, **inputs: Any) -> None:
        """Evaluates, and exports the changes as gradients; every process has to call this."""
        self.evaluate(**inputs)
        self.export_as_gradients()

    def export_as_gradients(self) -> None:
        """Exports the pending changes of all processes as gradients; each has to call this."""
        self.exchange()
        updates_as_gradients(*self.updaters.values())

    # ------------------------------------------------------------------ survival
    def state_dict(self) -> dict[str, Any]:
        """Returns the states of trainer and updaters, in builtins; empty without cells."""
        if self._loaded is not None:
            return self._loaded
        updaters = {name: dict(u.state_dict()) for name, u in self.updaters.items()}
        if not updaters:
            return {}
        rule, trainer = type(self.trainer).__name__, dict(self.trainer.state_dict())
        return {"rule": rule, "trainer": trainer, "updaters": updaters}

    def load_state_dict(self, state: dict[str, Any], own: bool | None = None) -> None:
        """Loads a state now, or when the cells are bound if they are not yet.

        Args:
            state: the result of :meth:`state_dict`.
            own: whether this process saved it. From the state of another process only what was
                learned is loaded: pending changes would count twice. Default: whether this is the
                first process.

        Raises:
            RuntimeError: if it is not the state of such a host; then nothing has changed.
            ValueError: if it is the state of other cells.
        """
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
        check_rule(self.trainer, state["rule"])
        self.trainer.load_state_dict(state["trainer"])
        for name, updater in self.updaters.items():
            updater.load_state_dict(state["updaters"][name])
        self.abandon_batch()  # it was running when the state was saved
        if not self._loaded_own:
            self.trainer.clear()
            for updater in self.updaters.values():
                updater.clear()
            self.trainer.forget_samples()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sharded": [], "_undo": None, "events": SILENT}

"""Gathers the facts of a rule's cells, and says once what it finds."""

from __future__ import annotations

import logging
import sys
import warnings
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum._compat.torch import in_dispatch_mode, is_traced
from lightning_accum._events import SILENT, End, Events
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.world import is_first
from lightning_accum.engine.state import has_samples
from lightning_accum.health import chain
from lightning_accum.health.advice import advice
from lightning_accum.health.facts import By, CellFacts, Context, ParamFacts, Weights
from lightning_accum.health.probes import LastingState, Probe, Wiring
from lightning_accum.health.setup import layout, setup, twin
from lightning_accum.health.trained import Untrained, twice_trained
from lightning_accum.optim.update import times_stale

_LOOP = 100  # windows of a Fabric loop, after which it looks
_LONG, _SOON = 1000, 200  # windows, or values, and steps in which neurons should have fired
_TURN = 100  # calls that found other cells
_logger = logging.getLogger("lightning_accum")


class LocalLearningWarning(RuntimeWarning):
    r"""Something keeps a cell from learning, or lets it learn something else.

    Args:
        text: what should be, what was found, and the remedy.
        key: the name of what was found, with which the message ends, in brackets.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", r".*\[moved\]", LocalLearningWarning)
    """

    def __init__(self, text: str, key: str = "") -> None:
        super().__init__(f"{text} [{key}]" if key else text)
        self.key = key


def switched_off(health: bool | Mapping[str, bool]) -> frozenset[str] | None:
    """Returns the names of checks that are left out, ``None`` if all of them are."""
    if isinstance(health, bool):
        return frozenset() if health else None
    if not isinstance(health, Mapping):
        raise TypeError(
            "Argument `health` should be True, False, or a mapping of the names of checks to these."
            f" Found `{type(health).__name__}`."
        )
    known = [*chain.LINKS, "trained"]
    for name, on in health.items():
        if name not in known or not isinstance(on, bool):
            raise ValueError(
                f"Argument `health` should map names among {known} to True or False. Found"
                f" `{name!r}: {on!r}`."
            )
    return frozenset(name for name, on in health.items() if not on)


def _guarded(event: Callable[..., None]) -> Callable[..., None]:
    """Has a check that raises an error logged once, and all of them left out from then on."""

    @wraps(event)
    def guarded(self: Health, *args: Any) -> None:
        if self.broken:
            return
        try:
            if torch.is_grad_enabled():  # in the pipe it is not, and entering takes a microsecond
                with torch.no_grad():
                    return event(self, *args)
            event(self, *args)
        except Warning:
            raise  # the user has made errors of warnings
        except Exception:
            self.broken = True
            for probe in self._probes:
                probe.remove()
            _logger.warning("A check of local learning failed, and is left out.", exc_info=True)

    return guarded


class Health(Events):
    """Listens to a trainer and to the updaters of its cells, and warns of what is not learned."""

    # A window or an update costs an addition; looks at windows and updates 1, 2, 4, 8, ... do not
    # wait for the device. It looks for findings after the first epoch, or many windows, and at the
    # end. The trainer is referenced weakly.

    def __init__(
        self,
        trainer: CellTrainer,
        by: By = "hand",
        carry: bool | None = None,  # whether batches are one stream; None in a loop by hand
        clock: Any = None,  # a host, which counts `batches` and `updates`
        off: Collection[str] = (),  # names of links that are left out
        beside: Collection[int] = (),  # the `id` of every parameter that other hosts train too
        batch_size: int | None = None,  # of the loader's batches, if it is known
    ) -> None:
        self.by, self.cells, self.broken, self.said = by, dict[str, CellFacts](), False, set[str]()
        self._trainer, self._title = weakref.ref(trainer), trainer.title
        self._registry = trainer.registry
        self._model: nn.Module | None = None  # if it is known
        self._carry, self._clock, self._off = carry, clock, off
        self._beside, self._batch_size = beside, batch_size
        self._params: dict[tuple[int, str], ParamFacts] = {}
        self._seen: dict[tuple[int, str], int] = {}  # the host's updates at the latest one of each
        self._told: set[tuple[str, str]] = set()
        self.over = self._looked = False  # whether nothing more will come; whether it has looked
        self._windows = 0  # of all cells
        self._probes: list[Probe] = []
        self._untrained: Untrained | None = None
        self.lines: list[str] = []  # of advice, for the summary of a fit that has ended
        if by != "hand":
            for name, _ in trainer.named_cells:
                self.add(name)

    # ------------------------------------------------------------------ beginning
    def add(self, name: str) -> None:
        """Begins to watch a cell."""
        trainer = self._trainer()
        if trainer is None:
            return
        state = trainer.cell_states.get(name)
        facts = CellFacts(name, {} if state is None else state.settings)
        monitor = trainer.get_monitor(name, "post")
        facts.max_delay = getattr(trainer.registry.cell(name).connection, "max_delay", None)
        facts.recorder = None if monitor is None else monitor.reducer
        self.cells[name] = facts
        updater = trainer.registry.updater(name)
        if updater is not None and self.by != "hand" and updater.changes.events is SILENT:
            updater.changes.events = self  # of a cell that is registered during the fit
        for param in () if updater is None else trainer.params_of(name):
            if updater is not None and param in updater.names:
                key = id(updater), param
                new = ParamFacts(param, updater, updater.changes.pending[param])
                p = self._params.setdefault(key, new)
                p.skipped = 0 if self.by == "hand" else updater.changes.guard.lately().get(param, 0)
                facts.params[param] = p

    @_guarded
    def begin(
        self,
        model: nn.Module,
        others: Sequence[CellTrainer],
        before: int,
        optimized: Collection[int] | None = None,
    ) -> None:
        """Checks what is known before the first batch, and begins to watch the modules."""
        # `before` of the other trainers of the fit have begun before, and the first of all looks
        # after the rest of the model; `optimized` has the `id` of every parameter in an optimizer.
        self._model, trainer = model, self._trainer()
        if trainer is None:
            return
        for cell, text in setup(trainer, model, others[:before]):
            self.say(cell, "setup", text)
        known = trainer, lambda: int(self._clock.batches), self.say
        self._probes = [Wiring(*known, model)]
        if not self._carry:
            self._probes.append(LastingState(*known, None if before else model, others))
        for probe in self._probes:
            probe.register()
        if not before:
            self._untrained = Untrained([trainer, *others], model, optimized)

    # ------------------------------------------------------------------ events
    @_guarded
    def evaluated(self, cell: str, pre: Tensor, post: Tensor, inputs: Mapping[str, Any]) -> None:
        """Counts a window, and looks at a few."""
        c = self._cell(cell)
        c.windows, c.calls, c.empty = c.windows + 1, c.calls + 1, 0
        self._windows += 1
        steps = pre.shape[0]
        c.steps += steps
        if steps > c.longest:
            c.longest = steps
        if c.windows & (c.windows - 1) == 0:
            self._note_reset(c, steps)
        looked = c.windows >= c.due and not is_traced() and c.look(pre, post)
        if inputs:
            c.note_inputs(inputs, looked)
            if c.windows == 2:
                self._note_unread(cell)
        if looked:
            neuron = getattr(self._registry[cell].get(), "neuron", None)
            for potential in (getattr(neuron, each, None) for each in ("voltage", "membrane")):
                if isinstance(potential, Tensor) and potential.is_floating_point():
                    c.undefined = potential.detach().isnan().any()
        if c.windows == 1 and self._batch_size:
            time_dim = c.h.get("time_dim")
            if text := layout(cell, post.shape, time_dim, self._batch_size):
                self.say(cell, "setup", text)
        if self.by == "hand" and c.windows <= _LONG and not (c.asked or post.is_meta):
            c.fired, c.values = c.fired + post.count_nonzero(), c.values + post.numel()
            enough = c.steps >= _SOON and c.values >= _LONG
            c.asked = enough and all(p.applied for p in c.params.values())
            if c.asked:
                self._find(cell, off=chain.LINKS.keys() - {"finite", "active"})
        if c.windows == (_LOOP if self.by == "loop" else _LONG) and not self._looked:
            self._find()

    @_guarded
    def found_nothing(self, cell: str) -> None:
        """Counts a call that found nothing of a cell; by hand, several in a row are told."""
        c = self._cell(cell)
        c.others, c.total = self._windows != c.total, self._windows
        x = self._context(cell)
        if self.by == "hand" and not x.records and x.asleep:
            return
        c.calls, c.empty = c.calls + 1, c.empty + 1
        c.asleep = x.asleep
        if self.by == "hand" and c.empty in (max(chain.ENOUGH, 2 * c.windows), _TURN):
            self._find(cell)

    @_guarded
    def dropped(self, cell: str, steps: int) -> None:
        """Counts steps that were cleared; a call that was rejected drops none."""
        if cell not in self._registry:  # it was deleted
            self.cells.pop(cell, None)
            held = {id(p) for c in self.cells.values() for p in c.params.values()}
            self._params = {k: p for k, p in self._params.items() if id(p) in held}
            return
        c = self._cell(cell)
        c.dropped, c.calls = c.dropped + steps, c.calls + (not steps)

    @_guarded
    def applying(self, updater: Any, names: Sequence[str]) -> None:
        """Looks at parameters before some updates."""
        for name in names:
            p = self._params.get((id(updater), name))
            if p is None:
                continue
            count = p.applied + 1
            due = count & p.applied == 0 or count == p.last
            if due or p.left is not None:
                param = updater.changes.target(name)
                if param.is_meta or is_traced():
                    continue
                if id(param) in self._beside:
                    p.left = None
                p.update_begins(param, due)

    @_guarded
    def applied(self, updater: Any, names: Sequence[str], scale: Mapping[str, float]) -> None:
        """Counts an update, and looks at parameters after some."""
        for name in names:
            key = id(updater), name
            p = self._params.get(key)
            if p is None:
                continue
            p.applied += 1
            p.zeroed += scale.get(name, 1.0) == 0
            if p.before is not None:
                p.update_ended(updater.changes.target(name))
            if self._clock is not None:
                self._note_update(key, self._clock.updates)

    @_guarded
    def rearranged(self, updater: Any, names: Sequence[str]) -> None:
        """Forgets what an update has left, which is no longer comparable."""
        for name in names:
            if (p := self._params.get((id(updater), name))) is not None:
                p.left = None

    @_guarded
    def exported(self, updater: Any, names: Sequence[str]) -> None:
        """Counts an export, and looks at parameters before the first one."""
        for name in names:
            p = self._params.get((id(updater), name))
            if p is not None:
                p.exported += 1
                p.stale = max(p.stale, times_stale(updater.changes.target(name)))
                if p.first is None:
                    p.param = updater.changes.target(name)
                    p.first = Weights.of(p.param)

    @_guarded
    def epoch_ended(self) -> None:
        """Notes the norms of weights, and looks for findings after the first epoch."""
        for p in self._params.values():
            if p.first is not None and (value := p.value) is not None:
                p.epoch_ended(value, id(p.param) in self._beside)
        for c in self.cells.values():
            c.due = 0  # it looks at the first window of the next epoch
        if not self._looked and any(c.calls for c in self.cells.values()):
            self._find()

    @_guarded
    def ended(self, how: End) -> None:
        """Looks for findings when nothing more will come."""
        if self.over or (how == "eval" and self.by != "hand"):
            return
        if how == "eval":
            self._find(ended=True)
            return
        for probe in self._probes:
            probe.end()
        said_elsewhere = getattr(sys, "last_value", None) is not None
        if how == "failed":
            with suppress(RuntimeError):  # the device may have failed: the first error says more
                self._find(failed=True)
        elif self.by == "hand" and how == "released":
            pass  # a host goes on
        elif how != "deleted" or not (said_elsewhere or self._is_trial()):
            self._find(ended=True)
        if self.by != "hand" and how != "failed" and not self.lines:
            for name, c in self.cells.items():
                if name not in self.said:  # a warning says more
                    self.lines += advice(c, self._context(name, ended=True))
            self.lines += [] if self._untrained is None else self._untrained.found()[1]
        if how != "fit":
            self.over = True
            self._params, self._probes, self._untrained = {}, [], None
            for c in self.cells.values():
                c.params, c.recorder = {}, None

    # ------------------------------------------------------------------ findings
    def _find(
        self,
        cell: str | None = None,
        ended: bool = False,
        failed: bool = False,
        off: Collection[str] = (),
    ) -> None:
        """Looks for the first broken link of each cell, and says it once; waits for the device."""
        if in_dispatch_mode():
            return
        self._looked = self._looked or cell is None
        for name, c in self.cells.items():
            if cell not in (None, name):
                continue
            for p in c.params.values():
                param = p.param if p.value is None else p.value
                p.now = None if param is None or param.is_meta else Weights.of(param)
            x = self._context(name, ended, failed)
            if x.by != "hand" and (text := twice_trained(c)):
                self.say(name, "trained", text)
            if found := chain.broken_link(c, x, {*self._off, *off}):
                self.say(name, *found, every=found[0] == "recorded" and chain.elsewhere(c))
        untrained = self._untrained if cell is None and not failed else None
        if any(chain.never_stepped(p) for p in self._params.values()):
            untrained = self._untrained = None  # the same optimizer has others, which is said
        if untrained is not None and (text := untrained.found()[0]):
            self.say("", "trained", text)

    def say(self, cell: str, key: str, text: str, every: bool = False) -> None:
        """Warns, once of a cell and a link; on rank 0 unless in every process."""
        if (cell, key) in self._told or key in self._off:
            return
        if key == "probes" and cell in self.said:
            return  # the first finding may be the reason
        self._told.add((cell, key))
        self.said.add(cell)
        if is_first() or every:
            warnings.warn(LocalLearningWarning(text, key), stacklevel=4)

    # ------------------------------------------------------------------ inside
    def _cell(self, name: str) -> CellFacts:
        if name not in self.cells:
            self.add(name)
        return self.cells[name]

    def _context(self, name: str, ended: bool = False, failed: bool = False) -> Context:
        cell = self._registry[name].get() if name in self._registry else None
        modules = None if cell is None else (cell.connection, cell.neuron)
        updates = 0 if self._clock is None else self._clock.updates
        known = self.by, self._title, self._trainer(), modules, self._model, updates
        return Context(*known, ended, failed, learns=self._windows > 0, carry=self._carry)

    def _is_trial(self) -> bool:
        """Returns whether a loop of Fabric was left after a few batches, or its model is gone."""
        few = self._clock is not None and max(self._clock.batches, self._clock.updates) < 3
        return few or (self.by == "loop" and bool(self._registry.gone))

    def _note_reset(self, c: CellFacts, steps: int) -> None:
        """Compares the resets of a native neuron with those of the traces, in early windows."""
        trainer = self._trainer()
        cell = self._registry[c.name].get()
        if trainer is None or cell is None:
            return
        state = trainer.cell_states.get(c.name)
        passed = state is not None and has_samples(state.carried)
        c.joined = c.joined or passed
        since = getattr(cell.neuron, "steps_since_reset", None)
        # at rates of 0, no trace is read, and none passes
        compares = c.may_move and any(k.startswith("tc_") and v is not None for k, v in c.h.items())
        if since is None or not compares or c.windows == 1:
            return
        apart = passed and since == steps, not passed and 1 < steps < since < inf
        pairs = [*zip(apart, c.resets, strict=True)]
        c.resets = [n + 1 if now else 0 if n < chain.RESETS else n for now, n in pairs]
        if any(now and n + 1 == chain.RESETS for now, n in pairs):
            self._find(c.name)

    def _note_unread(self, name: str) -> None:
        """Says that a rule is given inputs that its terms have not read."""
        trainer = self._trainer()
        if trainer is not None and trainer.unread:
            text = (
                f"`{self._title}` should be called with what its terms read. Found"
                f" {', '.join(f'`{each}`' for each in trainer.unread)}, which they do not: leave it"
                " out, correct its name, or take a rule that learns from it, such as `MSTDP` from a"
                " `reward` and `EProp` from an `error`."
            )
            self.say(name, "setup", text)

    def _note_update(self, key: tuple[int, str], count: int) -> None:
        """Says that changes are applied by hand while a callback does so too."""
        if self._seen.get(key, 0) == count:
            text = (
                f"`{self._title}` should be called and applied by the CellTrainerCallback"
                " or FabricCellTrainer that it was given to. Found that its changes were also"
                " applied by hand: leave out `trainer()` and `trainer.update()`, which miss the"
                " `lr`, the schedule and the statistics of the host."
            )
            self.say("", "setup", text)
        self._seen[key] = count


# ---------------------------------------------------------------------- by hand
def events_by_hand(trainer: CellTrainer, name: str) -> Events:
    """Returns what listens to a trainer that has just got a cell; it ends with the trainer."""
    health = trainer.events
    if not isinstance(health, Health):
        health = Health(trainer)
        weakref.finalize(trainer, health.ended, "deleted")
    health.add(name)
    if text := twin(trainer, name, trainer):
        health.say(name, "setup", text)
    updater = trainer.registry.updater(name)
    if updater is not None:
        every = getattr(updater.changes.events, "all", [updater.changes.events])
        left = [e for e in every if e not in (SILENT, health) and not getattr(e, "over", False)]
        updater.changes.events = Several([*left, health]) if left else health
    return health


def _passed_on(name: str) -> Callable[..., Any]:
    """Returns the method that passes on an event."""
    return lambda self, *args: [getattr(each, name)(*args) for each in self.all]


class Several(Events):
    """Passes the events of an updater that several rules share to what listens to each."""

    def __init__(self, found: Sequence[Events]) -> None:
        self.all = found

    applying, applied, exported, rearranged = map(
        _passed_on, ("applying", "applied", "exported", "rearranged")
    )

"""Gathers the facts of a rule's cells, and says once what it finds."""

from __future__ import annotations

import logging
import sys
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, wraps
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum._checks import check_type, check_value, quoted
from lightning_accum._compat.torch_internals import in_dispatch_mode, is_traced
from lightning_accum._training_events import SILENT, By, End, Observer, Values
from lightning_accum.cells.trainer import CellTrainer, params_of
from lightning_accum.distributed.world import is_first
from lightning_accum.engine.rule import rates_in
from lightning_accum.engine.state_keys import has_samples
from lightning_accum.health import chain
from lightning_accum.health.advice import advice
from lightning_accum.health.facts import ENOUGH, CellFacts, Context, ParamFacts, Weights
from lightning_accum.health.probes import LastingState, Probe, Wiring
from lightning_accum.health.rule_facts import rule_of
from lightning_accum.health.setup import layout, setup, twin, unit
from lightning_accum.health.trained import Untrained, twice_trained
from lightning_accum.health.update_summary import Summary
from lightning_accum.optim.update_optimizer import times_stale
from lightning_accum.sparse.kernel_library import why_not

_LOOP = 100  # windows of a Fabric loop, after which it looks
_LONG, _SOON = 1000, 200  # windows, or values, and steps in which neurons should have fired
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


def watching(health: bool | Mapping[str, bool]) -> Callable[..., Health]:
    """Returns what makes the health of a run, without the checks that are switched off."""
    if isinstance(health, bool):
        return partial(Health, off=() if health else None)
    should = "True, False, or a mapping of the names of checks to these"
    check_type(isinstance(health, Mapping), "health", health, should)
    known = [*chain.LINKS, "trained"]
    for name, on in health.items():
        should = f"a mapping of names among {known} to True or False"
        check_value(name in known and isinstance(on, bool), "health", {name: on}, should)
    return partial(Health, off=frozenset(name for name, on in health.items() if not on))


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


class Health(Observer):
    """Listens to a trainer and to the updaters of its cells, and warns of what is not learned."""

    # A window or an update costs an addition; looks at windows and updates 1, 2, 4, 8, ... do not
    # wait for the device. It looks for findings after the first epoch, or many windows, and at the
    # end. The trainer is referenced weakly.

    def __init__(
        self,
        trainer: CellTrainer,
        by: By = "hand",
        host: Any = None,  # a CellHost, with what has it tell of windows and updates
        listen: Callable[[Observer], None] | None = None,
        model: nn.Module | None = None,  # whose training by a host begins now
        hosts: Sequence[Any] = (),  # all of a fit, in the order in which they begin
        batch_size: int | None = None,  # of the loader's batches, if it is known
        optimized: Collection[int] | None = None,  # the `id` of every parameter in an optimizer
        schedule: tuple[Any, str, int, int, int] | None = None,  # as `unit` gets it
        off: Collection[str] | None = (),  # links that are left out; None leaves only a summary
    ) -> None:
        self.by, self.cells, self.broken, self.said = by, dict[str, CellFacts](), False, set[str]()
        self._trainer, self._title = weakref.ref(trainer), trainer.title
        self._registry, self._model, self._clock = trainer.registry, model, host
        self._carry = None if host is None else host.carry  # whether batches are one stream
        self._off, self._batch_size = off or (), batch_size
        others = [each for each in hosts if each is not host]
        owned = (u.changes for each in others for u in each.updaters.values())
        all_of = (changes.target(name) for changes in owned for name in changes.pending)
        self._beside = {id(param) for param in all_of}  # which others train
        self._params: dict[tuple[int, str], ParamFacts] = {}
        self._told: set[tuple[str, str]] = set()
        self.over = self._looked = False  # whether nothing more will come; whether it has looked
        self._windows = 0  # of all cells
        self._probes: list[Probe] = []
        self._untrained: Untrained | None = None
        self._summary, self._advice = Summary(), list[str]()  # of a fit that has ended
        if model is not None and listen is not None and off is not None:
            for name, _ in trainer.named_cells:
                self._add(name)
            listen(self)  # before there are hooks, which an interrupt should not leave behind
            before = [*hosts].index(host) if hosts else 0
            trainers = [trainer, *(each.trainer for each in others)]
            self._begin(model, trainers, before, optimized, schedule)

    # ------------------------------------------------------------------ beginning
    def _add(self, name: str) -> None:
        """Begins to watch a cell."""
        trainer = self._trainer()
        assert trainer is not None  # which tells of the cell
        state, monitor = trainer.cell_states.get(name), trainer.get_monitor(name, "post")
        connection, updater = trainer.registry.cell(name).connection, trainer.registry.updater(name)
        facts = self.cells[name] = CellFacts(name, {} if state is None else state.settings)
        facts.max_delay = getattr(connection, "max_delay", None)
        outputs = getattr(connection, "out_features", None)
        facts.split = getattr(connection, "total", outputs) != outputs
        facts.recorder = None if monitor is None else monitor.reducer
        if updater is None:
            return
        changes = updater.changes
        if self.by != "hand" and changes.events is SILENT:
            changes.events = self  # of a cell that is registered during the fit
        for param in (each for each in params_of(trainer, name) if each in updater.names):
            new = ParamFacts(param, updater, changes.pending[param])
            p = facts.params[param] = self._params.setdefault((id(updater), param), new)
            p.skipped = 0 if self.by == "hand" else changes.guard.lately().get(param, 0)

    @_guarded
    def _begin(
        self,
        model: nn.Module,
        trainers: Sequence[CellTrainer],  # its own, and the others
        before: int,  # so many of the others have begun before
        optimized: Collection[int] | None,
        schedule: tuple[Any, str, int, int, int] | None,
    ) -> None:
        """Checks what is known before the first batch, and begins to watch the modules."""
        trainer, *others = trainers
        if schedule is not None and (text := unit(*schedule)):
            self._say("lr_scheduler", "setup", text)
        for cell, text in setup(trainer, model, others[:before]):
            self._say(cell, "setup", text)
        known = trainer, lambda: int(self._clock.batches), self._say
        self._probes = [Wiring(*known, model)]
        if not self._carry:  # the first trainer of a fit looks after the rest of the model
            self._probes.append(LastingState(*known, None if before else model, others))
        for probe in self._probes:
            probe.register()
        if not before:
            self._untrained = Untrained(trainers, model, optimized)

    # ------------------------------------------------------------------ events
    @_guarded
    def evaluated(self, cell: str, pre: Tensor, post: Tensor, inputs: Mapping[str, Any]) -> None:
        """Counts a window, and looks at a few."""
        c, steps = self._cell(cell), pre.shape[0]
        c.windows, c.calls, c.empty = c.windows + 1, c.calls + 1, 0
        c.steps, c.longest = c.steps + steps, max(c.longest, steps)
        self._windows += 1
        if c.windows & (c.windows - 1) == 0:
            self._look_at_call(c, post, inputs)
        looked = c.windows >= c.due and not is_traced() and c.look(pre, post)
        if inputs:
            c.note_inputs(inputs, looked)
        if looked:
            c.note_potential(getattr(self._registry[cell].get(), "neuron", None))
        if self.by == "hand" and c.windows <= _LONG and not (c.asked or post.is_meta):
            self._look_for_spikes(c, post)
        if c.windows == (_LOOP if self.by == "loop" else _LONG) and not self._looked:
            self._find()

    def _look_at_call(self, c: CellFacts, post: Tensor, inputs: Mapping[str, Any]) -> None:
        """Looks in windows 1, 2, 4, 8, ... at resets, the layout, and inputs that nothing reads."""
        trainer, cell = self._trainer(), self._registry.cell(c.name)
        assert trainer is not None  # which tells of the window
        state = trainer.cell_states.get(c.name)
        passed = state is not None and has_samples(state.carried)
        if c.note_reset(passed, getattr(cell.neuron, "steps_since_reset", inf), post.shape[0]):
            self._find(c.name)
        text = ""
        if c.windows == 1 and self._batch_size:
            text = layout(c.name, post.shape, c.h.get("time_dim"), self._batch_size)
        elif c.windows == 2 and inputs and trainer.unread:
            text = (
                f"`{self._title}` should be called with what its terms read. Found"
                f" {quoted(trainer.unread, ', ')}, which they do not: leave it"
                " out, correct its name, or take a rule that learns from it, such as `MSTDP` from a"
                " `reward` and `EProp` from an `error`."
            )
        if text:
            self._say(c.name, "setup", text)

    def _look_for_spikes(self, c: CellFacts, post: Tensor) -> None:
        """Counts spikes of a loop by hand until there should have been some, and looks once."""
        c.fired, c.values = c.fired + post.count_nonzero(), c.values + post.numel()
        enough = c.steps >= _SOON and c.values >= _LONG
        c.asked = enough and all(p.applied for p in c.params.values())
        if c.asked:
            self._find(c.name, off=chain.LINKS.keys() - {"finite", "active"})

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
        if self.by == "hand" and c.empty in (max(ENOUGH, 2 * c.windows), chain.TURN):
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
            p = self._params.get((id(updater), name))
            if p is None:
                continue
            p.applied += 1
            p.zeroed += scale.get(name, 1.0) == 0
            if p.before is not None:
                p.update_ended(updater.changes.target(name))
            if self._clock is not None:
                self._note_update(p, self._clock.updates)

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

    def saw(self, cell: str, window: Tensor, counts: Tensor, slots: int, logs: bool) -> None:
        """Counts spikes, for the summary."""
        self._summary.saw(cell, counts)

    def measured(self, cell: str, name: str, before: Tensor, after: Tensor, values: Values) -> None:
        """Sums up an update, for the summary."""
        self._summary.measured(cell, name, values)

    def ended(self, how: End) -> None:
        """Looks for findings after the first epoch, and when nothing more will come."""
        if how == "epoch":
            self._summary.epoch_ended()
            self._end_epoch()
        elif not (self.over or (how == "eval" and self.by != "hand")):
            self._end(how)

    @_guarded
    def _end(self, how: End) -> None:
        """Looks for findings, and has advice for the summary of a fit."""
        by_hand = self.by == "hand"
        for probe in self._probes:
            probe.end()
        if how == "failed":
            with suppress(RuntimeError):  # the device may have failed: the first error says more
                self._find(failed=True)
        elif not (by_hand and how == "released") and not (how == "deleted" and self._is_trial()):
            self._find(ended=True)
        if not by_hand and how != "failed" and not self._advice:
            self._advice = [*self._advise()]
        if how not in ("fit", "eval"):
            self.over = True
            self._params, self._probes, self._untrained = {}, [], None
            for c in self.cells.values():
                c.params, c.recorder = {}, None

    @_guarded
    def _end_epoch(self) -> None:
        """Notes the norms of weights, and looks for findings after the first epoch."""
        for p in self._params.values():
            if p.first is not None and (value := p.value) is not None:
                p.epoch_ended(value, id(p.param) in self._beside)
        for c in self.cells.values():
            c.due = 0  # it looks at the first window of the next epoch
        if not self._looked and any(c.calls for c in self.cells.values()):
            self._find()

    def _advise(self) -> Iterator[str]:
        """Yields advice on cells of which no warning says more, and on untrained parameters."""
        for name, c in self.cells.items():
            if name not in self.said:
                yield from advice(c, self._context(name, ended=True))
        if self._untrained is not None and (line := self._untrained.found()[1]):
            yield line

    def lines(
        self, updates: Mapping[tuple[str, str], int] | None = None, exports: bool = False
    ) -> list[str]:
        """Returns the lines of the summary."""
        trainer = self._trainer()
        states = {} if trainer is None else trainer.cell_states
        rule = None if exports else rule_of(trainer)  # else an optimizer has a rate too
        rates = {} if rule is None else rates_in(vars(rule))
        of = {cell: state.settings for cell, state in states.items()}
        found = self._summary.lines(updates or {}, of, rates, self.said, self._advice)
        if found and updates is not None and (reason := why_not()) is not None:
            text = "Sums over spikes ran in plain torch instead of the compiled kernel:"
            found.append(f"{text} {reason}.")
        return found

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
        for name in [*self.cells] if cell is None else [cell]:
            c, x = self.cells[name], self._context(name, ended, failed)
            for p in c.params.values():
                p.look()
            if x.by != "hand" and (text := twice_trained(c)):
                self._say(name, "trained", text)
            if found := chain.broken_link(c, x, {*self._off, *off}):
                self._say(name, *found, every=chain.elsewhere(c, found[0]))
        if any(chain.never_stepped(p) for p in self._params.values()):
            self._untrained = None  # the same optimizer has others, which is said
        untrained = self._untrained if cell is None and not failed else None
        if untrained is not None and (text := untrained.found()[0]):
            self._say("", "trained", text)

    def _say(self, cell: str, key: str, text: str, every: bool = False) -> None:
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
            self._add(name)
        return self.cells[name]

    def _context(self, name: str, ended: bool = False, failed: bool = False) -> Context:
        cell = self._registry[name].get() if name in self._registry else None
        modules = None if cell is None else (cell.connection, cell.neuron)
        updates = 0 if self._clock is None else self._clock.updates
        known = self.by, self._title, self._trainer(), modules, self._model, updates
        return Context(*known, ended, failed, learns=self._windows > 0, carry=self._carry)

    def _is_trial(self) -> bool:
        """Returns whether a loop was left by an error, after a few batches, or with its model."""
        few = self._clock is not None and max(self._clock.batches, self._clock.updates) < 3
        gone = self.by == "loop" and bool(self._registry.gone)
        return few or gone or getattr(sys, "last_value", None) is not None

    def _note_update(self, p: ParamFacts, count: int) -> None:
        """Says that changes are applied by hand while a callback does so too."""
        if p.seen == count:
            text = (
                f"`{self._title}` should be called and applied by the CellTrainerCallback"
                " or FabricCellTrainer that it was given to. Found that its changes were also"
                " applied by hand: leave out `trainer()` and `trainer.update()`, which miss the"
                " `lr`, the schedule and the statistics of the host."
            )
            self._say("", "setup", text)
        p.seen = count


# ---------------------------------------------------------------------- by hand
def events_by_hand(trainer: CellTrainer, name: str) -> Observer:
    """Returns what listens to a trainer that has just got a cell; it ends with the trainer."""
    health = trainer.events
    if not isinstance(health, Health):
        health = Health(trainer)
        weakref.finalize(trainer, health.ended, "deleted")
    health._add(name)
    if text := twin(trainer, name, trainer):
        health._say(name, "setup", text)
    updater = trainer.registry.updater(name)
    if updater is not None:
        every = getattr(updater.changes.events, "all", [updater.changes.events])
        left = [e for e in every if e not in (SILENT, health) and not getattr(e, "over", False)]
        updater.changes.events = Several([*left, health]) if left else health
    return health


def _passed_on(name: str) -> Callable[..., Any]:
    """Returns the method that passes on an event."""
    return lambda self, *args: [getattr(each, name)(*args) for each in self.all]


class Several(Observer):
    """Passes the events of an updater that several rules share to what listens to each."""

    def __init__(self, found: Sequence[Observer]) -> None:
        self.all = found

    applying, applied, exported, rearranged = map(
        _passed_on, ("applying", "applied", "exported", "rearranged")
    )

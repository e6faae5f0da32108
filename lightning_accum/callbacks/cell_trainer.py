"""The callback that runs a CellTrainer in a Lightning Trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import lightning.pytorch as pl
from typing_extensions import Unpack

from lightning_accum._checked_state import MAPPING, StateModule
from lightning_accum._checks import check_strings, check_type, knows_arguments, names_in
from lightning_accum._compat.lightning_internals import compared_by_key, skips_backward
from lightning_accum._compat.torch_internals import attempt, step_is_watched
from lightning_accum._training_events import SILENT, Observer
from lightning_accum.callbacks import _update_optimizers as appliers
from lightning_accum.callbacks._cell_host import CellHost
from lightning_accum.callbacks._logging import LoggingCallback, Report, log_summary
from lightning_accum.callbacks._lr_schedule import Interval, MakeScheduler, UpdatePlan
from lightning_accum.callbacks._processes import check_processes_agree, pick_state
from lightning_accum.callbacks._update_optimizers import BatchRecording, StepGate
from lightning_accum.cells.cell import CellSpec
from lightning_accum.cells.state import RunOptions
from lightning_accum.cells.trainer import CellTrainer, confirm, recorded_steps
from lightning_accum.distributed import world
from lightning_accum.engine.rule import OPTIONS, Rule
from lightning_accum.optim import UpdateOptimizer, updates_as_gradients
from lightning_accum.updates.atomic_changes import NonFinite


class CellTrainerCallback(LoggingCallback):
    """Runs a :class:`~lightning_accum.CellTrainer` in a Lightning ``Trainer``.

    The activity of the cells is recorded while ``training_step`` runs, once in each batch. The rule
    is evaluated at the end of the batch, and the accumulated updates are applied at the end of
    every ``apply_every_n_batches``-th batch, before checkpoints are written. Nothing else is
    recorded, and a batch that an exception interrupts counts for nothing.

    If ``configure_optimizers`` returns no :class:`~lightning_accum.optim.UpdateOptimizer`, the
    callback makes one, which ``trainer.optimizers`` does not list. If it returns one, updates are
    applied when the module steps it. If it returns any optimizer, ``trainer.global_step`` counts
    the steps of those it returned, and no others; otherwise it counts applied updates.

    Updates are applied whether or not parameters require grad: call ``eval()`` on the modules of a
    cell to freeze it. Callbacks that average weights should come after this one.

    Args:
        cell_trainer: a rule, such as :class:`~lightning_accum.STDP`, or a CellTrainer.
        cells: by name, the paths of the cells in the module; ``None`` if registered by hand.
        input_keys: keys of what ``training_step`` returns for the rule, such as ``("reward",)``;
            or a mapping of the rule's names to such keys.
        carry: whether batches are pieces of one stream, so that traces pass from one to the next.
        apply_every_n_batches: number of batches whose updates are applied together, fewer at the
            end of an epoch; the Trainer's ``accumulate_grad_batches`` when ``None``. It should be
            ``None`` if the module steps its own UpdateOptimizer.
        nonfinite: what happens to an update with NaN or Inf: ``"skip"`` drops and counts it,
            ``"raise"`` ends the fit, ``"ignore"`` applies it.
        lr: factor of every update, for the optimizer that the callback makes.
        lr_scheduler: returns its scheduler, such as ``functools.partial(StepLR, step_size=100)``.
        lr_interval: whether the scheduler steps after every ``"update"`` or every ``"epoch"``.
        log: whether to log ``updates/<cell>/<param>/...`` and ``activity/<cell>/...`` on logging
            steps.
        prog_bar: whether the progress bar also shows the ratio of each update to its weights.
        summary: whether to print a table when the fit ends, with advice if a value is unusual.
        health: whether to watch the cells, and to warn of what they do not learn, by
            :class:`~lightning_accum.LocalLearningWarning`; or a mapping such as
            ``{"moved": False}``, which leaves out single checks. It changes nothing else.
        name: tells several callbacks apart. Default: the names of the rule and the cells.
        **options: for a rule, options of running as for :class:`~lightning_accum.RuleTrainer`, such
            as ``time_dim=0``.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if a number is out of range, or a choice is not one of its values.

    Example:
        >>> from lightning_accum import STDP
        >>> cells = {"enc": CellSpec("enc.fc", "enc.lif")}
        >>> callback = CellTrainerCallback(STDP(lr_post=0.01, lr_pre=-0.01), cells, time_dim=0)
        >>> trainer = pl.Trainer(callbacks=[callback], logger=False)
    """

    @knows_arguments(*OPTIONS)
    def __init__(
        self,
        cell_trainer: Rule | CellTrainer,
        cells: dict[str, CellSpec] | None = None,
        *,
        input_keys: Sequence[str] | Mapping[str, str] = (),
        carry: bool = False,
        apply_every_n_batches: int | None = None,
        nonfinite: NonFinite = "skip",
        lr: float = 1.0,
        lr_scheduler: MakeScheduler | None = None,
        lr_interval: Interval = "update",
        log: bool = True,
        prog_bar: bool = False,
        summary: bool = True,
        health: bool | Mapping[str, bool] = True,
        name: str | None = None,
        **options: Unpack[RunOptions],
    ) -> None:
        self.plan = UpdatePlan(apply_every_n_batches, lr, lr_scheduler, lr_interval)
        self.host = CellHost(cell_trainer, cells, carry, nonfinite, health, **options)
        names = keys = names_in("input_keys", input_keys)
        if isinstance(input_keys, Mapping):
            keys = names_in("input_keys", [*input_keys.values()])
        self.input_keys = dict(zip(names, keys, strict=True))
        for option, value in {"log": log, "prog_bar": prog_bar, "summary": summary}.items():
            check_type(isinstance(value, bool), option, value, "a bool")
        self.logs, self.prog_bar, self.summary = log, prog_bar, summary
        if name is not None:
            check_strings("a string, or None", name=name)
        self.name = name or ",".join([self.host.trainer.title, *(cells or ())])
        self._fit: _Fit | None = None
        self._failed = False  # whether an exception ended the fit, so that processes may be missing
        self._modules: dict[str, Any] = {}  # this process's states of modules, to load in a fit

    @property
    def cell_trainer(self) -> CellTrainer:
        """The trainer that the callback runs."""
        return self.host.trainer

    @property
    def _running(self) -> _Fit:
        if self._fit is None:
            raise RuntimeError(
                "A CellTrainerCallback should be among the callbacks of the Trainer when a fit"
                f" begins. Found that `{self.name}` was added later: pass it to"
                " `Trainer(callbacks=...)`, or return it from `configure_callbacks`."
            )
        return self._fit

    @property
    def state_key(self) -> str:
        """The key of this callback's state in a checkpoint."""
        if self._fit is None:  # a Trainer asks for it at each call of a hook, too
            self._check_name(attempt(compared_by_key, otherwise=[]))
        return f"{type(self).__qualname__}[{self.name}]"

    def prefix_in(self, trainer: pl.Trainer) -> str:
        """Returns the prefix of cell names in logs; empty if no other callback has such a name."""
        known = {cell for e in learners_in(trainer) if e is not self for cell in e.host.names}
        return f"{self.name}/" if known.intersection(self.host.names) else ""

    def add_watcher(self, watcher: Observer) -> None:
        """Tells an observer of the measurements of this fit, too."""
        self._running.report.watchers.append(watcher)

    def updates_as_gradients(self, **inputs: Any) -> None:
        """Moves the updates of the batch to the gradients of the parameters.

        In manual optimization, call it in ``training_step``, between ``zero_grad()`` and ``step()``
        of the optimizer, in every process: updates are summed over processes first.

        Args:
            **inputs: the inputs of the rule, such as a ``reward``.
        """
        if (fit := self._fit) is not None:
            appliers.check_exported_gradients(fit.scaled, fit.ascends)
            fit.report.before_export()
        self.host.evaluate(**inputs)
        self.host.exchange()
        updates_as_gradients(*self.host.updaters.values())

    # ------------------------------------------------------------------ a fit, from its beginning
    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Binds the cells, and finds or makes the optimizer that applies their updates."""
        self._check_own_trainer(trainer)
        resuming = self.host.bind(pl_module)
        world.load_module_states(pl_module, self._modules)
        self._failed, self._modules = False, {}
        fit = self._fit = _Fit(self, trainer)
        appliers.check_recorded_gradients(self.cell_trainer, fit.scaled)
        fit.appliers.find(trainer)
        self.plan.begin(fit.appliers.made, resuming)
        # Monitors register their hooks before the first compiled call, and keep them: in validation
        # the recording is off, and each hook checks the mode of its module.
        self.cell_trainer.train()
        StepGate.on(trainer).register(fit.recording)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begins to watch the cells; a checkpoint is loaded by now."""
        fit, every = self._running, self.plan.batches_between(trainer)
        self.host.check_places(pl_module)
        check_processes_agree(self.cell_trainer, lr=self.plan.lr, apply_every_n_batches=every)
        others = (each for each in trainer.optimizers if not isinstance(each, UpdateOptimizer))
        groups = (group for each in others for group in each.param_groups)
        fit.events = self.host.watch(
            pl_module,
            fit.appliers.by,
            [each.host for each in learners_in(trainer)],
            batch_size=getattr(trainer.train_dataloader, "batch_size", None),
            optimized={id(param) for group in groups for param in group["params"]},
            schedule=self.plan.schedule_in(trainer),
        )
        if self.summary:
            fit.report.summary = fit.events

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Prepares to record the batch's training step."""
        fit, every = self._running, self.plan.batches_between(trainer)
        if batch_idx == 0:
            self.host.check_places(pl_module)
        fit.appliers.batch_begins(trainer)
        fit.report.batch_begins(trainer, every)
        if not attempt(skips_backward, trainer, otherwise=False):
            fit.combine(every)  # before the module evaluates pieces of the batch by hand
            fit.recording.begin_batch()

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, *args: Any
    ) -> None:
        """Evaluates the rule, and applies updates if they are due."""
        for module in pl_module.modules():
            if isinstance(module, StateModule) and getattr(module, "gradient", "") != "none":
                module.detach()  # or the graph of what is not backpropagated would grow
        fit, every = self._running, self.plan.batches_between(trainer)
        if not fit.recording.in_batch:
            return
        fit.report.note_activity()
        inputs = self._inputs(outputs) if self.input_keys else {}
        if fit.report.measuring:
            fit.combine(every)  # again, for what the module has applied in between is recorded anew
        self.host.finish_batch(**inputs)
        fit.recording.end_batch()
        if self.plan.batch_ended(trainer.is_last_batch, every) and fit.appliers.by == "callback":
            self._apply(fit, trainer)
        fit.report.log(trainer, pl_module)
        if trainer.is_last_batch:
            # As Lightning's own schedulers: a fit that resumes from here begins the next epoch.
            self.plan.passed("epoch")

    def _apply(self, fit: _Fit, trainer: pl.Trainer) -> None:
        """Applies what is pending in all processes by the optimizer that the callback made."""
        (optimizer,) = fit.appliers.optimizers
        self.host.exchange(None if self.host.alone else optimizer.ids)
        fit.report.before_apply(optimizer)
        watched = attempt(step_is_watched, optimizer, otherwise=True)
        (optimizer.step if watched else optimizer.apply_pending)()
        fit.report.after_apply(optimizer)
        fit.appliers.count(trainer)
        self.plan.passed("update")

    def _before_step(self, optimizer: UpdateOptimizer) -> None:
        """Evaluates what is recorded when the module steps its own optimizer in a batch."""
        fit = self._running
        if fit.recording.in_batch:
            fit.report.note_activity()
            self.host.evaluate()
        self.host.exchange(optimizer.ids)
        fit.report.before_apply(optimizer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Applies what is pending if the epoch was stopped before its last batch."""
        fit = self._running
        fit.recording.end_batch()  # the module may have skipped the batch's end
        if self.plan.update_left() and fit.appliers.by == "callback":
            fit.report.measuring = False  # there is no logging step between batches
            self._apply(fit, trainer)
        self.plan.passed("epoch")
        fit.events.ended("epoch")
        confirm(self.cell_trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Prints the summary."""
        fit = self._running
        fit.events.ended("fit")
        if self.summary and (lines := fit.events.lines(fit.updates(), fit.report.exports)):
            log_summary(trainer, lines)

    def on_exception(self, *args: Any) -> None:
        """Leaves the model as it was; Lightning calls no ``teardown``."""
        self._failed = True
        self.teardown(*args)

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        """Leaves the model as it was: takes each step, whatever error another one raises."""
        fit, self._fit = self._fit, None
        with ExitStack() as steps:
            steps.callback(super().teardown)
            steps.callback(self.host.release)
            if fit is not None:
                steps.callback(fit.recording.leave)
                steps.callback(self.plan.end)
                steps.callback(fit.appliers.detach)
                steps.callback(self.host.combine, at_once=False)
                self.host.events.ended("failed" if self._failed else "released")

    # ------------------------------------------------------------------ beside a batch
    def _check_own_trainer(self, trainer: pl.Trainer) -> None:
        """Raises an error if another callback has the same CellTrainer."""
        for other in learners_in(trainer):
            if other is not self and other.cell_trainer is self.cell_trainer:
                raise ValueError(
                    "Argument `cell_trainer` should be another object for each CellTrainerCallback."
                    f" Found the same {self.cell_trainer.title} in `{self.name}` and"
                    f" `{other.name}`: make a rule for each, or one callback with all `cells`."
                )
        self._check_name(learners_in(trainer))  # those of `configure_callbacks` too

    def _check_name(self, callbacks: Sequence[Any]) -> None:
        """Raises an error if another callback would have the same part of a checkpoint."""
        learners = [each for each in callbacks if isinstance(each, CellTrainerCallback)]
        if [(type(each), each.name) for each in learners].count((type(self), self.name)) > 1:
            raise ValueError(
                "Argument `name` should differ between the CellTrainerCallbacks of a Trainer, since"
                f" a checkpoint has their states by it. Found two with `name = {self.name!r}`,"
                " which is by default the rule and the cells: pass another to one of them, as in"
                " `CellTrainerCallback(..., name='second')`."
            )

    def _inputs(self, outputs: Any) -> dict[str, Any]:
        """Returns the inputs of the rule, by name; none if the batch was left out."""
        if outputs is None or (isinstance(outputs, dict) and not outputs):  # Lightning's of None
            rule = self.cell_trainer
            steps = [recorded_steps(rule, name) for name, _ in rule.named_cells]
            if not any(each is None or each for each in steps):
                return {}
        known = outputs if isinstance(outputs, Mapping) else {}
        for key in self.input_keys.values():
            if key not in known:
                found = list(known) if isinstance(outputs, Mapping) else type(outputs).__name__
                raise KeyError(
                    "Argument `input_keys` should hold keys of what `training_step` returns. Found"
                    f" {key!r} and {found}: return a dictionary that has the key."
                )
        return {name: known[key] for name, key in self.input_keys.items()}

    # ------------------------------------------------------------------ checkpoints
    def state_dict(self) -> dict[str, Any]:
        """Returns a state of tensors and builtins; it is empty before there are cells."""
        return {"host": host, **self.plan.state_dict()} if (host := self.host.state_dict()) else {}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Adds the states of the other processes: of their cells and of this package's modules."""
        if world.processes() == 1 or self._failed:
            return
        others = world.states_of_others(
            lambda: {**self.state_dict(), "modules": world.module_states(pl_module)}
        )
        if others is not None and self.state_key in checkpoint.get("callbacks", {}):
            checkpoint["callbacks"][self.state_key]["others"] = others

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state now, or when the cells are bound if they are not yet."""
        kinds = {"host": MAPPING, **self.plan.kinds}
        state, own = pick_state(f"`{self.state_key}`", state_dict, kinds)
        self.plan.check_state_dict(state)
        self._modules = state.get("modules", {})
        self.host.load_state_dict(state["host"], own)
        self.plan.load_state_dict(state)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_fit": None}


class _Fit:
    """What a callback has during a fit only."""

    def __init__(self, learner: CellTrainerCallback, trainer: pl.Trainer) -> None:
        host = self._host = learner.host
        self.recording = BatchRecording(host)
        prefix = learner.prefix_in(trainer)
        self.report = Report(host, learner.logs, learner.prog_bar, prefix)
        self.report.counting = learner.summary and learner.logs and host.alone
        hooks = learner._before_step, self.report.after_apply
        self.appliers = appliers.Appliers(host, learner.plan.lr, learner.input_keys, *hooks)
        self.events: Observer = SILENT  # once training has started, what has a report in the end
        self.scaled = appliers.scales_gradients(trainer)
        self.ascends = appliers.ascending(trainer, host.updaters.values())

    def updates(self) -> dict[tuple[str, str], int]:
        """Returns how often each parameter of a cell was updated."""
        return {
            (cell, name): self.report.updates[id(optimizer)]
            for optimizer in self.appliers.optimizers
            for cell, updater in self._host.updaters.items()
            for name in updater.names
            if id(updater.changes.target(name)) in optimizer.ids
        }

    def combine(self, every: int) -> None:
        """Has rules combine parts, if each batch is applied at once."""
        at_once = self.appliers.by == "callback" and every == 1
        self._host.combine(at_once, record=self.report.measuring)


def learners_in(trainer: pl.Trainer) -> list[CellTrainerCallback]:
    """Returns the CellTrainerCallbacks among a trainer's callbacks."""
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    return [each for each in callbacks if isinstance(each, CellTrainerCallback)]

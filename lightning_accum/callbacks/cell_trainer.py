"""The callback that hosts a CellTrainer in a Lightning Trainer."""

from __future__ import annotations

import warnings
from typing import Any

import lightning.pytorch as pl
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities import rank_zero_info
from torch.optim import Optimizer

from lightning_accum._state import ANOTHER_VERSION, COUNT, MAPPING, check_state, optional
from lightning_accum.callbacks._findings import By
from lightning_accum.callbacks._gate import Recording, StepGate, only_forward
from lightning_accum.callbacks._health import Health
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._logging_methods import give_back, own_state
from lightning_accum.callbacks._optimizers import own_optimizers, stand_in, uncounted
from lightning_accum.callbacks._overlap import Overlap
from lightning_accum.callbacks._places import check_places
from lightning_accum.callbacks._report import Report
from lightning_accum.callbacks._schedule import Interval, MakeScheduler, Schedule
from lightning_accum.callbacks._summary import Summary
from lightning_accum.cells.cell import CellSpec
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.checkpoint import (
    load_module_states,
    module_states,
    states_of_others,
)
from lightning_accum.distributed.world import is_first, processes
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.optim.update import check_lr
from lightning_accum.updates import NonFinite


class CellTrainerCallback(Callback):
    """Hosts a :class:`~lightning_accum.CellTrainer` in a Lightning ``Trainer``.

    While ``training_step`` runs, the cells' activity is recorded, once a batch. Forward passes of
    other hooks and callbacks are not recorded, nor is a closure that an optimizer calls again (as
    ``LBFGS`` does), nor the recomputation of activation checkpointing. At the end
    of the batch the rule is evaluated, and at the end of every ``apply_every_n_batches``-th batch
    what has accumulated is applied, before checkpoints are written. A batch that an exception
    interrupts counts for nothing. A fit begins with nothing recorded, carried or pending, unless it
    is resumed from a checkpoint.

    It works beside automatic optimization, manual optimization and no optimizer at all. Where the
    module's ``configure_optimizers`` gives no :class:`~lightning_accum.optim.UpdateOptimizer` the
    callback keeps one, which ``trainer.optimizers`` does not show. Where the module gives one, it
    says when updates are applied, by stepping it.

    ``trainer.global_step``, by which ``max_steps`` and ``ModelCheckpoint`` go, counts applied
    updates where nothing else is optimized. Beside a loss it counts what it counts without the
    callback: the steps of the module's own optimizers.

    Changes are applied whether or not parameters require grad, and the trainer is put in training
    mode when a fit begins: neither ``requires_grad_(False)`` nor ``eval()`` of the rule keeps a
    cell from learning. To freeze one, leave it out of ``cells``, or call ``eval()`` on its modules.

    On logging steps it logs, for every cell, ``updates/<cell>/<param>/...`` (what was actually
    applied, and at which ``lr``) and ``activity/<cell>/...``; on others it computes no statistics.
    Callbacks that look at the weights of each step, such as ``WeightAveraging``, should stand
    behind this one.

    Args:
        cell_trainer: the trainer, usually a rule such as :class:`~lightning_accum.STDP`.
        cells: by name, where the cells are in the LightningModule; ``None`` where they were
            registered with ``cell_trainer`` by hand.
        apply_every_n_batches: batches whose changes are applied together; the last, partial group
            of an epoch is applied too. ``None`` for as many as the Trainer has in
            ``accumulate_grad_batches``, one by default. Where the module steps an UpdateOptimizer
            itself, how many batches apart it does, so that each logging step finds statistics.
        reward_key: key of the reward in what ``training_step`` returns, for rules that ask for it.
        carry: whether batches are pieces of one stream, so that traces pass from one to the next.
        lr: factor of every change, for the optimizer that the callback keeps.
        lr_scheduler: makes a scheduler of that optimizer, such as
            ``functools.partial(StepLR, step_size=100)``.
        lr_interval: whether it steps after every applied ``"update"`` or after every ``"epoch"``.
        log: whether to log statistics, on logging steps.
        nonfinite: what happens to an update with NaN or Inf: ``"skip"`` drops and counts it,
            ``"raise"`` ends the fit, ``"ignore"`` applies it.
        name: tells several of these callbacks in one trainer apart; made of the cells' names when
            ``None``.
        prog_bar: whether the ratios are shown in the progress bar too.
        summary: whether to say at the end of a fit what the logging steps have seen of each cell:
            how much updates changed weights, which are at a limit, and how many neurons never
            fired in the last epoch, with advice where one of these is out of the usual. That a cell
            learns nothing is a ``RuntimeWarning`` in any case.

    Raises:
        TypeError: if ``cell_trainer`` is no CellTrainer or ``cells`` holds no CellSpecs.
        ValueError: if ``apply_every_n_batches`` is not positive, ``lr`` is negative, or
            ``nonfinite`` is none of the three.

    Example:
        >>> from lightning_accum import STDP
        >>> callback = CellTrainerCallback(
        ...     STDP(lr_post=0.01, lr_pre=-0.01, time_dim=0),
        ...     cells={"enc": CellSpec(connection="enc.fc", neuron="enc.lif")},
        ... )
        >>> trainer = pl.Trainer(callbacks=[callback], logger=False)
    """

    def __init__(
        self,
        cell_trainer: CellTrainer,
        cells: dict[str, CellSpec] | None = None,
        apply_every_n_batches: int | None = None,
        reward_key: str | None = None,
        carry: bool = False,
        lr: float = 1.0,
        log: bool = True,
        nonfinite: NonFinite = "skip",
        name: str | None = None,
        prog_bar: bool = False,
        summary: bool = True,
        lr_scheduler: MakeScheduler | None = None,
        lr_interval: Interval = "update",
    ) -> None:
        every = apply_every_n_batches
        if every is not None and (not isinstance(every, int) or every < 1):
            raise ValueError(
                "Argument `apply_every_n_batches` should be a positive number of batches, or None."
                f" Found `{apply_every_n_batches = }`."
            )
        check_lr(lr)
        self.host = CellHost(cell_trainer, cells, carry, nonfinite)
        self.apply_every_n_batches = apply_every_n_batches
        self.reward_key = reward_key
        self.lr = lr
        self._schedule = Schedule(lr_scheduler, lr_interval)
        self.log_statistics = log
        self.prog_bar = prog_bar
        self.summary = summary
        self.name = name or ",".join([type(cell_trainer).__name__, *(cells or ())])
        self._optimizers: list[UpdateOptimizer] = []
        self._listed: list[Any] = []  # the Trainer's optimizers, as they were when these were found
        self._applies = True
        self._recording: Recording | None = None
        self._batches = 0
        self._steps_before = 0
        self._current: Report | None = None
        self._current_health: Health | None = None
        self._overlap: Overlap | None = None
        self._skipped: dict[tuple[str, str], int] = {}
        self._failed = False
        self._module_states: dict[str, Any] = {}  # of this process, in a checkpoint

    @property
    def cell_trainer(self) -> CellTrainer:
        """The trainer that is hosted."""
        return self.host.trainer

    def prefix_in(self, trainer: pl.Trainer) -> str:
        """What stands before the names of cells where another learner has a cell of the same name.

        Args:
            trainer: whose callbacks are looked at.
        """
        others = (each for each in learners_in(trainer) if each is not self)
        known = {cell for each in others for cell in each.host.names}
        return f"{self.name}/" if known.intersection(self.host.names) else ""

    @property
    def _report(self) -> Report:
        """What is measured, while a fit runs."""
        assert self._current is not None
        return self._current

    @property
    def _health(self) -> Health:
        """What is counted of the cells, while training runs."""
        assert self._current_health is not None
        return self._current_health

    @property
    def _by(self) -> By:
        """Who applies updates."""
        return "callback" if self._applies else "module"

    @property
    def state_key(self) -> str:
        """Tells callbacks of this class apart in a checkpoint."""
        return self._generate_state_key(name=self.name)

    def updates_as_gradients(self, **inputs: Any) -> None:
        """Hands what the batch changes to an optimizer, which the module then steps by itself.

        For manual optimization: to be called in ``training_step``, by every process, between
        ``zero_grad()`` and ``step()`` of the optimizer that holds the parameters. What all
        processes have pending is summed first, and the same in all of them. What then is left for
        this callback to apply is nothing.

        Args:
            **inputs: what the rule asks for, such as a ``reward``.
        """
        self.host.updates_as_gradients(**inputs)

    # ------------------------------------------------------------------ begin and end
    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Binds the cells, and finds or adds the optimizer that applies their updates."""
        self._check_alone(trainer)
        resuming = self.host.resuming
        if not resuming:
            self._batches = 0
        self._failed = False
        self.host.bind(pl_module)
        load_module_states(pl_module, self._module_states)
        self._module_states = {}
        self._skipped = self._counts()
        summary = Summary() if self.summary else None
        self._current = Report(self.host, self.log_statistics, summary, self.prefix_in(trainer))
        self._overlap = Overlap(self.host)
        self._find_optimizers(trainer)
        self._schedule.begin(self._optimizers[0] if self._applies else None, resuming)
        # Hooks must stand before the first compiled call, and stay. In validation the gate is shut,
        # and each hook looks at the mode of its own module.
        self.cell_trainer.train()
        self._recording = Recording(self.host)
        StepGate.on(trainer.strategy).let_in(self._recording)

    def _check_alone(self, trainer: pl.Trainer) -> None:
        """Raises a ``ValueError`` if another callback has the same CellTrainer."""
        for other in learners_in(trainer):
            if other is not self and other.cell_trainer is self.cell_trainer:
                raise ValueError(
                    "Argument `cell_trainer` should be another one for each CellTrainerCallback."
                    f" Found the same {type(self.cell_trainer).__name__} in `{self.name}` and"
                    f" `{other.name}`, of which one would find nothing recorded: make a rule for"
                    " each, or have one callback with all `cells`."
                )

    def _find_optimizers(self, trainer: pl.Trainer) -> None:
        """Has the module's own UpdateOptimizers apply updates, or else one that is kept here."""
        updaters = list(self.host.updaters.values())
        own = own_optimizers(trainer, updaters)
        if own and self.reward_key is not None:
            raise ValueError(
                "Argument `reward_key` should be None where the module steps an UpdateOptimizer"
                " itself, for then there is no reward yet when updates are applied. Found"
                f" `reward_key = {self.reward_key!r}`: return no UpdateOptimizer from"
                " `configure_optimizers`."
            )
        if not own:
            stand_in(trainer)
        if own or not self._applies or not self._optimizers:
            self._detach()
            self._applies = not own
            params = [u.target(name) for u in updaters for name in u.names]
            self._optimizers = own or [UpdateOptimizer(list(dict.fromkeys(params)), self.lr)]
            for optimizer in self._optimizers:
                optimizer.attach(updaters, self._before_apply, self._after_apply)
        self._listed = trainer.optimizers

    def _detach(self) -> None:
        for optimizer in self._optimizers:
            optimizer.detach(self.host.updaters.values(), self._before_apply, self._after_apply)
        self._optimizers, self._listed = [], []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Notes the weights as they are, for a checkpoint is loaded by now."""
        check_places(self.host, pl_module)
        self._current_health = Health(self.host)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Leaves the model as it was."""
        self._release(pl_module)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Leaves the model as it was, for no teardown follows; state stays for a checkpoint."""
        self._failed = True
        self._release(pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Sums up, and says which updates were dropped for NaN or Inf."""
        advice = self._health.fit_ended(self._optimizers, self._by)
        lines = self._report.text(self._optimizers, advice, self._health.warned)
        if lines:
            rank_zero_info("\n".join(lines))
        for (cell, name), count in self._counts().items():
            dropped = count - self._skipped.get((cell, name), 0)
            if dropped:
                warnings.warn(
                    f"{dropped} updates of `{name}` of cell `{cell}` held NaN or Inf and were"
                    " dropped: look at the activity and lower the rates.",
                    RuntimeWarning,
                    stacklevel=2,
                )

    # ------------------------------------------------------------------ batches
    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Has the batch's training step recorded."""
        if batch_idx == 0:
            check_places(self.host, pl_module)
        if trainer.optimizers is not self._listed:  # they were set up anew
            self._find_optimizers(trainer)
        self._steps_before = trainer.global_step
        self._report.begin_batch(trainer, self._every(trainer))
        assert self._recording is not None
        if not only_forward(trainer):
            self._recording.begin_batch()

    def _every(self, trainer: pl.Trainer) -> int:
        """How many batches are applied together."""
        return self.apply_every_n_batches or trainer.accumulate_grad_batches

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Evaluates the rule, and applies what has accumulated where it is due."""
        assert self._recording is not None
        if not self._recording.in_batch:
            return
        self._report.note_batch(trainer, batch)
        self._report.note_activity()
        self.host.finish_batch(**self._given(outputs))
        self._recording.end_batch()
        self._batches += 1
        if self._applies and (self._batches >= self._every(trainer) or trainer.is_last_batch):
            self._batches = 0
            self._step(trainer, pl_module)
        self._report.log(trainer, pl_module, self.prog_bar)
        self._health.batch_ended()
        self._health.look_if_due(self._optimizers, self._by)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Applies the partial group of an epoch that was stopped before its last batch."""
        assert self._recording is not None
        self._recording.end_batch()  # which a module that left it out has not
        if self._applies and self._batches:
            self._batches = 0
            self._report.end_epoch()
            self._step(trainer, pl_module)
        self._schedule.passed("epoch")
        self._report.epoch_ended()
        self._health.epoch_ended(self._optimizers, self._by)
        self.cell_trainer.confirm()

    def _step(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Applies, and has the run count it unless the batch has counted by itself."""
        progress = None
        if trainer.global_step == self._steps_before:
            progress = uncounted(trainer)
        if progress is not None:
            progress.increment_ready()
        for optimizer in self._optimizers:
            optimizer.step()
        self._schedule.passed("update")
        if progress is not None:
            progress.increment_completed()

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Optimizer
    ) -> None:
        """Notes whether what cells train is trained by gradients too."""
        if self._overlap is not None:
            self._overlap.note(optimizer)

    def _before_apply(self, optimizer: UpdateOptimizer) -> None:
        """Runs in an optimizer's step: evaluates what a user's own step within a batch needs."""
        if self._recording is not None and self._recording.in_batch:
            self._report.note_activity()
            self.host.evaluate()
        if self._overlap is not None:
            self._overlap.check()
        self.host.exchange(optimizer.ids)
        self._report.before_apply(optimizer)

    def _after_apply(self, optimizer: UpdateOptimizer) -> None:
        """Runs when the optimizer has applied."""
        self._report.after_apply(optimizer)

    def _given(self, outputs: Any) -> dict[str, Any]:
        if self.reward_key is None:
            return {}
        if not isinstance(outputs, dict) or self.reward_key not in outputs:
            found = list(outputs) if isinstance(outputs, dict) else type(outputs).__name__
            raise KeyError(
                f"Argument `reward_key` should be a key of what `training_step` returns. Found"
                f" `reward_key = {self.reward_key!r}` and {found}."
            )
        return {"reward": outputs[self.reward_key]}

    # ------------------------------------------------------------------ survival
    def _release(self, pl_module: pl.LightningModule) -> None:
        self._detach()
        self._schedule.end()
        if self._recording is not None:
            self._recording.leave()
        self._recording = None
        self.host.release()
        self._current = self._current_health = self._overlap = None
        give_back(self)

    def _counts(self) -> dict[tuple[str, str], int]:
        """How many updates were ever dropped, by cell and parameter."""
        return {
            (cell, name): count
            for cell, updater in self.host.updaters.items()
            for name, count in updater.skipped.items()
        }

    def __getstate__(self) -> dict[str, Any]:
        own = own_state(self)
        gone = {"_recording": None, "_current": None, "_current_health": None, "_overlap": None}
        return {**own, **gone, "_optimizers": [], "_listed": []}

    def state_dict(self) -> dict[str, Any]:
        """Tensors and builtins alone; empty before there are cells."""
        host = self.host.state_dict()
        if not host:
            return {}
        return {"host": host, "batches": self._batches, "schedule": self._schedule.state_dict()}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Adds what the other processes have pending, carried, and in this package's modules."""
        if processes() == 1 or self._failed:  # then the others may not come
            return
        others = states_of_others(
            lambda: {**self.state_dict(), "modules": module_states(pl_module)}
        )
        if others is not None and self.state_key in checkpoint.get("callbacks", {}):
            checkpoint["callbacks"][self.state_key]["others"] = others

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up a state, now or, before the cells are bound, when they are.

        Where as many processes resume as have saved, each has its own.

        Raises:
            RuntimeError: if it is the state of something else.
        """
        keys = {"host": MAPPING, "batches": COUNT, "schedule": optional(MAPPING)}
        rest = {key: value for key, value in state_dict.items() if key != "others"}
        check_state(f"`{self.state_key}`", rest, keys, ANOTHER_VERSION)
        others = state_dict.get("others", [])
        own = is_first()
        if not own and len(others) + 1 == processes():
            state_dict, own = others[dist.get_rank() - 1], True
            self._module_states = state_dict["modules"]
        self.host.load_state_dict(state_dict["host"], own)
        self._batches = state_dict["batches"]
        self._schedule.load_state_dict(state_dict["schedule"])


def learners_in(trainer: pl.Trainer) -> list[CellTrainerCallback]:
    """The learners among a trainer's callbacks."""
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    return [each for each in callbacks if isinstance(each, CellTrainerCallback)]

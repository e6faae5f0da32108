"""The callback that runs a CellTrainer in a Lightning Trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from lightning_accum._state import MAPPING
from lightning_accum.callbacks._checkpoint import ProcessStates
from lightning_accum.callbacks._fit import Fit
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._inputs import keys_by_input
from lightning_accum.callbacks._logging import LogOptions
from lightning_accum.callbacks._logging_methods import own_state, remove_lent
from lightning_accum.callbacks._schedule import Interval, MakeScheduler
from lightning_accum.callbacks._twins import check_own_trainer
from lightning_accum.callbacks._update_plan import UpdatePlan
from lightning_accum.callbacks._watcher import Watcher
from lightning_accum.cells.cell import CellSpec
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.health import switched_off
from lightning_accum.updates.nonfinite import NonFinite


class CellTrainerCallback(Callback):
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
        cell_trainer: the trainer, usually a rule such as :class:`~lightning_accum.STDP`.
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

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if a number is out of range, or a choice is not one of its values.

    Example:
        >>> from lightning_accum import STDP
        >>> rule = STDP(lr_post=0.01, lr_pre=-0.01, time_dim=0)
        >>> callback = CellTrainerCallback(rule, cells={"enc": CellSpec("enc.fc", "enc.lif")})
        >>> trainer = pl.Trainer(callbacks=[callback], logger=False)
    """

    def __init__(
        self,
        cell_trainer: CellTrainer,
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
    ) -> None:
        self.plan = UpdatePlan(apply_every_n_batches, lr, lr_scheduler, lr_interval)
        self.host = CellHost(cell_trainer, cells, carry, nonfinite)
        self.input_keys = keys_by_input(input_keys)
        self.log_options = LogOptions(log, prog_bar, summary)
        self.name = name or ",".join([type(cell_trainer).__name__, *(cells or ())])
        self._fit: Fit | None = None
        self._processes = ProcessStates()
        self._off = switched_off(health)

    @property
    def cell_trainer(self) -> CellTrainer:
        """The trainer that the callback runs."""
        return self.host.trainer

    @property
    def _running(self) -> Fit:
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
        return f"{type(self).__qualname__}[{self.name}]"

    def prefix_in(self, trainer: pl.Trainer) -> str:
        """Returns the prefix of cell names in logs; empty if no other callback has such a name."""
        known = {cell for e in learners_in(trainer) if e is not self for cell in e.host.names}
        return f"{self.name}/" if known.intersection(self.host.names) else ""

    def add_watcher(self, watcher: Watcher) -> None:
        """Passes the measurements of this fit to a watcher."""
        self._running.report.watchers.append(watcher)

    def updates_as_gradients(self, **inputs: Any) -> None:
        """Moves the updates of the batch to the gradients of the parameters.

        In manual optimization, call it in ``training_step``, between ``zero_grad()`` and ``step()``
        of the optimizer, in every process: updates are summed over processes first.

        Args:
            **inputs: the inputs of the rule, such as a ``reward``.
        """
        (self._fit or self.host).updates_as_gradients(**inputs)

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Binds the cells, and finds or makes the optimizer that applies their updates."""
        others = {e.name: e.host for e in learners_in(trainer) if e is not self}
        check_own_trainer(self.name, self.host, others)
        resuming = self.host.resuming
        self.host.bind(pl_module)
        self._processes.load_modules(pl_module)
        prefix = self.prefix_in(trainer)
        self._fit = Fit(self.host, self.plan, self.input_keys, self.log_options, prefix)
        self._fit.begin(trainer, resuming)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Begins to watch the cells."""
        hosts = [each.host for each in learners_in(trainer)]
        self._running.training_begins(pl_module, hosts, self._off)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Prepares to record the batch's training step."""
        self._running.batch_begins(trainer, pl_module, batch_idx)

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Evaluates the rule, and applies updates if they are due."""
        self._running.batch_ends(trainer, pl_module, outputs)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Applies what is pending if the epoch was stopped before its last batch."""
        self._running.epoch_ends(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Prints the summary."""
        self._running.training_ends()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Leaves the model as it was; Lightning calls no ``teardown``."""
        self._processes.failed = True
        self._release(failed=True)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Leaves the model as it was."""
        self._release()

    def _release(self, failed: bool = False) -> None:
        try:
            if self._fit is not None:
                self._fit.release(failed)
        finally:
            self._fit = None
            self.host.release()
            remove_lent(self)

    def state_dict(self) -> dict[str, Any]:
        """Returns a state of tensors and builtins; it is empty before there are cells."""
        return {"host": host, **self.plan.state_dict()} if (host := self.host.state_dict()) else {}

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Adds the states of the other processes: of their cells and of this package's modules."""
        others = self._processes.others(self.state_dict, pl_module)
        if others is not None and self.state_key in checkpoint.get("callbacks", {}):
            checkpoint["callbacks"][self.state_key]["others"] = others

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state now, or when the cells are bound if they are not yet."""
        kinds = {"host": MAPPING, **self.plan.kinds}
        state, own = self._processes.pick(f"`{self.state_key}`", state_dict, kinds)
        self.host.load_state_dict(state["host"], own)
        self.plan.load_state_dict(state)

    def __getstate__(self) -> dict[str, Any]:
        return {**own_state(self), "_fit": None}


def learners_in(trainer: pl.Trainer) -> list[CellTrainerCallback]:
    """Returns the CellTrainerCallbacks among a trainer's callbacks."""
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    return [each for each in callbacks if isinstance(each, CellTrainerCallback)]

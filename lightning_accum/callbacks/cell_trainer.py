"""The callback that hosts a CellTrainer in a Lightning Trainer."""

from __future__ import annotations

import warnings
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.core.optimizer import _MockOptimizer
from torch import Tensor

from lightning_accum.callbacks._measure import Measurement, activity
from lightning_accum.callbacks._sentinel import ModeSentinel
from lightning_accum.learn.cell import CellSpec
from lightning_accum.learn.host import CellHost
from lightning_accum.learn.trainer import CellTrainer
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.updates import NonFinite


class CellTrainerCallback(Callback):
    """Hosts a :class:`~lightning_accum.CellTrainer` in a Lightning ``Trainer``.

    While a training batch runs, and then alone, the cells' activity is recorded. At the end of the
    batch the rule is evaluated, and at the end of every ``apply_every_n_batches``-th batch what has
    accumulated is applied, before checkpoints are written. It works beside automatic optimization,
    manual optimization and no optimizer at all; where the module's ``configure_optimizers`` gives
    no :class:`~lightning_accum.optim.UpdateOptimizer` the callback adds one, so that
    ``trainer.global_step``, ``max_steps``, ``ModelCheckpoint`` and ``LearningRateMonitor`` work.

    On logging steps it logs, for every cell, ``updates/<cell>/<param>/...`` (what was actually
    applied) and ``activity/<cell>/...``; on others it computes no statistics.

    Args:
        cell_trainer: the trainer, usually a rule such as :class:`~lightning_accum.STDP`.
        cells: by name, where the cells are in the LightningModule; ``None`` where they were
            registered with ``cell_trainer`` by hand.
        apply_every_n_batches: batches whose changes are applied together; the last, partial group
            of an epoch is applied too.
        reward_key: key of the reward in what ``training_step`` returns, for rules that ask for it.
        carry: whether batches are pieces of one stream, so that traces pass from one to the next.
        lr: factor of every change, for the optimizer that the callback adds.
        log: whether to log statistics, on logging steps.
        nonfinite: what happens to an update with NaN or Inf: ``"skip"`` drops and counts it,
            ``"raise"`` ends the fit, ``"ignore"`` applies it.
        name: tells several of these callbacks in one trainer apart; made of the cells' names when
            ``None``.

    Raises:
        TypeError: if ``cell_trainer`` is no CellTrainer or ``cells`` holds no CellSpecs.
        ValueError: if ``apply_every_n_batches`` is not positive.

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
        apply_every_n_batches: int = 1,
        reward_key: str | None = None,
        carry: bool = False,
        lr: float = 1.0,
        log: bool = True,
        nonfinite: NonFinite = "skip",
        name: str | None = None,
    ) -> None:
        if not isinstance(apply_every_n_batches, int) or apply_every_n_batches < 1:
            raise ValueError(
                "Argument `apply_every_n_batches` should be a positive number of batches."
                f" Found `{apply_every_n_batches = }`."
            )
        self.host = CellHost(cell_trainer, cells, carry, nonfinite)
        self.apply_every_n_batches = apply_every_n_batches
        self.reward_key = reward_key
        self.lr = lr
        self.log_statistics = log
        self.name = name or ",".join(cells or ()) or type(cell_trainer).__name__
        self.optimizer: UpdateOptimizer | None = None
        self._owns_optimizer = False
        self._sentinel: ModeSentinel | None = None
        self._batches = 0
        self._steps_before = 0
        self._measuring = False
        self._measured: Measurement | None = None
        self._unlogged: dict[str, Tensor] = {}

    @property
    def cell_trainer(self) -> CellTrainer:
        """The trainer that is hosted."""
        return self.host.trainer

    @property
    def state_key(self) -> str:
        """Tells callbacks of this class apart in a checkpoint."""
        return self._generate_state_key(name=self.name)

    # ------------------------------------------------------------------ begin and end
    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Binds the cells, and puts sentinel and optimizer in place."""
        self._release(pl_module)
        if not self.host.resuming:
            self._batches = 0
        self.host.bind(pl_module)
        compiled = any(
            hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) is not None
            for m in pl_module.modules()
        )
        self._sentinel = ModeSentinel(self.cell_trainer, gate_only=compiled)
        self.cell_trainer.train(compiled or pl_module.training)
        self._sentinel.training = pl_module.training
        pl_module.add_module(self._sentinel_name, self._sentinel)
        self._add_optimizer(trainer)

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Leaves the model as it was."""
        self._release(pl_module)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Leaves the model as it was, for no teardown follows; state stays for a checkpoint."""
        self._release(pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Says which updates were dropped for NaN or Inf."""
        for cell, updater in self.host.updaters.items():
            for name, count in updater.skipped.items():
                if count:
                    warnings.warn(
                        f"{count} updates of `{name}` of cell `{cell}` held NaN or Inf and were"
                        " dropped: look at the activity and lower the rates.",
                        RuntimeWarning,
                        stacklevel=2,
                    )

    # ------------------------------------------------------------------ batches
    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Opens the gate."""
        assert self._sentinel is not None
        self._steps_before = trainer.global_step
        self._measuring = self.log_statistics and self._log_is_near(trainer)
        self._sentinel.in_batch = True

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Closes the gate, evaluates the rule, and applies what has accumulated where it is due."""
        assert self._sentinel is not None
        self._sentinel.in_batch = False
        if self._measuring:
            self._unlogged.update(activity(self.host))
        self.host.finish_batch(**self._given(outputs))
        self._batches += 1
        if self._owns_optimizer and (
            self._batches % self.apply_every_n_batches == 0 or trainer.is_last_batch
        ):
            self._batches = 0
            self._step(trainer, pl_module)
        if self._measured is not None:
            self._unlogged.update(self._measured.values())
            self._measured = None
        if self._unlogged and trainer._logger_connector.should_update_logs:
            pl_module.log_dict(self._unlogged, on_step=True, on_epoch=False, batch_size=1)
            self._unlogged = {}

    def _step(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Applies, and has the run count it unless the batch has counted by itself."""
        assert self.optimizer is not None
        progress = None
        if not pl_module.automatic_optimization and trainer.global_step == self._steps_before:
            progress = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
            progress.increment_ready()
        self.optimizer.step()
        if progress is not None:
            progress.increment_completed()

    def _before_apply(self) -> None:
        """Runs in the optimizer's step: evaluates what a user's own step within a batch needs."""
        if self._sentinel is not None and self._sentinel.in_batch:
            if self._measuring:
                self._unlogged.update(activity(self.host))
            self.host.evaluate()
        if self._measuring:
            self._measured = Measurement(self.host)

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

    def _log_is_near(self, trainer: pl.Trainer) -> bool:
        """Whether a logging step comes before the update after this one is applied."""
        step = trainer.fit_loop.epoch_loop._batches_that_stepped + 1
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        return every > 0 and -step % every < self.apply_every_n_batches

    # ------------------------------------------------------------------ optimizer
    def _add_optimizer(self, trainer: pl.Trainer) -> None:
        """Finds the module's own UpdateOptimizer for these cells, or adds one."""
        updaters = list(self.host.updaters.values())
        params = {id(p): p for u in updaters for p in (getattr(u.parent, n) for n in u.names)}
        for optimizer in trainer.optimizers:
            if isinstance(optimizer, UpdateOptimizer):
                owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
                if owned & set(params):
                    optimizer.attach(updaters, self._before_apply)
                    self.optimizer, self._owns_optimizer = optimizer, False
                    return
        self.optimizer = UpdateOptimizer(list(params.values()), self.lr)
        self.optimizer.attach(updaters, self._before_apply)
        self._owns_optimizer = True
        others = list(trainer.optimizers)
        if not trainer.lightning_module.automatic_optimization:
            others = [o for o in others if not isinstance(o, _MockOptimizer)]
        trainer.optimizers = [*others, self.optimizer]

    # ------------------------------------------------------------------ survival
    @property
    def _sentinel_name(self) -> str:
        return "_mode_sentinel_" + "".join(c if c.isalnum() else "_" for c in self.name)

    def _release(self, pl_module: pl.LightningModule) -> None:
        self.host.release()
        pl_module._modules.pop(self._sentinel_name, None)
        self._sentinel = None
        if self.optimizer is not None and not self._owns_optimizer:
            self.optimizer.detach(self.host.updaters.values(), self._before_apply)
            self.optimizer = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sentinel": None, "_measured": None, "optimizer": None}

    def state_dict(self) -> dict[str, Any]:
        """Tensors and builtins alone."""
        return {"host": self.host.state_dict(), "batches": self._batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up a state, now or, before the cells are bound, when they are."""
        self._batches = state_dict["batches"]
        self.host.load_state_dict(state_dict["host"])

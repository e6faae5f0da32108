"""The steps of a Trainer: which of them cells record, and the optimizers that apply updates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.precision import Precision
from torch.optim import Optimizer

from lightning_accum._compat.lightning_internals import (
    count_steps,
    replace_methods,
    restore_methods,
)
from lightning_accum._training_events import By
from lightning_accum.callbacks._cell_host import CellHost
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.observe import unobserved
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.optim.update_optimizer import Step
from lightning_accum.updates import Updater


def scales_gradients(trainer: pl.Trainer) -> bool:
    """Returns whether a gradient scaler multiplies the loss."""
    return trainer.precision == "16-mixed"


def ascending(trainer: pl.Trainer, updaters: Iterable[Updater]) -> str | None:
    """Returns the name of an optimizer of the updaters' parameters that maximizes, if any."""
    params = {id(updater.changes.target(name)) for updater in updaters for name in updater.names}
    groups = ((o, g) for o in trainer.optimizers for g in o.param_groups if g.get("maximize"))
    found = (type(o).__name__ for o, g in groups if params & {id(param) for param in g["params"]})
    return next(found, None)


def check_recorded_gradients(trainer: CellTrainer, scaled: bool) -> None:
    """Raises a ``ValueError`` if a rule would record gradients that a scaler has scaled."""
    if scaled and any(monitor.records_gradients for monitor in trainer.monitors):
        raise ValueError(
            "Argument `precision` of the Trainer should not be '16-mixed' for a rule that records"
            " gradients. Found a gradient scaler, which multiplies the loss, and a"
            f" `{trainer.title}`: take 'bf16-mixed' or '32-true'."
        )


def check_exported_gradients(scaled: bool, ascends: str | None) -> None:
    """Raises an error if updates that become gradients would be scaled, or change sign."""
    if scaled:
        raise RuntimeError(
            "Updates should become gradients without a gradient scaler, which would divide them by"
            " its scale. Found `precision='16-mixed'`: take 'bf16-mixed' or '32-true'."
        )
    if ascends:
        raise ValueError(
            "Argument `maximize` of the optimizer should be False for updates that become"
            f" gradients of a descent. Found True in `{ascends}`, which would subtract each update:"
            " leave it out."
        )


class Appliers:
    """Finds or makes the optimizers that apply the updates of a host's cells, and steps them."""

    def __init__(
        self, host: CellHost, lr: float, keys: Mapping[str, str], prepare: Step, finish: Step
    ) -> None:
        self.optimizers: list[UpdateOptimizer] = []
        self.by: By = "callback"
        self._host = host
        self._lr = lr
        self._keys = keys
        self._hooks = prepare, finish
        self._listed: list[Any] = []  # the Trainer's optimizers when these were found
        self._counts = False  # whether applied updates are the steps that the Trainer counts
        self._steps_before = 0

    @property
    def made(self) -> UpdateOptimizer | None:
        """The optimizer that was made; ``None`` if the module has its own."""
        return self.optimizers[0] if self.by == "callback" and self.optimizers else None

    def find(self, trainer: pl.Trainer) -> None:
        """Attaches the updaters to the module's own UpdateOptimizers, or makes one."""
        updaters = list(self._host.updaters.values())
        params = {id(p): p for u in updaters for p in map(u.changes.target, u.names)}
        own = self._own(trainer, {*params})
        if own or self.made is None:
            self.detach()
            self.by = "module" if own else "callback"
            self.optimizers = own or [UpdateOptimizer([*params.values()], self._lr)]
            for optimizer in self.optimizers:
                optimizer.attach(updaters, *(self._hooks if own else ()))
        self._counts = all(map(optimizes_nothing, trainer.optimizers))
        if self._counts and not trainer.lightning_module.automatic_optimization:
            trainer.optimizers.clear()  # `self.optimizers()` of the module stays
        elif not trainer.optimizers:
            trainer.optimizers = [NoOptimizer()]  # Lightning steps the first one
        self._listed = trainer.optimizers

    def _own(self, trainer: pl.Trainer, wanted: set[int]) -> list[UpdateOptimizer]:
        """Returns the module's own UpdateOptimizers of wanted parameters, if they can apply all."""
        found = (each for each in trainer.optimizers if isinstance(each, UpdateOptimizer))
        own = [each for each in found if each.ids & wanted]
        held = {key for each in own for key in each.ids}
        left = [
            f"{u.changes.label}: {name}"
            for u in self._host.updaters.values()
            for name in u.names
            if id(u.changes.target(name)) not in held
        ]
        if own and left:
            raise ValueError(
                "The UpdateOptimizer that `configure_optimizers` returns should hold every"
                f" parameter that cells train. Found none that holds {left}: add them, or return"
                " no UpdateOptimizer, and the callback makes one."
            )
        if own and self._keys:
            raise ValueError(
                "Argument `input_keys` should be empty if the module has its own UpdateOptimizer:"
                " `training_step` has not returned anything yet when it steps that optimizer. Found"
                f" {[*self._keys.values()]}: return no UpdateOptimizer from"
                " `configure_optimizers`."
            )
        return own

    def detach(self) -> None:
        """Detaches the updaters and the hooks from the optimizers."""
        for optimizer in self.optimizers:
            optimizer.detach(self._host.updaters.values(), *self._hooks)
        self.optimizers, self._listed = [], []

    def batch_begins(self, trainer: pl.Trainer) -> None:
        """Finds the optimizers again if the Trainer has set up others, and notes the step count."""
        if trainer.optimizers is not self._listed:
            self.find(trainer)
        if self._counts:
            self._steps_before = trainer.global_step

    def count(self, trainer: pl.Trainer) -> None:
        """Counts a step of the Trainer, unless another callback has in this batch."""
        if self._counts and trainer.global_step == self._steps_before:
            count_steps(trainer, 1)


def optimizes_nothing(optimizer: Optimizer) -> bool:
    """Returns whether it stands in for none, as what Lightning makes for ``None`` does."""
    return not optimizer.param_groups  # torch rejects an optimizer without parameters


class NoOptimizer(Optimizer):
    """Runs the closure of automatic optimization, if ``configure_optimizers`` returned ``[]``."""

    def __init__(self) -> None:
        super().__init__([torch.zeros(1)], {})
        self.param_groups.clear()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Calls the closure."""
        return None if closure is None else closure()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads nothing."""


class BatchRecording:
    """Has a host record the first training step of each batch."""

    def __init__(self, host: CellHost) -> None:
        self.in_batch = self.due = False  # whether a batch runs; whether to record its next step
        self.switch = host.trainer.switch
        self.gate: StepGate | None = None
        self._host = host

    def begin_batch(self) -> None:
        """Has the next training step recorded."""
        self.in_batch = self.due = True

    def end_batch(self) -> None:
        """Has no training step recorded until the next batch begins."""
        self.in_batch = self.due = False

    def leave(self) -> None:
        """Deregisters from the gate; a batch that has not ended counts for nothing."""
        if self.in_batch:
            self._host.abandon_batch()
        self.end_batch()
        if self.gate is not None:
            self.gate.deregister(self)


class StepGate:
    """Wraps the training step and the optimizer step of a strategy, to record the former."""

    # All recordings of a run share one gate. The last recording that leaves restores the strategy.

    def __init__(self, trainer: pl.Trainer) -> None:
        self._trainer = trainer
        self._recordings: list[BatchRecording] = []
        self._training_step = trainer.strategy.training_step
        self._optimizer_step = trainer.strategy.optimizer_step

    @classmethod
    def on(cls, trainer: pl.Trainer) -> StepGate:
        """Returns the gate of a trainer's strategy, which gets one if it has none."""
        gate = getattr(trainer.strategy.training_step, "__self__", None)
        if not isinstance(gate, StepGate):
            gate = cls(trainer)
            replace_methods(trainer.strategy, gate.training_step, gate.optimizer_step)
        return gate

    def register(self, recording: BatchRecording) -> None:
        """Registers a recording, which follows each training step."""
        self._recordings.append(recording)
        recording.gate = self

    def deregister(self, recording: BatchRecording) -> None:
        """Deregisters a recording; the last one restores the strategy's methods."""
        self._recordings = [known for known in self._recordings if known is not recording]
        recording.gate = None
        if not self._recordings:
            restore_methods(self._trainer.strategy, self.training_step, self.optimizer_step)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the strategy's training step, and has it recorded."""
        for recording in self._recordings:
            recording.switch.on, recording.due = recording.due, False
        try:
            return self._training_step(*args, **kwargs)
        finally:
            for recording in self._recordings:
                recording.switch.on = False

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any
    ) -> Any:
        """Runs the strategy's optimizer step; only the first call of its closure is seen."""
        # An UpdateOptimizer bypasses the gradient scaler: it has no gradients, which the scaler
        # would reject, and updates are not scaled. Lightning also counts the steps of what stands
        # in for no optimizer, which are taken back: applied updates are counted instead.
        calls = itertools.count()

        def once() -> Any:
            with unobserved() if next(calls) else nullcontext():
                return closure()

        if isinstance(optimizer, UpdateOptimizer) and scales_gradients(self._trainer):
            model = model or self._trainer.lightning_module
            return Precision().optimizer_step(optimizer, model, once, **kwargs)
        result = self._optimizer_step(optimizer, once, model, **kwargs)
        if optimizes_nothing(optimizer):
            count_steps(self._trainer, -1)
        return result

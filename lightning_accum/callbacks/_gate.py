"""The gate: what a training step runs is recorded, once a batch, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.strategies import Strategy
from torch.optim import Optimizer

from lightning_accum.callbacks._host import CellHost
from lightning_accum.observe import unobserved
from lightning_accum.optim import UpdateOptimizer


class Recording:
    """Has a host record the first training step of each batch.

    Args:
        host: whose batches these are.
    """

    def __init__(self, host: CellHost) -> None:
        self.in_batch = False
        self.gate: StepGate | None = None
        self._host = host
        self._due = False

    def begin_batch(self) -> None:
        """The next training step is one of training."""
        self.in_batch = self._due = True

    def end_batch(self) -> None:
        """No training step is expected until the next batch begins."""
        self.in_batch = self._due = False

    def step_begins(self) -> None:
        """Opens the gate, for the first of what a closure may call several times in a batch."""
        if self._due:
            self._due = False
            self._host.trainer.recording = True

    def step_ends(self) -> None:
        """Closes the gate."""
        self._host.trainer.recording = False

    def leave(self) -> None:
        """Records nothing any more; a batch that has not ended counts for nothing."""
        if self.in_batch:
            self._host.abandon_batch()
        self.end_batch()
        if self.gate is not None:
            self.gate.let_out(self)


def only_forward(trainer: pl.Trainer) -> bool:
    """Whether an epoch only runs the model, as the last of StochasticWeightAveraging."""
    return bool(trainer.fit_loop._skip_backward)


class StepGate:
    """Stands on a strategy, in front of its training step and its optimizers' steps.

    There is one for all recordings of a run, and it goes with the last of them.

    Args:
        strategy: on which to stand.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._recordings: list[Recording] = []
        self._training_step = strategy.training_step
        self._optimizer_step = strategy.optimizer_step

    @classmethod
    def on(cls, strategy: Strategy) -> StepGate:
        """The gate of a strategy, put in place where there is none."""
        gate = getattr(strategy.training_step, "__self__", None)
        if not isinstance(gate, StepGate):
            gate = cls(strategy)
            strategy.training_step = gate.training_step  # type: ignore[method-assign]
            strategy.optimizer_step = gate.optimizer_step  # type: ignore[method-assign]
        return gate

    def let_in(self, recording: Recording) -> None:
        """Tells a recording of training steps from now on."""
        self._recordings.append(recording)
        recording.gate = self

    def let_out(self, recording: Recording) -> None:
        """Tells it no more; the last one gives the strategy its methods back."""
        self._recordings = [known for known in self._recordings if known is not recording]
        recording.gate = None
        if self._recordings:
            return
        for name in ("training_step", "optimizer_step"):
            if getattr(getattr(self._strategy, name), "__self__", None) is self:
                delattr(self._strategy, name)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """The strategy's, recorded."""
        for recording in self._recordings:
            recording.step_begins()
        try:
            return self._training_step(*args, **kwargs)
        finally:
            for recording in self._recordings:
                recording.step_ends()

    def optimizer_step(
        self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any
    ) -> Any:
        """The strategy's, of which only the closure's first call is recorded.

        A gradient scaler refuses an optimizer that has no gradients: updates are not scaled, and
        applied without it.
        """
        once = _Once(closure)
        precision = self._strategy.precision_plugin
        if isinstance(optimizer, UpdateOptimizer) and getattr(precision, "scaler", None):
            model = model or self._strategy.lightning_module
            return Precision.optimizer_step(precision, optimizer, model, once, **kwargs)
        return self._optimizer_step(optimizer, once, model, **kwargs)


class _Once:
    """A closure that is seen by monitors when it is called for the first time, and not again."""

    def __init__(self, closure: Callable[[], Any]) -> None:
        self._closure = closure
        self._calls = itertools.count()

    def __call__(self) -> Any:
        if next(self._calls) == 0:
            return self._closure()
        with unobserved():
            return self._closure()

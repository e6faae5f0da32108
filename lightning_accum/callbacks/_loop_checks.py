"""Checks what a cell trainer learns in a loop of the user, which does not say when it ends."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor, nn

from lightning_accum.callbacks._health import Health
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._logger import logger
from lightning_accum.callbacks._loss_watch import LossWatch
from lightning_accum.callbacks._rate_watch import RateWatch
from lightning_accum.callbacks._untrained import StillParameters
from lightning_accum.cells.input_watch import InputWatch

_PATIENCE = 100  # batches before the first check: the loop does not tell when an epoch ends
_IDLE = 8  # steps in a row without a batch, or batches without a step, before it warns
_EVERY = 16  # batches between errors whose sizes are kept
_FEW = 3  # fewer batches tell nothing


class LoopChecks:
    """Warns of what a loop does not learn: after some batches, and when it ends.

    Args:
        host: the host, whose cells are bound.
        module: the module that is trained.
    """

    def __init__(self, host: CellHost, module: nn.Module) -> None:
        self._host = host
        self._still = StillParameters(host, module)
        self._inputs, self._loss = InputWatch(), LossWatch()
        self._rates = RateWatch()
        self.health = Health(host, module, _PATIENCE, inputs=self._inputs, rates=self._rates)
        self.begun = False  # whether any batch has begun
        self._recorded = self._batches = 0  # batches, and those that were evaluated
        self._idle = self._unevaluated = 0  # idle: steps without a batch

    def batch_begins(self, unevaluated: bool) -> None:
        """Looks at the cells if it is time, and warns of batches that were not evaluated.

        Args:
            unevaluated: whether the batch before was not evaluated.
        """
        self.begun = True
        self.health.look_if_due((), "loop")
        self._unevaluated = self._unevaluated + 1 if unevaluated else 0
        if self._unevaluated == _IDLE:
            warnings.warn(
                f"A FabricCellTrainer should evaluate each batch before the next one. Found {_IDLE}"
                " that followed one without `step()` or `accumulate()`, so that all of them are one"
                " window: call `step()` after each batch, or `accumulate()` to step later.",
                RuntimeWarning,
                stacklevel=4,
            )

    def batch_ended(self) -> None:
        """Counts a batch that was recorded."""
        self._recorded += 1
        self._idle = 0
        self.health.batch_ended()

    def step_begins(self, scale: float = 0.0) -> None:
        """Notes the factor of an update, 0 of an export, and warns of steps without batches."""
        self._rates.note_scale(scale)
        self._idle += 1
        if self._idle == _IDLE:
            self._warn_of_idle(stacklevel=4)

    def note(self, inputs: Mapping[str, Any]) -> None:
        """Notes the inputs of a batch and, after some batches, looks for what does not change.

        Args:
            inputs: the inputs of the rule.
        """
        self._inputs.note(inputs)
        if not self._batches % _EVERY and isinstance(error := inputs.get("error"), Tensor):
            self._loss.note(error.detach().square().mean())
        self._batches += 1
        if self._batches == _PATIENCE:
            self._still.check()

    def end(self) -> None:
        """Warns of what was not learned, and logs minor findings; waits for the device."""
        lines = self.health.fit_ended((), "loop")
        self.health.drops.warn()
        if self._batches >= _FEW:
            self._still.check()
        rule = type(self._host.trainer).__name__
        if not self._recorded and _FEW <= self._idle < _IDLE:  # from then on it was said before
            self._warn_of_idle(stacklevel=5)
        for line in [*self._inputs.lines(self.health.unmoved), *self._loss.lines(rule)]:
            warnings.warn(line, RuntimeWarning, stacklevel=4)
        if lines:
            rank_zero_only(logger.info)("\n".join(["Local learning:", *lines]))

    def end_unreleased(self) -> None:
        """Does the same for a loop that was left without `release()`, if its cells still exist."""
        begun = max(self._recorded, self._idle) >= _FEW
        if begun and not self._host.trainer.registry.gone:
            self.end()

    def _warn_of_idle(self, stacklevel: int) -> None:
        if self._host.trainer.recording:
            found = "inside one `with learner.batch():`, of which the first ends the batch"
            mend = "write one `with` for each batch, and call `step()` after it"
        else:
            found, mend = "without one", "run the module inside `with learner.batch():`"
        warnings.warn(
            f"A FabricCellTrainer should record a batch before it steps. Found {self._idle} steps"
            f" {found}: {mend}.",
            RuntimeWarning,
            stacklevel=stacklevel,
        )

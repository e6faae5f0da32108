"""A batch whose parts are applied one by one: traces should pass over no reset of the neuron."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from callback_helpers import Net, callback, loader, trainer

from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.optim import UpdateOptimizer

WORDS = "Found that traces do, and its neuron, a `LIF`, reset in each: call `clear()` on the rule"


class InParts(Net):
    """Runs twice in each training step, and may step its optimizer after each."""

    def __init__(self, last: bool, clears: bool) -> None:
        super().__init__()
        self.last, self.clears = last, clears

    def training_step(self, batch: Any, batch_idx: int) -> None:
        (own,) = (c for c in self.trainer.callbacks if isinstance(c, CellTrainerCallback))
        self(batch[0])
        self.optimizers().step()
        if self.clears:
            own.cell_trainer.clear()
        self(batch[0])
        if self.last:
            self.optimizers().step()

    def configure_optimizers(self) -> Any:
        return UpdateOptimizer(self.parameters())


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("clears", [False, True])
def test_two_passes(last: bool, clears: bool, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer(tmp_path, callback()).fit(InParts(last, clears), loader(4))
    assert [WORDS in str(each.message) for each in found if each.category is RuntimeWarning] == [
        True
    ] * (not clears)

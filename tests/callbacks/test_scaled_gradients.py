"""A gradient scaler, and rules that read gradients or give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import trainer
from torch import nn
from torch.utils.data import DataLoader

import lightning_accum as la
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import SurrogateLIF


class Net(pl.LightningModule):
    """One hidden layer and a readout under backprop."""

    def __init__(self, as_gradients: bool) -> None:
        super().__init__()
        self.automatic_optimization = not as_gradients
        self.fc, self.readout = nn.Linear(4, 3), nn.Linear(3, 2)
        self.lif = SurrogateLIF(3, gradient="none" if as_gradients else "step", time_dim=0)

    def training_step(self, batch: Any, index: int) -> Any:
        self.lif.reset()
        loss = self.readout(self.lif(self.fc(batch.transpose(0, 1)))).square().mean()
        if self.automatic_optimization:
            return loss
        self.optimizers().zero_grad()
        self.manual_backward(loss)
        (learner,) = self.trainer.callbacks[:1]
        learner.updates_as_gradients()
        return None

    def configure_optimizers(self) -> Any:
        parameters = self.readout.parameters() if self.automatic_optimization else self.parameters()
        return torch.optim.SGD(parameters, 0.1)


@pytest.mark.parametrize(
    ("as_gradients", "error", "message"),
    [
        (False, ValueError, "`precision`.*`OTTT`.*'bf16-mixed'"),
        (True, RuntimeError, "without a gradient scaler.*'bf16-mixed'"),
    ],
)
def test_a_scaler_is_refused(
    as_gradients: bool, error: type[Exception], message: str, tmp_path: Path
) -> None:
    rule = la.STDP(0.1, -0.1, time_dim=0) if as_gradients else la.OTTT(0.1, time_dim=0)
    learns = CellTrainerCallback(rule, {"hidden": la.CellSpec("fc", "lif")})
    scaled = pl.plugins.MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
    data = (torch.rand(8, 5, 4) < 0.5).float()
    with pytest.raises(error, match=message):
        trainer(tmp_path, learns, plugins=[scaled]).fit(
            Net(as_gradients), DataLoader(data, batch_size=4)
        )


def test_a_rule_that_carries_nothing_is_not_told_to_carry() -> None:
    with pytest.raises(ValueError, match=r"`carry` should be False for a `STDP`"):
        CellTrainerCallback(la.STDP(0.1, -0.1, carry=False), carry=True)

"""A loss that rises under a rule that follows its error has a line in the summary."""

from __future__ import annotations

import logging
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lightning_accum as la
from lightning_accum import CellSpec
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.callbacks._loss_watch import LossWatch
from lightning_accum.nn import SurrogateLIF


class Net(pl.LightningModule):
    """Neurons whose rate should be a tenth."""

    def __init__(self, sign: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = False
        self.sign = sign
        self.fc = nn.Linear(5, 4, bias=False)
        nn.init.uniform_(self.fc.weight, 0.0, 0.3)
        self.lif = SurrogateLIF(4, time_dim=0)

    def training_step(self, batch: Tensor, batch_idx: int) -> dict[str, Tensor]:
        self.lif.reset()
        off = self.lif(self.fc(batch)).mean(0) - 0.1
        return {"error": self.sign * off, "loss": off.square().mean()}

    def configure_optimizers(self) -> None:
        return None


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_an_error_with_the_wrong_sign(sign: float, caplog: pytest.LogCaptureFixture) -> None:
    cells = {"hidden": CellSpec("fc", "lif")}
    learner = CellTrainerCallback(la.EProp(0.01, time_dim=0), cells, input_keys=("error",))
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[learner],
        log_every_n_steps=1,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    data = (torch.rand(40, 10, 8, 5, generator=generator) < 0.5).float()
    with caplog.at_level(logging.INFO):
        trainer.fit(Net(sign), DataLoader(data, batch_size=None))  # type: ignore[arg-type]
    assert ("The loss rose while `EProp` followed its error" in caplog.text) == (sign < 0)


def lines(losses: Any) -> list[str]:
    watch = LossWatch()
    for loss in losses:
        watch.note({"loss": loss})
    return watch.lines("EProp")


def test_losses_that_do_not_clearly_rise() -> None:
    generator = torch.Generator().manual_seed(0)
    assert not lines(2.0 + torch.randn(100, generator=generator) * 0.5)  # noise
    assert not lines(torch.linspace(1.0, 1.05, 100))  # by less than a tenth
    assert not lines(torch.linspace(1.0, 5.0, 15))  # too few
    assert not lines([torch.tensor([1.0, 2.0])] * 50 + [None] * 50)  # not losses
    assert not lines(torch.cat([torch.linspace(1, 5, 50), torch.linspace(5, 1, 50)]))
    assert lines(torch.linspace(1.0, 5.0, 16))

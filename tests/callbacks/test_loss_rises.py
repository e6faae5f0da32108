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


class Readout(pl.LightningModule):
    """A linear layer that should give the targets; its error has a sign."""

    def __init__(self, sign: float, logs: bool, ends: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = False
        self.sign, self.logs, self.ends = sign, logs, ends
        self.fc = nn.Linear(5, 4, bias=False)
        self.out = nn.Identity()
        self.learner: Any = None

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        x, target = batch
        off = self.out(self.fc(x)) - target
        loss = off.square().mean()
        if self.logs:
            self.log("train_loss", loss)
        if self.ends:
            self.learner.updates_as_gradients(error=self.sign * off)
            self.optimizers().step()
            self.optimizers().zero_grad()
        return {"error": self.sign * off, **({} if self.logs else {"loss": loss})}

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.fc.parameters(), lr=1.0) if self.ends else None


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize(("logs", "ends"), [(False, False), (True, False), (False, True)])
def test_a_readout_whose_error_has_the_wrong_sign(
    sign: float, logs: bool, ends: bool, caplog: pytest.LogCaptureFixture
) -> None:
    net = Readout(sign, logs, ends)
    rule = la.DeltaRule(0.05, graded_input=True)
    keys = () if ends else ("error",)
    net.learner = CellTrainerCallback(rule, {"readout": CellSpec("fc", "out")}, input_keys=keys)
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[net.learner],
        log_every_n_steps=1,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(40, 8, 5, generator=generator)
    data = list(zip(x, x[..., :4].flip(-1), strict=True))
    with caplog.at_level(logging.INFO):
        trainer.fit(net, DataLoader(data, batch_size=None))  # type: ignore[arg-type]
    assert ("The loss rose while `DeltaRule` followed its error" in caplog.text) == (sign < 0)


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

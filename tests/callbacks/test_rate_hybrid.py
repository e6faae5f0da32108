"""A plain rectified network: one layer by a rate rule, the next by backpropagation."""

from __future__ import annotations

import lightning.pytorch as pl
import torch
from callback_helpers import trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import CellSpec, SoftHebb
from lightning_accum.callbacks import CellTrainerCallback

LR, TEMPERATURE = 0.2, 0.5


class Hybrid(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.features = nn.Linear(6, 4, bias=False).requires_grad_(False)
        self.drive = nn.Identity()
        self.readout = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        scores = self.readout(self.drive(self.features(batch[0])))
        return nn.functional.cross_entropy(scores, batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.readout.parameters(), lr=0.5)


def test_each_layer_learns_by_its_own_rule(tmp_path):
    data = torch.randn(40, 6, generator=torch.Generator().manual_seed(1))
    labels = (data[:, 0] > 0).long()
    model, by_hand = Hybrid(), Hybrid()
    optimizer = by_hand.configure_optimizers()
    for x, y in zip(data.split(8), labels.split(8), strict=True):
        optimizer.zero_grad()
        by_hand.training_step([x, y], 0).backward()
        optimizer.step()
        with torch.no_grad():
            weight = by_hand.features.weight
            drive = x @ weight.T
            share = (drive / TEMPERATURE).softmax(1)
            change = share.T @ x - (share * drive).sum(0)[:, None] * weight
            weight += LR * change / len(x)
    rule = SoftHebb(LR, TEMPERATURE)
    run = trainer(tmp_path, CellTrainerCallback(rule, {"input": CellSpec("features", "drive")}))
    run.fit(model, DataLoader(TensorDataset(data, labels), batch_size=8))
    assert run.global_step == 5
    assert not torch.equal(model.features.weight, Hybrid().features.weight)
    for one, other in zip(model.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(one, other)

"""Neurons with thresholds of their own in one of several processes: `python ... RANK RANKS ...`."""

import lightning.pytorch as pl
import torch
from run_ranks import share, trainer
from torch import nn
from torch.utils.data import DataLoader

import lightning_accum as la
from lightning_accum.callbacks import AverageBuffers, CellTrainerCallback
from lightning_accum.nn import AdaptiveLIF, RewardBaseline


class Model(pl.LightningModule):
    def __init__(self, steps, wrapped):
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = False
        self.steps = steps
        self.fc = nn.Linear(5, 4, bias=False).requires_grad_(wrapped)
        nn.init.uniform_(self.fc.weight, 0.0, 1.0)
        self.lif = AdaptiveLIF(4, tc_mem=5.0, v_threshold=0.6, theta_plus=0.2, time_dim=0)
        self.register_buffer("seen", torch.zeros(2, 1))
        self.baseline = RewardBaseline(0.9, contexts=2)
        self.errors = []
        self.double()

    def training_step(self, batch, batch_idx):
        self.lif.reset()
        self.lif(self.fc(batch[: self.steps]))
        self.seen[1] += batch.sum()
        reward = batch.mean((0, 2))
        self.errors.append(self.baseline(reward, (reward > 0.4).long()))

    def configure_optimizers(self):
        return None


def fit(rank, ranks, steps, names, wrapped):
    model = Model(steps, wrapped)
    rule = la.STDP(0.06, -0.04, time_dim=0)
    generator = torch.Generator().manual_seed(0)
    data = (torch.rand(6, 5, 8, 5, generator=generator) < 0.4).double()
    mine = data[:, :, torch.arange(8).tensor_split(ranks)[rank]]
    learns = CellTrainerCallback(rule, cells={"enc": la.CellSpec("fc", "lif")})
    run = trainer(ranks, learns, AverageBuffers(names), epochs=1)
    run.fit(model, DataLoader(mine, batch_size=None))
    return {
        "theta": model.lif.theta,
        "seen": model.seen,
        "weight": model.fc.weight.detach(),
        "expected": model.baseline.mean,
        "errors": torch.stack(model.errors),
    }


RUNS = {
    "one step a batch": (1, ["lif.theta", "seen"], False),
    "one step a batch, wrapped": (1, ["lif.theta", "seen"], True),
    "five steps a batch": (5, ["lif.theta"], False),
    "each its own": (5, [], False),
}


def main(rank, ranks, folder):
    return {name: fit(rank, ranks, *options) for name, options in RUNS.items()}


if __name__ == "__main__":
    share(main)

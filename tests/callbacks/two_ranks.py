"""A fit that two processes share, or one has to itself: `python two_ranks.py RANKS FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from callback_helpers import Net, callback, spikes, trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum.callbacks import LocalDDPStrategy, OnlineProbe, UpdateMonitor


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.enc = nn.Linear(3, 2, dtype=torch.float64)
        with torch.no_grad():
            for i, param in enumerate(self.parameters()):
                param.copy_(torch.arange(1.0, 1 + param.numel()).reshape(param.shape) / (3 + i))

    def training_step(self, x: Tensor, batch_idx: int) -> Any:
        return self.enc(x).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Local(Net):
    """Learns by a local rule; its neurons fire more for some samples than for others."""

    def __init__(self) -> None:
        super().__init__()
        self.fc.requires_grad_(False)


def local(ranks: int, folder: Path) -> dict[str, Tensor]:
    """What a callback logs of a fit by a local rule."""
    options: dict[str, Any] = {
        "devices": ranks,
        "strategy": LocalDDPStrategy() if ranks > 1 else "auto",
        "use_distributed_sampler": False,
    }
    probe = OnlineProbe(
        "lif", 2, time_dim=0, labels=lambda batch: (batch[0].sum((1, 2)) > 17).long()
    )
    run = trainer(folder, callback(), probe, log_every_n_steps=1, max_epochs=3, **options)
    samples = spikes(12)
    if ranks > 1:  # of each batch of four, one sample and three
        own = slice(0, 1) if run.global_rank == 0 else slice(1, 4)
        batches = [[batch[own]] for batch in samples.split(4)]
    else:
        batches = [[batch] for batch in samples.split(4)]
    run.fit(Local(), DataLoader(batches, batch_size=None))
    return dict(run.callback_metrics)


def main(ranks: int, folder: Path) -> None:
    samples = torch.randn(16, 3, generator=torch.Generator().manual_seed(0)).double()
    options: dict[str, Any] = {
        "devices": ranks,
        "strategy": "ddp" if ranks > 1 else "auto",
        "use_distributed_sampler": False,
    }
    run = trainer(folder, UpdateMonitor("parameter"), log_every_n_steps=2, max_epochs=1, **options)
    if ranks > 1:  # two samples of each batch of four
        samples = samples.reshape(4, 2, 2, 3)[:, run.global_rank].reshape(8, 3)
    data = DataLoader(samples, batch_size=4 // ranks)
    run.fit(Model(), data)
    found = {"monitored": dict(run.callback_metrics), "local": local(ranks, folder)}
    torch.save(found, folder / f"{ranks}-{run.global_rank}.pt")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
    dist.barrier()
    # Beside gloo's threads an exit now and then aborts.
    os._exit(0)

"""What callbacks log of a fit: `python logged_run.py RANK RANKS PORT FOLDER`."""

import lightning.pytorch as pl
import torch
from callback_helpers import Net, callback, spikes
from run_ranks import share, trainer
from torch import nn
from torch.utils.data import DataLoader

from lightning_accum.callbacks import OnlineProbe, UpdateMonitor


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(3, 2, dtype=torch.float64)
        with torch.no_grad():
            for i, param in enumerate(self.parameters()):
                param.copy_(torch.arange(1.0, 1 + param.numel()).reshape(param.shape) / (3 + i))

    def training_step(self, x, batch_idx):
        return self.enc(x).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Local(Net):
    """Learns by a local rule; its neurons fire more for some samples than for others."""

    def __init__(self):
        super().__init__()
        self.fc.requires_grad_(False)


def local(rank, ranks):
    """What a callback and a probe log of a fit by a local rule, of one sample and three."""
    probe = OnlineProbe(
        "lif", 2, time_dim=0, labels=lambda batch: (batch[0].sum((1, 2)) > 17).long()
    )
    own = slice(0, 4) if ranks == 1 else slice(0, 1) if rank == 0 else slice(1, 4)
    batches = [[batch[own]] for batch in spikes(12).split(4)]
    run = trainer(ranks, callback(), probe, epochs=3)
    run.fit(Local(), DataLoader(batches, batch_size=None))
    return dict(run.callback_metrics)


def monitored(rank, ranks):
    """What a monitor logs of gradients, of two samples of each batch of four."""
    samples = torch.randn(4, ranks, 4 // ranks, 3, generator=torch.Generator().manual_seed(0))
    options = {"strategy": "ddp"} if ranks > 1 else {}
    monitor = UpdateMonitor("parameter")
    run = trainer(ranks, monitor, epochs=1, log_every_n_steps=2, **options)
    run.fit(Model(), DataLoader(list(samples[:, rank].double()), batch_size=None))
    return dict(run.callback_metrics)


def main(rank, ranks, folder):
    return {"monitored": monitored(rank, ranks), "local": local(rank, ranks)}


if __name__ == "__main__":
    share(main)

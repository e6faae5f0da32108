"""Fits that stop and go on, in one of several processes: `python resume_run.py RANK RANKS PORT
FOLDER`."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from run_ranks import join, leave, resuming, trainer
from torch import Tensor, nn

import lightning_accum as la
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.metrics import MaxRateClassifier
from lightning_accum.nn import LIF, AdaptiveLIF, PoissonEncoder

INPUTS, OUTPUTS, BATCH, BATCHES = 6, 5, 4, 7
STOP = 4  # one batch into a group of three


class Pieces:
    """Images and labels of one process, which go on where they stopped."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.images = torch.rand(BATCHES, BATCH, INPUTS, generator=torch.Generator().manual_seed(1))
        self.mine = torch.arange(BATCH).tensor_split(ranks)[rank]
        self.done = 0

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for i in range(self.done, BATCHES):
            self.done = (i + 1) % BATCHES
            yield self.images[i, self.mine], self.mine % 3

    def state_dict(self) -> dict[str, int]:
        return {"done": self.done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.done = state["done"]


class Model(pl.LightningModule):
    """With noise, everything that a process has of its own; without, the same in any number."""

    def __init__(self, noise: int | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = False
        self.encoder = PoissonEncoder(steps=8, max_rate=400.0, seed=0 if noise is None else noise)
        self.noise = noise is not None
        self.fc = nn.Linear(INPUTS, OUTPUTS, bias=False).requires_grad_(False)
        nn.init.uniform_(self.fc.weight, 0.0, 1.0)
        self.lif = (
            AdaptiveLIF(OUTPUTS, v_threshold=0.6, theta_plus=0.1, time_dim=0)
            if self.noise
            else LIF(OUTPUTS, v_threshold=0.6, time_dim=0)
        )
        self.readout = MaxRateClassifier(OUTPUTS, 3)
        self.double()

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, labels = batch
        spikes = self.encoder(images) if self.noise else images.expand(8, -1, -1) > 0.5
        if not self.noise:
            self.lif.reset()
        out = self.lif(self.fc(spikes.double()))
        self.readout.update(out.mean(0), labels)

    def configure_optimizers(self) -> None:
        return None


class Saver(pl.Callback):
    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.fit_loop.epoch_loop.total_batch_idx + 1 == STOP:
            trainer.save_checkpoint(self.path)


def fit(path: Path, rank: int, ranks: int, resume: bool, noise: bool) -> dict[str, Any]:
    """What a process ends with: all of its model, and what its callback keeps."""
    model = Model(10 + rank if noise else None)
    how = "mean" if noise else "sum"
    callback = CellTrainerCallback(
        la.STDP(0.03, -0.02, time_dim=0, batch_reduction=how),
        cells={"enc": la.CellSpec("fc", "lif")},
        apply_every_n_batches=3,
        carry=noise,
    )
    run = trainer(ranks, callback, *([] if resume else [Saver(path)]))
    run.fit(model, Pieces(rank, ranks), **resuming(path if resume else None))
    return {"model": dict(model.state_dict()), "callback": callback.state_dict()}


def main(rank: int, ranks: int, folder: Path) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    own, alone = folder / f"own of {ranks}.ckpt", folder / "alone.ckpt"
    found["whole"] = fit(own, rank, ranks, resume=False, noise=True)
    found["resumed"] = fit(own, rank, ranks, resume=True, noise=True)
    if ranks == 1:
        found["of one"] = fit(alone, rank, ranks, resume=False, noise=False)
    else:
        found["of one"] = fit(alone, rank, ranks, resume=True, noise=False)
    torch.save(found, folder / f"{rank} of {ranks}.pt")


if __name__ == "__main__":
    own_rank, of, port = map(int, sys.argv[1:4])
    join(own_rank, of, port)
    main(own_rank, of, Path(sys.argv[4]))
    leave()

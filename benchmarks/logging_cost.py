"""What statistics cost a batch of the demo's network, beside the same without them.

A real Trainer with a TensorBoard logger; CPU time of the process on one thread, for each batch of a
fit. The settings take turns in short fits, so that a busy machine slows all of them alike.

    python benchmarks/logging_cost.py [--smoke]
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch
from _measure import setting, table
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum import STDP, CellSpec, Clamp, Normalize, attach_updater
from lightning_accum.callbacks import CellTrainerCallback, UpdateMonitor
from lightning_accum.nn import AdaptiveLIF, PoissonEncoder, WinnerTakeAll

Callbacks = Callable[[], list[pl.Callback]]


class Network(pl.LightningModule):
    """The demo's: 64 inputs, 100 neurons that compete, 100 steps."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = False
        self.encoder = PoissonEncoder(100, max_rate=1000.0, seed=0)
        self.fc = nn.Linear(64, 100, bias=False)
        self.lif = AdaptiveLIF(
            100, tc_mem=100.0, v_threshold=10.0, theta_plus=0.2, time_dim=0,
            inhibition=WinnerTakeAll(steps=0),
        )  # fmt: skip
        keep = Normalize(norm=1.0, order=2)
        keep(nn.init.uniform_(self.fc.weight))
        updater = attach_updater(self.fc, "weight")
        updater.register_constraint(Clamp(min=0.0))
        updater.register_constraint(keep)

    def training_step(self, images: Tensor, batch_idx: int) -> None:
        self.lif.reset()
        self.lif(self.fc(self.encoder(images).float()))

    def configure_optimizers(self) -> None:
        return None


class Clock(pl.Callback):
    """CPU time at the end of every batch, when all other callbacks have run."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_batch_start(self, *_: Any) -> None:
        if not self.times:
            self.times.append(time.process_time())

    def on_train_batch_end(self, *_: Any) -> None:
        self.times.append(time.process_time())


def rule(log: bool) -> CellTrainerCallback:
    stdp = STDP(lr_post=0.04, lr_pre=-0.012, time_dim=0)
    return CellTrainerCallback(stdp, {"input": CellSpec("fc", "lif")}, log=log)


# name: callbacks, batches from one logging step to the next
SETTINGS: dict[str, tuple[Callbacks, int]] = {
    "no callback at all": (list, 50),
    "the rule, no statistics": (lambda: [rule(False)], 50),
    "statistics every 50 batches": (lambda: [rule(True)], 50),
    "statistics in every batch": (lambda: [rule(True)], 1),
    "UpdateMonitor too, every 50 batches": (lambda: [rule(True), UpdateMonitor()], 50),
}


def fit(callbacks: list[pl.Callback], every: int, batches: int, folder: str) -> float:
    """Milliseconds of a batch, the mean over a fit."""
    clock = Clock()
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=TensorBoardLogger(folder),
        log_every_n_steps=every,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        callbacks=[*callbacks, clock],
    )
    images = torch.rand(batches, 16, 64, generator=torch.Generator().manual_seed(1)) ** 3
    trainer.fit(Network(), DataLoader(images, batch_size=None))
    return 1e3 * (clock.times[-1] - clock.times[0]) / batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="few batches, just to see it run")
    args = parser.parse_args()
    rounds, batches = (1, 5) if args.smoke else (9, 150)
    torch.set_num_threads(1)
    for name in ("lightning.pytorch", "lightning_accum.callbacks"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    times: dict[str, list[float]] = {name: [] for name in SETTINGS}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds + 1):
            for name, (make, every) in SETTINGS.items():
                elapsed = fit(make(), every, batches, folder)
                if turn:  # the first turn warms up
                    times[name].append(elapsed)
    base = times["the rule, no statistics"]
    print(f"{setting('lightning')}; {batches} batches a fit, {rounds} fits\n")
    rows = []
    for name, found in times.items():
        more = statistics.median(one / other - 1 for one, other in zip(found, base, strict=True))
        rows.append([name, f"{statistics.median(found):.3f}", f"{more:+.1%}"])
    table(["setting", "ms a batch", "beyond the rule"], rows)


if __name__ == "__main__":
    main()

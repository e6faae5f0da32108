"""What statistics cost a batch of the demo's network, compared with the same without them.

Processor time for each batch of a Trainer with a TensorBoard logger, on one thread, in short
interleaved fits. Two settings log as many scalars that exist already, by Lightning's ``log_dict``
and straight to the logger: the latter is the least that a logging step costs.

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
from _measure import goal, setting, table
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum import STDP, CellSpec, Clamp, Normalize, attach_updater
from lightning_accum.callbacks import CellTrainerCallback, UpdateMonitor
from lightning_accum.nn import AdaptiveLIF, PoissonEncoder, WinnerTakeAll

SCALARS = 14  # of a cell: 11 statistics of its update, its rate of learning, 2 of its activity
Callbacks = Callable[[], list[pl.Callback]]
Times = list[tuple[float, float]]  # of the process, and of the main thread
BAR = 1.0  # ms


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
    """CPU time from the first batch to the end of the last, when all other callbacks have run."""

    def __init__(self) -> None:
        self.began: tuple[float, float] | None = None
        self.ended = (0.0, 0.0)

    def on_train_batch_start(self, *_: Any) -> None:
        self.began = self.began or now()

    def on_train_batch_end(self, *_: Any) -> None:
        self.ended = now()


def now() -> tuple[float, float]:
    """CPU time of the process, and of this thread."""
    return time.process_time(), time.thread_time()


class Scalars(pl.Callback):
    """Logs as many scalars as the statistics of a cell have, by one call."""

    def __init__(self, straight: bool) -> None:
        self.straight = straight
        self.tensors = {f"plain/{i}": torch.tensor(float(i)) for i in range(SCALARS)}
        self.numbers = {name: float(value) for name, value in self.tensors.items()}

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any
    ) -> None:
        if self.straight:
            assert trainer.logger is not None
            trainer.logger.log_metrics(self.numbers, step=trainer.fit_loop.total_batch_idx)
        else:
            pl_module.log_dict(self.tensors, on_step=True, on_epoch=False, batch_size=1)


def rule(log: bool) -> CellTrainerCallback:
    stdp, cells = STDP(lr_post=0.04, lr_pre=-0.012), {"input": CellSpec("fc", "lif")}
    return CellTrainerCallback(stdp, cells, time_dim=0, log=log)


# name: callbacks, batches from one logging step to the next
SETTINGS: dict[str, tuple[Callbacks, int]] = {
    "no callback at all": (list, 50),
    "the rule, no statistics": (lambda: [rule(False)], 50),
    "statistics every 50 batches": (lambda: [rule(True)], 50),
    "statistics in every batch": (lambda: [rule(True)], 1),
    "as many scalars by `log_dict`": (lambda: [rule(False), Scalars(straight=False)], 1),
    "as many straight to the logger": (lambda: [rule(False), Scalars(straight=True)], 50),
    "UpdateMonitor too, every 50 batches": (lambda: [rule(True), UpdateMonitor()], 50),
}


def fit(callbacks: list[pl.Callback], every: int, batches: int, folder: str) -> tuple[float, float]:
    """Milliseconds of a batch, of the process and of the main thread, the means over a fit."""
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
    assert clock.began is not None
    process, thread = (
        1e3 * (b - a) / batches for a, b in zip(clock.began, clock.ended, strict=True)
    )
    return process, thread


def beyond(found: Times, base: Times) -> tuple[float, float]:
    """The median, over turns, of how much more one setting takes than another, in ms a batch."""
    pairs = list(zip(found, base, strict=True))
    process, thread = (statistics.median(a[i] - b[i] for a, b in pairs) for i in range(2))
    return process, thread


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="few batches, just to see it run")
    args = parser.parse_args()
    rounds, batches = (1, 5) if args.smoke else (9, 150)
    torch.set_num_threads(1)
    for name in ("lightning.pytorch", "lightning_accum.callbacks"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    times: dict[str, Times] = {name: [] for name in SETTINGS}
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
        process, thread = (statistics.median(each) for each in zip(*found, strict=True))
        more = statistics.median(a[0] / b[0] - 1 for a, b in zip(found, base, strict=True))
        rows.append([name, f"{process:.3f}", f"{thread:.3f}", f"{more:+.1%}"])
    table(["setting", "ms a batch", "in the main thread", "beyond the rule"], rows)
    step = beyond(times["statistics in every batch"], base)
    plain = beyond(times["as many scalars by `log_dict`"], base)
    direct = beyond(times["as many straight to the logger"], base)
    print(f"\nA logging step beyond a plain one: {step[0]:.2f} ms, {step[1]:.2f}"
          f" in the main thread.\nOf it, the logger takes {direct[0]:.2f} and {direct[1]:.2f} for"
          f" {SCALARS} scalars. All of them by Lightning's `log_dict` take {plain[0]:.2f} and"
          f" {plain[1]:.2f}.")  # fmt: skip
    goal(f"A logging step beyond a plain one: {step[0]:.2f} ms of {BAR:g} at most")


if __name__ == "__main__":
    main()

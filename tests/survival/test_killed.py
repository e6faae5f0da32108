"""Killed at any moment and resumed from its newest checkpoint, a run ends with every bit."""

import logging
import multiprocessing
import os
import random
import signal
import sys
import time
import warnings
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
from _forked import Forked
from callback_helpers import Resumable, trainer
from lightning.pytorch.callbacks import OnExceptionCheckpoint
from round_trips import differences
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import BCM, STDP, CellSpec, attach_updater
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.metrics import MaxRateClassifier
from lightning_accum.nn import AdaptiveLIF, PoissonEncoder

BATCHES, BATCH, INPUTS, NEURONS, EPOCHS = 7, 4, 9, 6, 4
CUTS = int(os.environ.get("LIGHTNING_ACCUM_CUTS", "4"))


class Model(pl.LightningModule):
    """Noise, thresholds that adapt, two rules, a backprop head, and a readout without gradient."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = PoissonEncoder(steps=12, max_rate=300.0, seed=5)
        self.fc = nn.Linear(INPUTS, NEURONS, bias=False).requires_grad_(False)
        nn.init.uniform_(self.fc.weight, 0.2, 0.8)
        self.lif = AdaptiveLIF(NEURONS, v_threshold=0.8, theta_plus=0.05, time_dim=0)
        self.rates = nn.Linear(NEURONS, NEURONS).requires_grad_(False)
        self.relu = nn.ReLU()
        self.head = nn.Linear(NEURONS, 3)
        self.readout = MaxRateClassifier(NEURONS, 3)
        attach_updater(self.fc, "weight").weight.fullbound("power", 1.0, 0.0, power=1.0)

    def training_step(self, batch, batch_idx):
        time.sleep(0.01)  # so that moments within a batch are hit as well
        spikes = self.lif(self.fc(self.encoder(batch[0]).float()))
        rates = spikes.mean(0)
        self.readout.update(rates.detach(), batch[1])
        return nn.functional.cross_entropy(self.head(self.relu(self.rates(rates))), batch[1])

    def validation_step(self, batch, batch_idx):
        time.sleep(0.004)
        self.relu(self.rates(batch[0][:, :NEURONS]))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.head.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.9)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Saver(pl.Callback):
    """Saves after every batch; a kill within leaves the checkpoint before.

    But an epoch's last: a run that begins there, is saved in the middle of the next epoch and is
    resumed once more, gets an epoch too many from Lightning 2.6, whatever callbacks it has.
    """

    def __init__(self, folder):
        self.folder = folder

    def on_train_batch_end(self, trainer, *_):
        if trainer.is_last_batch:
            return
        count = trainer.fit_loop.epoch_loop.total_batch_idx + 1
        trainer.save_checkpoint(self.folder / "unfinished")
        os.replace(self.folder / "unfinished", self.folder / f"{count:04}.ckpt")


def fit(folder, how):
    """One life: from the newest checkpoint to the end, if nothing comes in between."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(BATCHES * BATCH, INPUTS, generator=generator)
    data = TensorDataset(images, torch.arange(len(images)) % 3)
    common = {"cells": {"enc": CellSpec("fc", "lif")}, "apply_every_n_batches": 3, "carry": True}
    run = trainer(
        folder, CellTrainerCallback(STDP(0.05, -0.03), **common, time_dim=0),
        CellTrainerCallback(BCM(0.01, 20.0), {"rates": CellSpec("rates", "relu")}),
        Saver(folder) if how == "KILL" else OnExceptionCheckpoint(folder, "stopped"),
        max_epochs=EPOCHS, enable_checkpointing=how != "KILL", num_sanity_val_steps=0,
    )  # fmt: skip
    *_, newest = None, *sorted(folder.glob("*.ckpt"))
    loaders = Resumable(data, batch_size=BATCH), DataLoader(data, batch_size=BATCH)
    run.fit(Model(), *loaders, ckpt_path=newest)
    run.save_checkpoint(folder / "end")


def child(folder, how):
    torch.set_num_threads(1)
    fit(folder, how)
    os._exit(0)


def lives(folder, kills, how, seed):
    """Runs until a life is not cut short any more; how many were."""
    rng = random.Random(seed)
    context = multiprocessing.get_context("fork")  # everything is imported already
    (folder).mkdir()
    cut = 0
    while True:
        process = context.Process(target=child, args=(folder, how))
        process.start()
        if cut < kills:
            process.join(rng.uniform(0.1, 0.6))
        else:
            process.join()
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL if how == "KILL" else signal.SIGTERM)
            process.join()
            cut += 1
        elif (folder / "end").exists():
            return cut
        elif process.exitcode not in (0, 1, -signal.SIGTERM):
            raise RuntimeError(f"A life ended by itself, with {process.exitcode}.")


@pytest.mark.parametrize("how", ["KILL", "TERM"])
def test_it_ends_with_every_bit_of_a_run_left_alone(how, tmp_path):
    done = Forked(__file__, [tmp_path, CUTS, how]).wait()
    assert done.returncode == 0, done.stderr
    assert f"{CUTS} cuts" in done.stdout
    whole = torch.load(tmp_path / "whole" / "end", weights_only=True)
    parts = ("state_dict", "optimizer_states", "lr_schedulers", "global_step")
    ours = [key for key in whole["callbacks"] if key.startswith("CellTrainerCallback")]
    assert len(ours) == 2
    assert whole["global_step"] > 0
    for cut in tmp_path.glob("cut *"):
        end = torch.load(cut / "end", weights_only=True)
        for state, keys in ((whole, end), parts), ((whole["callbacks"], end["callbacks"]), ours):
            assert not differences(*({key: each[key] for key in keys} for each in state))


if __name__ == "__main__":
    root, kills, how = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    lives(root / "whole", 0, "KILL", 0)
    total = runs = 0
    while total < kills:
        total += lives(root / f"cut {runs}", min(4, kills - total), how, runs)
        runs += 1
    print(f"{total} cuts in {runs} runs")

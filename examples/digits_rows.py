"""A recurrent spiking network reads handwritten digits row by row, and learns by e-prop.

Each of the eight rows of an image drives the network for four steps, through eight inputs, and the
answer counts while the last row is shown. So the network has to keep in its spikes, potentials and
thresholds what it has seen of the rows before. The error reaches the neurons by the readout's own
weights or by fixed random ones; no graph is kept. The same network also learns by backpropagation
through time. The control is the network as it is at first, its input at the scale that suits it
best, with a linear readout that is fitted until it converges.

    python examples/digits_rows.py [--picture digits_rows.png] [--short]
"""

from __future__ import annotations

import lightning.pytorch as pl
import torch
from _data import Split, load_digits_split
from _experiment import arguments, report
from _quiet import SILENT
from _row_comparison import CLASSES, ROWS, STEPS, compare, draw
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import CellSpec, DeltaRule, EProp
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.functional import trace
from lightning_accum.nn import LeakyIntegrator, SurrogateLIF
from lightning_accum.rules import RandomFeedback, SymmetricFeedback

NEURONS = 100


class Reader(pl.LightningModule):
    """Eight inputs, adaptive recurrent neurons, a leaky readout; reads new digits each epoch."""

    def __init__(self, method: str, split: Split, epochs: int, scale: float = 3.0) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.method, self.split, self.epochs, self.scale = method, split, epochs, scale
        self.fc = nn.Linear(ROWS, NEURONS)
        gradient = "time" if method == "BPTT" else "none"
        adaptive = {"beta": 0.1, "tc_adaptation": 30.0}
        self.lif = SurrogateLIF(NEURONS, **adaptive, recurrent=True, gradient=gradient, time_dim=0)
        self.readout = nn.Linear(NEURONS, CLASSES)
        self.leak = LeakyIntegrator(CLASSES, time_dim=0)
        self.accuracies: list[float] = []

    def forward(self, images: Tensor) -> Tensor:
        """Returns the readout at every step, ``[T, B, 10]``, of images ``[B, 8, 8]``."""
        self.lif.reset()
        self.leak.reset()
        rows = self.scale * images.transpose(0, 1).repeat_interleave(STEPS, 0)
        self.spikes = self.lif(self.fc(rows))
        return self.leak(self.readout(self.spikes))

    @torch.no_grad()
    def see(self, images: Tensor) -> Tensor:
        """Returns what the readout reads, ``[B, NEURONS]``: filtered spikes while it answers."""
        self(images)
        return trace(self.spikes, self.leak.decay)[-STEPS:].mean(0)

    def read(self, images: Tensor) -> Tensor:
        """Returns the digits that are read in images."""
        return self(images)[-STEPS:].mean(0).argmax(-1)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, labels = batch
        optimizer = self.optimizers()
        optimizer.zero_grad()
        y = self(images)
        answer = y[-STEPS:].mean(0)
        if self.method == "BPTT":
            self.manual_backward(cross_entropy(answer, labels))
        else:
            error = torch.zeros_like(y)
            error[-STEPS:] = (answer.softmax(-1) - one_hot(labels, CLASSES)) / STEPS
            for callback in self.trainer.callbacks:
                if isinstance(callback, CellTrainerCallback):
                    callback.updates_as_gradients(error=error)
        optimizer.step()

    @torch.no_grad()
    def on_train_epoch_end(self) -> None:
        self.lr_schedulers().step()
        right = self.read(self.split.test_images) == self.split.test_labels
        self.accuracies.append(right.float().mean().item())

    def configure_optimizers(self):
        if self.method == "readout only":
            self.fc.requires_grad_(False)
            self.lif.requires_grad_(False)
        optimizer = torch.optim.Adam((p for p in self.parameters() if p.requires_grad), lr=1e-2)
        falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, self.epochs)
        return [optimizer], [falling]


def learners(method: str) -> list[CellTrainerCallback]:
    """Returns what learns in a fit besides the optimizer; nothing for BPTT."""
    if method == "BPTT":
        return []
    readout = {"readout": CellSpec("readout", "leak", ("weight", "bias"))}
    found = [CellTrainerCallback(DeltaRule(1.0), readout, log=False, time_dim=0)]
    if method != "readout only":
        own, fixed = SymmetricFeedback("readout"), RandomFeedback(CLASSES, NEURONS)
        eprop = EProp(1.0, fixed if "random" in method else own, tc_readout=20.0)
        pixels = {"params": ("weight", "bias"), "graded_input": True}
        cells = {"input": CellSpec("fc", "lif", overrides=pixels)}
        cells["recurrent"] = CellSpec("lif.recurrent", "lif")
        found.append(CellTrainerCallback(eprop, cells, log=False, time_dim=0))
    return found


def untrained(split: Split, seed: int) -> Reader:
    """Returns a network as it is before it learns, its input in the scale of the images."""
    pl.seed_everything(seed, verbose=False)
    return Reader("readout only", split, 1, scale=1.0)


def learn(method: str, split: Split, epochs: int, seed: int = 0) -> Reader:
    """Trains a network by one of the methods."""
    pl.seed_everything(seed, verbose=False)
    network, local = Reader(method, split, epochs), learners(method)
    trainer = pl.Trainer(max_epochs=epochs, accelerator="cpu", callbacks=local, **SILENT)
    data = TensorDataset(split.train_images, split.train_labels)
    trainer.fit(network, DataLoader(data, batch_size=16, shuffle=True))
    return network


if __name__ == "__main__":
    options = arguments(__doc__, __file__, short="one seed, one epoch", fold=0)
    split = load_digits_split(options.fold)
    found, *results = compare(untrained, learn, split, options)
    report(*results)
    draw(found, split, options.picture)

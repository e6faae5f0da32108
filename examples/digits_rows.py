"""A recurrent spiking network reads handwritten digits row by row, and learns by e-prop.

Each of the eight rows of an image drives the network for four steps, through eight inputs, and the
answer counts while the last row is shown. So the network has to keep in its spikes, potentials and
thresholds what it has seen of the rows before. The error reaches the neurons by the readout's own
weights (symmetric feedback) or by fixed random ones; no graph is kept. The same network also
learns by backpropagation through time, with the same optimizer, and as a control by its readout
only, while the input's and the recurrent weights stay as they were drawn.

    python examples/digits_rows.py [--picture digits_rows.png] [--short]
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import lightning.pytorch as pl
import torch
from _data import Split, load_digits_split
from _quiet import quiet
from _result import report, spread
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import CellSpec, DeltaRule, EProp
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LeakyIntegrator, SurrogateLIF
from lightning_accum.rules import Feedback, RandomFeedback, SymmetricFeedback

ROWS, CLASSES = 8, 10
STEPS = 4  # of 1 ms, for which a row is shown
NEURONS = 100
BATCH = 16
METHODS = ("BPTT", "e-prop", "e-prop, random feedback", "readout only")


class Reader(pl.LightningModule):
    """Eight inputs, adaptive recurrent neurons, a leaky readout.

    Args:
        method: one of ``METHODS``.
        split: the digits, of which those to test on are read after each epoch.
        epochs: in which the rate of learning falls to zero.
    """

    def __init__(self, method: str, split: Split, epochs: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.method = method
        self.epochs = epochs
        self.fc = nn.Linear(ROWS, NEURONS)
        self.lif = SurrogateLIF(
            NEURONS,
            beta=0.1,
            tc_adaptation=30.0,
            recurrent=True,
            gradient="time" if method == "BPTT" else "none",
            time_dim=0,
        )
        self.readout = nn.Linear(NEURONS, CLASSES)
        self.leak = LeakyIntegrator(CLASSES, time_dim=0)
        self.split = split
        self.accuracies: list[float] = []

    def forward(self, images: Tensor) -> Tensor:
        """Returns the readout at every step, ``[T, B, 10]``, of images ``[B, 8, 8]``."""
        self.lif.reset()
        self.leak.reset()
        rows = images.transpose(0, 1).repeat_interleave(STEPS, 0)
        y: Tensor = self.leak(self.readout(self.lif(self.fc(rows))))
        return y

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
        answers = self(self.split.test_images)[-STEPS:].mean(0).argmax(-1)
        self.accuracies.append((answers == self.split.test_labels).float().mean().item())

    def configure_optimizers(self):
        if self.method == "readout only":
            self.fc.requires_grad_(False)
            self.lif.requires_grad_(False)
        trained = [param for param in self.parameters() if param.requires_grad]
        optimizer = torch.optim.Adam(trained, lr=1e-2)
        falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, self.epochs)
        return [optimizer], [falling]


def learners(method: str) -> list[CellTrainerCallback]:
    """Returns what learns in a fit besides the optimizer; nothing for BPTT."""
    if method == "BPTT":
        return []
    found = [
        CellTrainerCallback(
            DeltaRule(1.0, time_dim=0, params=("weight", "bias")),
            {"readout": CellSpec("readout", "leak")},
            log=False,
        )
    ]
    if method != "readout only":
        feedback: Feedback = SymmetricFeedback("readout")
        if "random" in method:
            feedback = RandomFeedback(CLASSES, NEURONS)
        eprop = EProp(1.0, feedback, tc_readout=20.0, time_dim=0)
        pixels = {"params": ("weight", "bias"), "graded_input": True}
        cells = {
            "input": CellSpec("fc", "lif", overrides=pixels),
            "recurrent": CellSpec("lif.recurrent", "lif"),
        }
        found.append(CellTrainerCallback(eprop, cells, log=False))
    return found


class Learned(NamedTuple):
    """A network and the share of unseen digits that it read right after each epoch."""

    network: Reader
    accuracies: list[float]


def learn(method: str, split: Split, epochs: int, seed: int = 0) -> Learned:
    """Trains a network.

    Args:
        method: one of ``METHODS``.
        split: the digits.
        epochs: how many.
        seed: of the weights and the order of the digits.
    """
    pl.seed_everything(seed, verbose=False)
    network = Reader(method, split, epochs)
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=learners(method),
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    data = TensorDataset(split.train_images, split.train_labels)
    trainer.fit(network, DataLoader(data, batch_size=BATCH, shuffle=True))
    return Learned(network, network.accuracies)


@torch.no_grad()
def draw(found: dict[str, list[Learned]], split: Split, path: str) -> None:
    """A digit, the spikes and the answer that it evokes after e-prop; accuracies over epochs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 2.8), layout="constrained")
    image, spikes, answer, curves = figure.subplots(1, 4, width_ratios=(2, 3, 3, 4))
    network = found["e-prop"][0].network
    read = network(split.test_images)[-STEPS:].mean(0).argmax(-1)
    chosen = int((read == split.test_labels).int().argmax())  # the first that is read right
    sample, label = split.test_images[chosen : chosen + 1], int(split.test_labels[chosen])
    image.imshow(sample[0], cmap="gray_r")
    image.set(xticks=[], yticks=range(ROWS), title="digit", ylabel="row")
    y = network(sample)[:, 0]
    drive = network.fc(sample.transpose(0, 1).repeat_interleave(STEPS, 0))
    network.lif.reset()
    step, neuron = network.lif(drive)[:, 0].nonzero(as_tuple=True)
    spikes.scatter(step, neuron, s=1, color="k")
    spikes.set(title="spikes", xlabel="ms", ylabel="neuron", xlim=(0, ROWS * STEPS))
    for digit in range(CLASSES):
        right = digit == label
        answer.plot(y[:, digit], color="C2" if right else "0.7", lw=1.8 if right else 0.8)
    answer.axvspan((ROWS - 1) * STEPS, ROWS * STEPS, color="0.93", zorder=0)
    answer.set(title=f"readout, green: {label}", xlabel="ms")
    for i, (method, runs) in enumerate(found.items()):
        accuracies = torch.tensor([run.accuracies for run in runs])
        epochs = range(1, accuracies.shape[1] + 1)
        curves.plot(epochs, accuracies.T, color=f"C{i}", lw=0.4)
        curves.plot(epochs, accuracies.mean(0), color=f"C{i}", lw=1.8, label=method)
    curves.set(title="unseen digits read right", xlabel="epoch", ylim=(0, 1))
    curves.legend(frameon=False, fontsize=8, loc="lower right")
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", default="digits_rows.png", help="where to draw to")
    parser.add_argument("--short", action="store_true", help="one seed, one epoch")
    args = parser.parse_args()
    if args.short:
        args.seeds, args.epochs = 1, 1
    quiet()
    torch.set_num_threads(1)

    split = load_digits_split()
    print(f"share of {len(split.test_labels)} unseen digits read right, row by row")
    found, seconds = {}, {}
    for method in METHODS:
        start = time.process_time()
        runs = [learn(method, split, args.epochs, seed) for seed in range(args.seeds)]
        seconds[method] = time.process_time() - start
        found[method] = runs
        shares = " ".join(f"{run.accuracies[-1]:6.1%}" for run in runs)
        print(f"  {method:24s}{shares}", flush=True)
    samples = args.seeds * args.epochs * len(split.train_labels)
    accuracies = [100 * run.accuracies[-1] for run in found["e-prop"]]
    report(spread(accuracies), samples / seconds["e-prop"])
    draw(found, split, args.picture)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()

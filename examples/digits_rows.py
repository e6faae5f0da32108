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

import time

import lightning.pytorch as pl
import torch
from _data import Split, load_digits_split
from _quiet import SILENT, quiet
from _result import arguments, curves, report, save, spread
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import CellSpec, DeltaRule, EProp
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LeakyIntegrator, SurrogateLIF
from lightning_accum.rules import RandomFeedback, SymmetricFeedback

ROWS, NEURONS, CLASSES = 8, 100, 10
STEPS = 4  # of 1 ms, for which a row is shown
METHODS = ("BPTT", "e-prop", "e-prop, random feedback", "readout only")


class Reader(pl.LightningModule):
    """Eight inputs, adaptive recurrent neurons, a leaky readout; reads new digits each epoch."""

    def __init__(self, method: str, split: Split, epochs: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.method, self.split, self.epochs = method, split, epochs
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
        rows = images.transpose(0, 1).repeat_interleave(STEPS, 0)
        self.spikes = self.lif(self.fc(rows))
        return self.leak(self.readout(self.spikes))

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
        trained = [param for param in self.parameters() if param.requires_grad]
        optimizer = torch.optim.Adam(trained, lr=1e-2)
        falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, self.epochs)
        return [optimizer], [falling]


def learners(method: str) -> list[CellTrainerCallback]:
    """Returns what learns in a fit besides the optimizer; nothing for BPTT."""
    if method == "BPTT":
        return []
    delta = DeltaRule(1.0, time_dim=0, params=("weight", "bias"))
    found = [CellTrainerCallback(delta, {"readout": CellSpec("readout", "leak")}, log=False)]
    if method != "readout only":
        own, fixed = SymmetricFeedback("readout"), RandomFeedback(CLASSES, NEURONS)
        feedback = fixed if "random" in method else own
        eprop = EProp(1.0, feedback, tc_readout=20.0, time_dim=0)
        pixels = {"params": ("weight", "bias"), "graded_input": True}
        cells = {
            "input": CellSpec("fc", "lif", overrides=pixels),
            "recurrent": CellSpec("lif.recurrent", "lif"),
        }
        found.append(CellTrainerCallback(eprop, cells, log=False))
    return found


def learn(method: str, split: Split, epochs: int, seed: int = 0) -> Reader:
    """Trains a network by one of ``METHODS``."""
    pl.seed_everything(seed, verbose=False)
    network, local = Reader(method, split, epochs), learners(method)
    trainer = pl.Trainer(max_epochs=epochs, accelerator="cpu", callbacks=local, **SILENT)
    data = TensorDataset(split.train_images, split.train_labels)
    trainer.fit(network, DataLoader(data, batch_size=16, shuffle=True))
    return network


@torch.no_grad()
def draw(found: dict[str, list[Reader]], split: Split, path: str) -> None:
    """A digit, the spikes and the answer that it evokes after e-prop; accuracies over epochs."""
    figure = Figure(figsize=(9.6, 2.8), layout="constrained")
    image, spikes, answer, shares = figure.subplots(1, 4, width_ratios=(2, 3, 3, 4))
    network = found["e-prop"][0]
    right = network.read(split.test_images) == split.test_labels
    chosen = int(right.int().argmax())  # the first that is read right
    sample, label = split.test_images[chosen : chosen + 1], int(split.test_labels[chosen])
    image.imshow(sample[0], cmap="gray_r")
    image.set(xticks=[], yticks=range(ROWS), title="digit", ylabel="row")
    y = network(sample)[:, 0]
    step, neuron = network.spikes[:, 0].nonzero(as_tuple=True)
    spikes.scatter(step, neuron, s=1, color="k")
    spikes.set(title="spikes", xlabel="ms", ylabel="neuron", xlim=(0, ROWS * STEPS))
    answer.plot(y, color="0.7", lw=0.8)
    answer.lines[label].set(color="C2", lw=1.8)
    answer.axvspan((ROWS - 1) * STEPS, ROWS * STEPS, color="0.93", zorder=0)
    answer.set(title=f"readout, green: {label}", xlabel="ms")
    for i, (method, runs) in enumerate(found.items()):
        accuracies = [run.accuracies for run in runs]
        curves(shares, range(1, len(accuracies[0]) + 1), accuracies, f"C{i}", method)
    shares.set(title="unseen digits read right", xlabel="epoch", ylim=(0, 1))
    shares.legend(frameon=False, fontsize=8, loc="lower right")
    save(figure, path, dpi=100)


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, one epoch")
    epochs = 1 if args.short else 8
    quiet()
    torch.set_num_threads(1)
    split = load_digits_split()
    print(f"share of {len(split.test_labels)} unseen digits read right, row by row")
    found, seconds = {}, {}
    for method in METHODS:
        start = time.process_time()
        runs = found[method] = [learn(method, split, epochs, seed) for seed in range(args.seeds)]
        seconds[method] = time.process_time() - start
        print(f"  {method:24s}{' '.join(f'{run.accuracies[-1]:6.1%}' for run in runs)}", flush=True)
    samples = args.seeds * epochs * len(split.train_labels)
    accuracies = [100 * run.accuracies[-1] for run in found["e-prop"]]
    report(spread(accuracies), samples / seconds["e-prop"])
    draw(found, split, args.picture)


if __name__ == "__main__":
    main()

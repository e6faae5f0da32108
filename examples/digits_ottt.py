"""A deep spiking network learns handwritten digits by OTTT, without a graph through time.

Three hidden layers of leaky integrate-and-fire neurons see an image for 20 steps. At each step the
error passes backwards through the layers of this step only; a GradientMonitor at each layer records
the gradient by its spikes, and OTTT multiplies it with the pseudo-derivative and with the low-pass
of the layer's input (Xiao et al. 2022, arXiv:2210.04195). No hidden weight requires grad: the image
does, so that the gradient passes through all layers and ends there. The readout's weights learn
from their gradient. The same network also learns by backpropagation through time, with the same
optimizer, and as a control by its readout only.

    python examples/digits_ottt.py [--picture digits_ottt.png] [--short]
"""

from __future__ import annotations

import argparse
import itertools

import lightning.pytorch as pl
import torch
from _data import Split, load_digits_split
from _experiment import Short
from _quiet import quiet
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import OTTT, CellSpec, RuleTrainer, get_updater
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import SurrogateLIF

PIXELS, CLASSES = 64, 10
SIZES = (PIXELS, 100, 100, 100)  # the input, and three hidden layers
STEPS = 20  # of 1 ms
BATCH = 32
METHODS = ("BPTT", "OTTT", "readout only")


class Deep(pl.LightningModule):
    """Three hidden layers of spiking neurons, and a readout without memory.

    Args:
        method: one of ``METHODS``.
        split: the digits, of which those to test on are read after each epoch.
    """

    def __init__(self, method: str, split: Split) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.method = method
        gradient = {"BPTT": "time", "OTTT": "step", "readout only": "none"}[method]
        self.layers = nn.ModuleList(nn.Linear(*size) for size in itertools.pairwise(SIZES))
        self.neurons = nn.ModuleList(
            SurrogateLIF(size, tc_mem=10.0, gradient=gradient, time_dim=0) for size in SIZES[1:]
        )
        for fc in self.layers:
            nn.init.normal_(fc.weight, std=fc.in_features**-0.5)
        if method != "BPTT":
            self.layers.requires_grad_(False)
        self.readout = nn.Linear(SIZES[-1], CLASSES)
        self.split = split
        self.accuracies: list[float] = []

    def forward(self, images: Tensor) -> Tensor:
        """Returns the readout at every step, ``[T, B, 10]``, of images ``[B, 8, 8]``."""
        z = images.flatten(1).expand(STEPS, -1, -1)
        for fc, lif in zip(self.layers, self.neurons, strict=True):
            lif.reset()
            z = lif(fc(z))
        y: Tensor = self.readout(z)
        return y

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, labels = batch
        optimizer = self.optimizers()
        optimizer.zero_grad()
        y = self(images.requires_grad_(self.method == "OTTT"))
        # The loss of each step on its own, as a network that learns online has it.
        self.manual_backward(cross_entropy(y.flatten(0, 1), labels.repeat(STEPS)))
        for callback in self.trainer.callbacks:
            if isinstance(callback, CellTrainerCallback):
                callback.updates_as_gradients()
        optimizer.step()

    @torch.no_grad()
    def on_train_epoch_end(self) -> None:
        answers = self(self.split.test_images).mean(0).argmax(-1)
        self.accuracies.append((answers == self.split.test_labels).float().mean().item())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=2e-3)


def learners(method: str) -> list[CellTrainerCallback]:
    """Returns what learns in a fit besides the optimizer; only OTTT needs anything."""
    if method != "OTTT":
        return []
    # The loss is the mean over the samples, so that their changes add up.
    cells = {
        f"hidden {i}": CellSpec(
            f"layers.{i}", f"neurons.{i}", overrides={} if i else {"graded_input": True}
        )
        for i in range(len(SIZES) - 1)
    }
    options = {"time_dim": 0, "params": ("weight", "bias"), "log": False}
    return [CellTrainerCallback(OTTT(1.0), cells, **options)]


def learn(method: str, split: Split, epochs: int, seed: int = 0) -> Deep:
    """Trains a network, and returns it with its ``accuracies`` after each epoch.

    Args:
        method: one of ``METHODS``.
        split: the digits.
        epochs: how many.
        seed: of the weights and the order of the digits.
    """
    pl.seed_everything(seed, verbose=False)
    network = Deep(method, split)
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
    return network


def gradients(split: Split, seed: int = 0) -> dict[str, list[Tensor]]:
    """Returns the gradient of every hidden weight by BPTT and by OTTT, of one network and batch."""
    torch.manual_seed(seed)
    network = Deep("BPTT", split)
    images, labels = split.train_images[:256], split.train_labels[:256]
    found: dict[str, list[Tensor]] = {}
    trainer = RuleTrainer(OTTT(1.0), time_dim=0)
    for i, lif in enumerate(network.neurons):
        spec = CellSpec(f"layers.{i}", f"neurons.{i}")
        lif.gradient = "step"
        trainer.register_cell(f"hidden {i}", spec.find(network), graded_input=i == 0)
    for method, gradient in (("BPTT", "time"), ("OTTT", "step")):
        for lif in network.neurons:
            lif.gradient = gradient
        y = network(images.clone().requires_grad_())
        loss = cross_entropy(y.flatten(0, 1), labels.repeat(STEPS))
        found[method] = list(torch.autograd.grad(loss, [fc.weight for fc in network.layers]))
        if method == "OTTT":
            trainer()
            found[method] = [-get_updater(fc).weight.update(fc.weight) for fc in network.layers]
        trainer.clear()
    return found


def compare(split: Split, seed: int = 0) -> Tensor:
    """Compares the gradients by OTTT with those by BPTT.

    Returns:
        The cosine between them and the ratio of their norms, for each hidden layer, ``[2, 3]``.
    """
    found = gradients(split, seed)
    pairs = [(a.flatten(), b.flatten()) for a, b in zip(found["OTTT"], found["BPTT"], strict=True)]
    cosines = [nn.functional.cosine_similarity(ours, exact, dim=0) for ours, exact in pairs]
    ratios = [ours.norm() / exact.norm() for ours, exact in pairs]
    return torch.stack([torch.stack(cosines), torch.stack(ratios)])


def draw(found: dict[str, list[Deep]], alike: Tensor, path: str) -> None:
    """Accuracies over epochs, and OTTT's gradients beside those of BPTT.

    Args:
        found: by method, a network for each seed.
        alike: what ``compare`` returns for each seed, ``[seeds, 2, 3]``.
        path: where to draw to.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 2.8), layout="constrained")
    curves, bars = figure.subplots(1, 2, width_ratios=(3, 2))
    for i, (method, runs) in enumerate(found.items()):
        accuracies = torch.tensor([run.accuracies for run in runs])
        epochs = range(1, accuracies.shape[1] + 1)
        curves.plot(epochs, accuracies.T, color=f"C{i}", lw=0.4)
        curves.plot(epochs, accuracies.mean(0), color=f"C{i}", lw=1.8, label=method)
    curves.set(title="unseen digits read right", xlabel="epoch", ylim=(0, 1))
    curves.legend(frameon=False, fontsize=8, loc="lower right")
    layers = range(1, len(SIZES))
    for name, values, mark in zip(("cosine", "ratio of norms"), alike.unbind(1), "os", strict=True):
        bars.plot(layers, values.T, mark, color="C1", ms=4, mfc="none" if mark == "s" else "C1")
        bars.plot([], [], mark, color="C1", mfc="none" if mark == "s" else "C1", label=name)
    bars.set(title="gradient by OTTT, by BPTT", xlabel="hidden layer", xticks=layers)
    bars.set(xlim=(0.5, len(SIZES) - 0.5), ylim=(0, 1.05))
    bars.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", default="digits_ottt.png", help="where to draw to")
    parser.add_argument("--short", action=Short, help="one seed, one epoch")
    args = parser.parse_args()
    if args.short:
        args.seeds, args.epochs = 1, 1
    quiet()
    torch.set_num_threads(1)

    split = load_digits_split()
    alike = torch.stack([compare(split, seed) for seed in range(args.seeds)])
    print("gradients of the hidden layers before training, by OTTT and by BPTT:")
    for name, values in zip(("cosine", "ratio of norms"), alike.unbind(1), strict=True):
        each = ", ".join(" ".join(f"{value:.3f}" for value in layers) for layers in values)
        print(f"  {name:16s}{each}")
    print(f"share of {len(split.test_labels)} unseen digits read right, three hidden layers:")
    found = {}
    for method in METHODS:
        found[method] = [learn(method, split, args.epochs, seed) for seed in range(args.seeds)]
        shares = " ".join(f"{run.accuracies[-1]:6.1%}" for run in found[method])
        print(f"  {method:14s}{shares}", flush=True)
    draw(found, alike, args.picture)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()

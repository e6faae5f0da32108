r"""Learns handwritten digits by a CNN, with whichever optimizer the command line names.

The module says nothing of its optimizer: LightningCLI takes it, its options and a scheduler from
the command line or a YAML file. Loss and accuracy of every step go down pipes to the logger, and
`UpdateMonitor` logs what the optimizer's steps do to each parameter.

    python examples/cnn_optimizers.py fit --optimizer=lightning_accum.optim.AdaBelief \
        --optimizer.lr=1e-3
    python examples/cnn_optimizers.py fit --optimizer=torch.optim.SGD --optimizer.lr=0.1 \
        --lr_scheduler=torch.optim.lr_scheduler.ExponentialLR --lr_scheduler.gamma=0.8
    python examples/cnn_optimizers.py fit --data.dir=DIR  # MNIST, from its own files
    python examples/cnn_optimizers.py [fit ...] --short   # two epochs, on one core
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any

import lightning.pytorch as pl
import torch
from _data import load_digits_split, load_mnist
from _experiment import PROVES_NOTHING
from _quiet import quiet
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.cli import LightningCLI
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset, random_split

from lightning_accum.accumulators import Log, Max, Mean, Select, Source
from lightning_accum.callbacks import UpdateMonitor
from lightning_accum.optim import AdaBelief

Batch = tuple[Tensor, Tensor]


def make_cnn() -> nn.Sequential:
    """Scores ``[B, 10]`` of images ``[B, 1, 28, 28]``."""
    layers = {
        "conv1": nn.Conv2d(1, 20, 5),
        "pool1": nn.MaxPool2d(2),
        "relu1": nn.ReLU(),
        "conv2": nn.Conv2d(20, 50, 5),
        "pool2": nn.MaxPool2d(2),
        "relu2": nn.ReLU(),
        "flat": nn.Flatten(),
        "fc1": nn.Linear(800, 500),
        "relu3": nn.ReLU(),
        "fc2": nn.Linear(500, 10),
    }
    return nn.Sequential(OrderedDict(layers))


class CNN(pl.LightningModule):
    """The network, and a pipe for what is logged of each phase."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = make_cnn()
        self.steps = nn.ModuleDict({name: Source(self) for name in ("fit", "validation", "test")})
        for name, source in self.steps.items():
            # the last batch is smaller: each counts for its size
            source ** Select(value="loss", weight="size") ** Mean() ** Log(f"{name}/loss")
            accuracy = source ** Select(value="accuracy", weight="size") ** Mean()
            accuracy ** Log(f"{name}/accuracy", prog_bar=True)
            if name == "validation":
                accuracy ** Max() ** Log("validation/best_accuracy")

    def forward(self, images: Tensor) -> Tensor:
        """Scores ``[B, 10]`` of images ``[B, 1, 28, 28]``."""
        return self.layers(images)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return self.step("fit", batch)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.step("validation", batch)

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self.step("test", batch)

    def step(self, name: str, batch: Batch) -> Tensor:
        """The loss of a batch, which goes down the phase's pipes too."""
        images, labels = batch
        scores = self(images)
        loss = nn.functional.cross_entropy(scores, labels)
        accuracy = (scores.argmax(1) == labels).float().mean()
        self.steps[name]({"loss": loss, "accuracy": accuracy, "size": len(labels)})
        return loss

    def on_train_epoch_end(self) -> None:
        self.steps["fit"].end()

    def on_validation_epoch_end(self) -> None:
        self.steps["validation"].end()

    def on_test_epoch_end(self) -> None:
        self.steps["test"].end()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        # A default in the parser would lend its lr and betas to the optimizers named in its place.
        return AdaBelief(self.parameters(), lr=1e-3)


class Digits(pl.LightningDataModule):
    """Scikit-learn's digits at MNIST's size, or MNIST; a tenth of the training set validates.

    Args:
        dir: folder of MNIST's own four files; scikit-learn's digits where there is none.
        batch_size: images in a batch.
        seed: seed of the splits.
    """

    def __init__(self, dir: str | None = None, batch_size: int = 64, seed: int = 0) -> None:
        super().__init__()
        self.dir, self.batch_size, self.seed = dir, batch_size, seed

    def setup(self, stage: str) -> None:
        split = load_mnist(self.dir) if self.dir else load_digits_split(self.seed % 5, size=28)
        train = TensorDataset(split.train_images.unsqueeze(1), split.train_labels)
        generator = torch.Generator().manual_seed(self.seed)
        self.train, self.validation = random_split(train, (0.9, 0.1), generator)
        self.test = TensorDataset(split.test_images.unsqueeze(1), split.test_labels)

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.train, self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.validation, 256)

    def test_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.test, 256)


class CLI(LightningCLI):
    """LightningCLI that tests what it has fitted, and prints what came of it."""

    def after_fit(self) -> None:
        fitted, steps = self.trainer.callback_metrics, self.trainer.global_step
        name = type(self.trainer.optimizers[0]).__name__
        print(f"{name}: {steps} steps, training loss {fitted['fit/loss']:.4f}")
        best = f"best in validation {100 * fitted['validation/best_accuracy']:.1f} %"
        tested = self.trainer.test(self.model, datamodule=self.datamodule, verbose=False)
        print(f"test accuracy {100 * tested[0]['test/accuracy']:.1f} %, {best}")
        print(f"look at it with: tensorboard --logdir {self.trainer.log_dir}")


def expanded(arguments: list[str]) -> list[str]:
    """The command line with ``--short`` written out; the options beside it win over its own."""
    if "--short" not in arguments:
        return arguments
    rest = [argument for argument in arguments if argument != "--short"]
    named = bool(rest) and not rest[0].startswith("-")
    command, options = (rest[:1], rest[1:]) if named else (["fit"], rest)
    return [*command, "--trainer.max_epochs=2", "--trainer.enable_progress_bar=false", *options]


def main() -> None:
    quiet()
    if "--short" in sys.argv:
        print(PROVES_NOTHING)
        torch.set_num_threads(1)
    sys.argv[1:] = expanded(sys.argv[1:])
    CLI(
        CNN,
        Digits,
        seed_everything_default=0,
        trainer_defaults={
            "accelerator": "cpu",
            "max_epochs": 10,
            "num_sanity_val_steps": 0,  # or the untrained network would be a candidate for the best
            "log_every_n_steps": 10,
            "enable_model_summary": False,
            "logger": {
                "class_path": "lightning.pytorch.loggers.TensorBoardLogger",
                "init_args": {"save_dir": "lightning_logs", "name": "cnn_optimizers"},
            },
            "callbacks": [LearningRateMonitor(), UpdateMonitor()],
        },
    )


if __name__ == "__main__":
    main()

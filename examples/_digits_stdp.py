"""What surrounds the network of the demo: its readout, its options and the comparison."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import lightning.pytorch as pl
import torch
from _controls import by_centres, k_means, linear, nearest_sample, repeated
from _data import Split, load
from _experiment import Short, spread
from _quiet import quiet
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import plot
from lightning_accum.metrics import MaxRateClassifier
from lightning_accum.optim import UpdateOptimizer


class Unlabelled(pl.LightningModule):
    """Neurons that learn without labels; by Bayes' rule, their answers tell the digit.

    A subclass makes spikes ``[T, B, neurons]`` of images, and has the connection ``fc``.

    Args:
        neurons: number of neurons.
    """

    def __init__(self, neurons: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.readout = MaxRateClassifier(neurons, 10, vote="bayes")

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Labels the neurons; run on the training set, after training."""
        images, labels = batch
        self.readout.update(self(images).sum(0), labels)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, labels = batch
        hits = (self.readout.predict(self(images).sum(0)) == labels).float().mean()
        self.log("test/accuracy", hits, batch_size=len(labels))

    def configure_optimizers(self):
        optimizer = UpdateOptimizer(self.fc.parameters())
        decay = 0.01 ** (1 / self.trainer.estimated_stepping_batches)  # to one hundredth in the end
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)]


def fit_and_read(
    trainer: pl.Trainer,
    model: Unlabelled,
    data: Split,
    batch_size: int,
    clock: Callable[[], float] = time.process_time,
) -> tuple[float, float]:
    """Trains, labels the neurons and tests; gives test accuracy and samples per second."""
    train = TensorDataset(data.train_images, data.train_labels)
    loader = DataLoader(train, batch_size, shuffle=True, drop_last=True)
    start = clock()
    trainer.fit(model, loader)
    speed = trainer.max_epochs * len(loader) * batch_size / (clock() - start)
    trainer.validate(model, DataLoader(train, 256), verbose=False)
    test = DataLoader(TensorDataset(data.test_images, data.test_labels), 256)
    return trainer.test(model, test, verbose=False)[0]["test/accuracy"], speed


def command_line(about: str, lr: float, argv: Sequence[str] | None) -> argparse.Namespace:
    """Reads the command line.

    Args:
        about: the example's docstring.
        lr: rate of learning, if not set.
        argv: the options; those of the command line if None.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--data", choices=("digits", "mnist5k", "mnist"), default="digits")
    parser.add_argument("--data-dir", default="data", help="folder of MNIST's own files")
    parser.add_argument("--blur", type=float, help="in pixels; of MNIST 1, of digits 0 if not set")
    parser.add_argument("--neurons", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=lr, help="of a spike, at first")
    parser.add_argument("--rate", type=float, default=1000.0, help="of the brightest pixel, in Hz")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--fold", type=int, default=0, help="which fifth of the data is to test on")
    parser.add_argument("--log-dir", default="lightning_logs")
    parser.add_argument("--picture", help="where to draw the first seed's weights to")
    parser.add_argument("--short", action=Short, help="one seed, two epochs")
    args = parser.parse_args(argv)
    if args.short:
        args.seeds, args.epochs = 1, 2
    return args


def compare(
    learn: Callable[..., tuple[float, float, pl.Trainer]], args: argparse.Namespace
) -> tuple[tuple[str, float, dict[str, str], dict[str, str]], str]:
    """Trains a network for each seed, and prints its test accuracy and that of its controls.

    Centres of k-means are of what the network sees, images of one norm, and read digits twice: by
    those of the images that are nearest to them, and as weights of the same network.

    Args:
        learn: trains one network; with images for its weights, these stay as they are.
        args: what `command_line` found.

    Returns:
        The accuracies, samples per second of training, the controls and simple methods with labels;
        and where the logs are.
    """
    quiet()
    torch.set_num_threads(1)
    data = load(args.data, args.data_dir, args.blur, args.fold)
    seeds, runs = range(args.seeds), []
    for seed in seeds:
        runs.append(learn(data, seed, args))
        print(f"seed {seed}: {100 * runs[-1][0]:.1f} % of the test images", file=sys.stderr)
    accuracies, speeds, trainers = zip(*runs, strict=True)
    if args.picture:
        shape = tuple(data.train_images.shape[1:])
        first = trainers[0].lightning_module
        figure, _ = plot.weights(first.fc.weight, shape=shape, columns=16)
        figure.savefig(args.picture, dpi=100)
    found = spread([100 * accuracy for accuracy in accuracies])
    seen = data.map(lambda images: normalize(images.flatten(1)))
    some = seeds if args.neurons <= 100 else seeds[:1]  # of many neurons once, for all seeds
    controls, again = {}, len(seeds) // len(some)
    for kind in ("k-means", "spherical k-means"):
        means = [k_means(seen.train_images, args.neurons, i, kind != "k-means") for i in some]
        nearest = [by_centres(seen, each, kind != "k-means") for each in means]
        fixed = [100 * learn(data, i, args, each)[0] for i, each in zip(some, means, strict=True)]
        controls[f"nearest centre of {kind}"] = spread(again * nearest)
        controls[f"centres of {kind} as weights"] = spread(again * fixed)
    simple = {"linear readout of pixels": linear(seen), "nearest image": nearest_sample(seen)}
    print(f"test accuracy of {args.neurons} neurons, and of as many centres of k-means:")
    if args.short:
        print("(two epochs, one seed: the full run takes six, and five seeds)")
    results = found, statistics.mean(speeds), controls, repeated(simple, args.seeds)
    return results, trainers[-1].log_dir

"""Learns handwritten digits without labels, by spike-timing-dependent plasticity.

A network after Diehl & Cook (2015, doi:10.3389/fncom.2015.00099): Poisson input, a plastic
connection with pair STDP, adaptive-threshold neurons that inhibit each other, weights normalised.
Labels serve the readout alone: each neuron is given the class of the training set that it answers
most. The yardstick beside the result is k-means with as many centres, labelled in the same way.

    python examples/digits_stdp.py [--neurons 400] [--data mnist --data-dir DIR] [--short]
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings

import lightning.pytorch as pl
import torch
from _data import Split, load_digits_split, load_mnist
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import STDP, CellSpec, Clamp, Normalize, attach_updater
from lightning_accum.callbacks import CellTrainerCallback, TensorBoardPictures
from lightning_accum.metrics import MaxRateClassifier
from lightning_accum.nn import AdaptiveLIF, PoissonEncoder, WinnerTakeAll
from lightning_accum.optim import UpdateOptimizer

STEPS = 100  # of 1 ms, for each image


class DiehlCook(pl.LightningModule):
    """Poisson input → plastic connection → neurons that compete."""

    def __init__(self, pixels: int, neurons: int, batches: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.batches = batches
        scale = drive(pixels)
        self.encoder = PoissonEncoder(STEPS, max_rate=1000.0)
        self.fc = nn.Linear(pixels, neurons, bias=False)
        self.lif = AdaptiveLIF(
            neurons,
            tc_mem=100.0,
            v_threshold=10.0 * scale,
            theta_plus=0.002 * neurons * scale,
            tc_theta=2e5,
            time_dim=0,
            inhibition=WinnerTakeAll(steps=0),
        )
        keep = Normalize(norm=1.0, order=2)
        nn.init.uniform_(self.fc.weight)
        keep(self.fc.weight)
        updater = attach_updater(self.fc, "weight")
        updater.register_constraint(Clamp(min=0.0))
        updater.register_constraint(keep)
        self.readout = MaxRateClassifier(neurons, 10)
        self.last_readout = MaxRateClassifier(neurons, 10)  # of the epoch before

    def forward(self, images: Tensor) -> Tensor:
        """Spikes of every neuron, ``[T, B, neurons]``, for images ``[B, H, W]``."""
        self.lif.reset()
        spikes = self.encoder(images.flatten(1))
        return self.lif(self.fc(spikes.to(self.fc.weight.dtype)))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, labels = batch
        rates = self(images).sum(0)
        self.optimizers().step()
        self.lr_schedulers().step()
        if self.current_epoch:
            hits = (self.last_readout.predict(rates) == labels).float().mean()
            self.log("train/accuracy", hits, prog_bar=True, on_step=False, on_epoch=True)
        self.log("spikes_per_image", rates.sum(1).mean(), prog_bar=True)
        self.readout.update(rates, labels)

    def on_train_end(self) -> None:
        # what the thresholds learned kept all neurons in play; a common one makes rates comparable
        self.lif.theta.fill_(self.lif.theta.mean())

    def on_train_epoch_end(self) -> None:
        self.last_readout.load_state_dict(self.readout.state_dict())
        self.readout.reset()

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
        decay = 0.01 ** (1 / self.batches)  # to one hundredth in the end
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)]


def drive(pixels: int) -> float:
    """How much stronger images of this size drive a neuron than those of 8 × 8 pixels.

    With incoming weights of L2 norm one, the current grows as the norm of the image does.
    """
    return pixels**0.5 / 8


def k_means(data: Split, centres: int, seed: int) -> float:
    """Test accuracy of k-means whose centres are labelled as the neurons are."""
    from sklearn.cluster import KMeans

    found = KMeans(centres, n_init=3, random_state=seed).fit(data.train_images.flatten(1))
    onehot = nn.functional.one_hot(torch.as_tensor(found.labels_).long(), centres)
    readout = MaxRateClassifier(centres, 10)
    readout.update(onehot, data.train_labels)
    predicted = torch.as_tensor(found.predict(data.test_images.flatten(1))).long()
    return (readout.assignments[predicted] == data.test_labels).float().mean().item()


def learn(data: Split, seed: int, args: argparse.Namespace) -> tuple[float, float, str]:
    """Trains one network; gives test accuracy, samples per second and the log directory."""
    pl.seed_everything(seed, verbose=False)
    train = TensorDataset(data.train_images, data.train_labels)
    loader = DataLoader(train, args.batch_size, shuffle=True)
    pixels = data.train_images[0].numel()
    model = DiehlCook(pixels, args.neurons, args.epochs * len(loader))
    lr = args.lr / drive(pixels)
    trainer = pl.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=TensorBoardLogger(args.log_dir, name="digits_stdp"),
        callbacks=[
            CellTrainerCallback(
                STDP(lr_post=lr, lr_pre=-0.3 * lr, time_dim=0),
                cells={"input": CellSpec(connection="fc", neuron="lif")},
            ),
            TensorBoardPictures(every_n_logs=1),
            LearningRateMonitor(),
        ],
        enable_model_summary=False,
    )
    start = time.perf_counter()
    trainer.fit(model, loader)
    speed = args.epochs * len(train) / (time.perf_counter() - start)
    model.readout.reset()
    trainer.validate(model, DataLoader(train, 256), verbose=False)
    test = DataLoader(TensorDataset(data.test_images, data.test_labels), 256)
    result = trainer.test(model, test, verbose=False)
    return result[0]["test/accuracy"], speed, trainer.logger.log_dir


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=("digits", "mnist"), default="digits")
    parser.add_argument("--data-dir", default="data", help="folder of MNIST's own files")
    parser.add_argument("--neurons", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.16)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--log-dir", default="lightning_logs")
    parser.add_argument("--short", action="store_true", help="one seed, two epochs")
    args = parser.parse_args()
    if args.short:
        args.seeds, args.epochs = 1, 2
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    torch.set_num_threads(1)

    data = load_mnist(args.data_dir) if args.data == "mnist" else load_digits_split()
    runs = [learn(data, seed, args) for seed in range(args.seeds)]
    accuracies = [100 * accuracy for accuracy, _, _ in runs]
    means = [100 * k_means(data, args.neurons, seed) for seed in range(args.seeds)]
    print(f"test accuracy, {args.neurons} neurons: {spread(accuracies)}")
    print(f"k-means with {args.neurons} centres:   {spread(means)}")
    if args.short:
        print("(two epochs: the full run takes twelve, and three seeds)")
    print(f"samples per second in training: {statistics.mean(speed for _, speed, _ in runs):.0f}")
    print(f"look at it with: tensorboard --logdir {runs[-1][2]}")


def spread(values: list[float]) -> str:
    each = ", ".join(f"{value:.1f}" for value in values)
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f} %{deviation} (seeds: {each})"


if __name__ == "__main__":
    main()

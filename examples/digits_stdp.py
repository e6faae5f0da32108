"""Learns handwritten digits without labels, by spike-timing-dependent plasticity.

A network after Diehl & Cook (2015, doi:10.3389/fncom.2015.00099): Poisson input, a plastic
connection with pair STDP, adaptive-threshold neurons that inhibit each other, weights normalised.
Labels serve only the readout: by Bayes' rule it finds the digit for which the neurons would most
likely have answered as they do. The result is compared with k-means with as many centres, each of
which is given the digit that it is nearest to most often.

    python examples/digits_stdp.py [--neurons 400] [--data mnist5k] [--picture FILE] [--short]
    python examples/digits_stdp.py --data mnist --data-dir DIR

Images of MNIST pass through a Gaussian first, as wide as a pixel, for k-means too: strokes that lie
a pixel apart then overlap. Images are scaled to one norm, and times are multiples of the brightest
pixel's interval between spikes, so that thresholds suit any contrast and any rate of the input. The
rate of learning and the rise of thresholds are those of one image, whatever the size of the batch.
Thresholds rise with activity, but only relative to each other: after each batch their mean is where
it was.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import lightning.pytorch as pl
import torch
from _data import Split, load_digits_split, load_mnist, load_mnist5k
from _quiet import quiet
from _result import report, spread
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor
from torch.nn.functional import normalize, one_hot
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import STDP, CellSpec, Clamp, Normalize, attach_updater, plot
from lightning_accum.callbacks import CellTrainerCallback, UpdatePictures
from lightning_accum.metrics import MaxRateClassifier
from lightning_accum.nn import AdaptiveLIF, Linear, PoissonEncoder, WinnerTakeAll
from lightning_accum.optim import UpdateOptimizer

# Times, in intervals between spikes of the brightest pixel; at 1000 Hz, the default, in ms.
STEPS = 50  # for each image in training
STEPS_READOUT = 200  # for each image afterwards, when it is read out
SPIKES = 8.0  # of the brightest pixel, for one of a neuron that has learned the image
TC_MEM = 100.0
TC_TRACE = 20.0
LR = 0.4


class DiehlCook(pl.LightningModule):
    """Poisson input → plastic connection → neurons that compete.

    Args:
        images: training images ``[N, H, W]``; neurons start with some of them for weights.
        neurons: number of neurons.
        batch_size: size of the batches in training.
        batches: number of batches in training, over which the rate of learning falls.
        max_rate: rate of the brightest pixel of all, in Hz.
    """

    def __init__(
        self, images: Tensor, neurons: int, batch_size: int, batches: int, max_rate: float = 1000.0
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.batches = batches
        directions = normalize(images.flatten(1))
        self.norm = 1 / directions.max().item()  # with which no pixel exceeds one
        self.interval = 1000 / max_rate
        self.encoder = PoissonEncoder(round(STEPS * self.interval), max_rate)
        self.fc = Linear(directions.shape[1], neurons, bias=False)  # takes boolean spikes
        threshold = SPIKES * self.norm
        self.lif = AdaptiveLIF(
            neurons,
            tc_mem=TC_MEM * self.interval,
            v_threshold=threshold,
            theta_plus=1e-6 * neurons * threshold * batch_size,
            time_dim=0,
            inhibition=WinnerTakeAll(steps=0),
        )
        keep = Normalize(norm=1.0, order=2)
        chosen = torch.randint(len(directions), (neurons,))
        self.fc.weight.data.copy_(directions[chosen])
        updater = attach_updater(self.fc, "weight")
        updater.register_constraint(Clamp(min=0.0))
        updater.register_constraint(keep)
        self.readout = MaxRateClassifier(neurons, 10, vote="bayes")
        self.last_readout = MaxRateClassifier(neurons, 10, vote="bayes")  # of the epoch before

    def forward(self, images: Tensor) -> Tensor:
        """Spikes of every neuron, ``[T, B, neurons]``, for images ``[B, H, W]``."""
        self.lif.reset()
        return self.lif(self.fc(self.encode(images)))

    def encode(self, images: Tensor) -> Tensor:
        """Spikes of every pixel, ``[T, B, pixels]``, of images that are scaled to one norm."""
        return self.encoder((normalize(images.flatten(1)) * self.norm).clamp(max=1))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, labels = batch
        rates = self(images).sum(0)
        self.optimizers().step()
        self.lif.theta -= self.lif.theta.mean()
        self.lr_schedulers().step()
        if self.current_epoch:
            hits = (self.last_readout.predict(rates) == labels).float().mean()
            self.log("train/accuracy", hits, prog_bar=True, on_step=False, on_epoch=True)
        self.log("spikes_per_image", rates.sum(1).mean(), prog_bar=True)
        self.readout.update(rates, labels)

    def on_train_end(self) -> None:
        # what the thresholds learned kept all neurons in play; a common one makes rates comparable
        self.lif.theta.zero_()
        self.encoder.steps = round(STEPS_READOUT * self.interval)

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


def blurred(images: Tensor, width: float) -> Tensor:
    """Square images ``[N, H, W]`` after a Gaussian whose standard deviation is in pixels."""
    if not width:
        return images
    pixels = torch.arange(images.shape[-1])
    kernel = torch.exp(-((pixels - pixels[:, None]) ** 2) / (2 * width**2))
    kernel = kernel / kernel.sum(1).max()
    return kernel @ images @ kernel


def learning_rule(lr: float, model: DiehlCook) -> STDP:
    """STDP by which each spike moves the neuron's weights, of length one, by about ``lr``."""
    tc = TC_TRACE * model.interval
    lr = lr / (TC_TRACE * model.norm)  # an image's traces have this length
    return STDP(lr, -0.3 * lr, tc_post=tc, tc_pre=tc, time_dim=0, batch_reduction="sum")


def k_means(data: Split, centres: int, seed: int) -> float:
    """Test accuracy of k-means whose centres are labelled as the neurons are."""
    from sklearn.cluster import KMeans

    found = KMeans(centres, n_init=3, random_state=seed).fit(data.train_images.flatten(1))
    onehot = one_hot(torch.as_tensor(found.labels_).long(), centres)
    readout = MaxRateClassifier(centres, 10)
    readout.update(onehot, data.train_labels)
    predicted = torch.as_tensor(found.predict(data.test_images.flatten(1))).long()
    return (readout.assignments[predicted] == data.test_labels).float().mean().item()


def learn(data: Split, seed: int, args: argparse.Namespace) -> tuple[float, float, str]:
    """Trains one network; gives test accuracy, samples per second and the log directory."""
    pl.seed_everything(seed, verbose=False)
    train = TensorDataset(data.train_images, data.train_labels)
    loader = DataLoader(train, args.batch_size, shuffle=True, drop_last=True)
    batches = args.epochs * len(loader)
    model = DiehlCook(data.train_images, args.neurons, args.batch_size, batches, args.rate)
    trainer = pl.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=TensorBoardLogger(args.log_dir, name="digits_stdp"),
        callbacks=[
            CellTrainerCallback(
                learning_rule(args.lr, model),
                cells={"input": CellSpec(connection="fc", neuron="lif")},
            ),
            UpdatePictures(every_n_logs=1),
            LearningRateMonitor(),
        ],
        log_every_n_steps=10,
        enable_model_summary=False,
    )
    start = time.process_time()
    trainer.fit(model, loader)
    speed = batches * args.batch_size / (time.process_time() - start)
    if args.picture and not seed:
        shape = tuple(data.train_images.shape[1:])
        figure, _ = plot.weights(model.fc.weight, shape=shape, columns=16)
        figure.savefig(args.picture, dpi=100)
    model.readout.reset()
    trainer.validate(model, DataLoader(train, 256), verbose=False)
    test = DataLoader(TensorDataset(data.test_images, data.test_labels), 256)
    result = trainer.test(model, test, verbose=False)
    return result[0]["test/accuracy"], speed, trainer.logger.log_dir


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=("digits", "mnist5k", "mnist"), default="digits")
    parser.add_argument("--data-dir", default="data", help="folder of MNIST's own files")
    parser.add_argument("--blur", type=float, help="in pixels; of MNIST 1, of digits 0 if not set")
    parser.add_argument("--neurons", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=LR, help="of a spike, at first")
    parser.add_argument("--rate", type=float, default=1000.0, help="of the brightest pixel, in Hz")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--log-dir", default="lightning_logs")
    parser.add_argument("--picture", help="where to draw the first seed's weights to")
    parser.add_argument("--short", action="store_true", help="one seed, two epochs")
    args = parser.parse_args(argv)
    if args.short:
        args.seeds, args.epochs = 1, 2
    quiet()
    torch.set_num_threads(1)

    data = {
        "digits": load_digits_split,
        "mnist5k": load_mnist5k,
        "mnist": lambda: load_mnist(args.data_dir),
    }[args.data]()
    width = float(args.data != "digits") if args.blur is None else args.blur
    data = data._replace(
        train_images=blurred(data.train_images, width),
        test_images=blurred(data.test_images, width),
    )
    runs = [learn(data, seed, args) for seed in range(args.seeds)]
    accuracies = [100 * accuracy for accuracy, _, _ in runs]
    means = [100 * k_means(data, args.neurons, seed) for seed in range(args.seeds)]
    print(f"test accuracy, {args.neurons} neurons: {spread(accuracies)}")
    print(f"k-means with {args.neurons} centres:   {spread(means)}")
    if args.short:
        print("(two epochs, one seed: the full run takes six, and five seeds)")
    report(spread(accuracies), statistics.mean(speed for _, speed, _ in runs))
    print(f"look at it with: tensorboard --logdir {runs[-1][2]}")


if __name__ == "__main__":
    main()

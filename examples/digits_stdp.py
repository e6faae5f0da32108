"""Learns handwritten digits without labels, by spike-timing-dependent plasticity.

A network after Diehl & Cook (2015, doi:10.3389/fncom.2015.00099): Poisson input, a plastic
connection with pair STDP, adaptive-threshold neurons that inhibit each other, weights normalised.
Labels serve only the readout: by Bayes' rule it finds the digit for which the neurons would most
likely have answered as they do. The result is compared with as many centres of k-means of what the
network sees, images of one norm, each of which is given the digit that it is nearest to most often,
and with the same network whose weights are these centres and stay as they are. A linear readout and
the nearest image, which know the label of every image that they see, are not controls: they say
what the task needs.

    python examples/digits_stdp.py [--neurons 400] [--data mnist5k] [--picture FILE] [--short]
    python examples/digits_stdp.py --data mnist --data-dir DIR

Images of MNIST pass through a Gaussian first, as wide as a pixel, for k-means too: strokes that lie
a pixel apart then overlap. Images are scaled to one norm, and times are multiples of the brightest
pixel's interval between spikes, so that thresholds suit any contrast and any rate of the input.
Rates of learning and of rising thresholds are those of one image, whatever the size of the batch.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import lightning.pytorch as pl
from _data import Split
from _digits_stdp import Unlabelled, command_line, compare, fit_and_read
from _experiment import report
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor
from torch.nn.functional import normalize

from lightning_accum import STDP, CellSpec, Clamp, Normalize, attach_updater
from lightning_accum.callbacks import CellTrainerCallback, OnlineProbe, UpdatePictures
from lightning_accum.nn import (
    AdaptiveLIF,
    Linear,
    PoissonEncoder,
    WinnerTakeAll,
    init_from_data_,
)

# Times, in intervals between spikes of the brightest pixel; at 1000 Hz, the default, in ms.
STEPS, STEPS_READOUT = 50, 200  # for each image in training, and when it is read out afterwards
TC_MEM, TC_TRACE = 100.0, 20.0
SPIKES = 8.0  # of the brightest pixel, for one of a neuron that has learned the image
LR = 0.4  # of a spike, at first
OPTIONS = {"time_dim": 0, "batch_reduction": "sum"}  # of running the rule


class DiehlCook(Unlabelled):
    """Poisson input → plastic connection → neurons that compete; they start with some images."""

    def __init__(
        self,
        images: Tensor,
        neurons: int,
        batch_size: int,
        rate: float = 1000.0,
        weights: Tensor | None = None,
    ) -> None:
        super().__init__(neurons)
        self.norm = 1 / normalize(images.flatten(1)).max().item()  # with which no pixel exceeds one
        self.interval = 1000 / rate  # of the brightest pixel, in ms
        self.encoder = PoissonEncoder(round(STEPS * self.interval), rate, norm=self.norm)
        self.fc = Linear(images[0].numel(), neurons, bias=False)  # takes boolean spikes
        init_from_data_(self.fc.weight, images if weights is None else weights, norm=1.0)
        threshold = SPIKES * self.norm
        self.lif = AdaptiveLIF(
            neurons,
            tc_mem=TC_MEM * self.interval,
            v_threshold=threshold,
            theta_plus=1e-6 * neurons * threshold * batch_size,
            time_dim=0,
            inhibition=WinnerTakeAll(steps=0),
        )
        updater = attach_updater(self.fc, "weight")
        updater.register_constraint(Clamp(min=0.0))
        updater.register_constraint(Normalize(norm=1.0, order=2))

    def encode(self, images: Tensor) -> Tensor:
        """Spikes of every pixel, ``[T, B, pixels]``, of images that are scaled to one norm."""
        return self.encoder(images.flatten(1))

    def forward(self, images: Tensor) -> Tensor:
        """Spikes of every neuron, ``[T, B, neurons]``, for images ``[B, H, W]``."""
        self.lif.reset()
        return self.lif(self.fc(self.encode(images)))

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self.log("spikes_per_image", self(batch[0]).sum() / len(batch[0]))
        self.optimizers().step()  # applies what the rule found
        self.lif.theta -= self.lif.theta.mean()  # they rise only relative to each other
        self.lr_schedulers().step()

    def on_train_end(self) -> None:
        # what the thresholds learned kept all neurons in play; a common one makes rates comparable
        self.lif.theta.zero_()
        self.encoder.steps = round(STEPS_READOUT * self.interval)


def learning_rule(lr: float, model: DiehlCook) -> STDP:
    """STDP by which each spike moves the neuron's weights, of length one, by about ``lr``."""
    tc = TC_TRACE * model.interval
    lr = lr / (TC_TRACE * model.norm)  # an image's traces have this length
    return STDP(lr, -0.3 * lr, tc_post=tc, tc_pre=tc)


def learn(
    data: Split, seed: int, args: argparse.Namespace, weights: Tensor | None = None
) -> tuple[float, float, pl.Trainer]:
    """Trains one network; gives test accuracy, samples per second and its Trainer."""
    pl.seed_everything(seed, verbose=False)
    model = DiehlCook(data.train_images, args.neurons, args.batch_size, args.rate, weights)
    rule = learning_rule(args.lr if weights is None else 0.0, model)
    cells, shows = {"input": CellSpec("fc", "lif")}, weights is None and not seed  # one table
    learner = CellTrainerCallback(rule, cells, summary=shows, **OPTIONS)
    probe = OnlineProbe("lif", 10, "bayes", time_dim=0)
    trainer = pl.Trainer(
        max_epochs=args.epochs if weights is None else 1,  # only the readout learns
        accelerator="cpu",
        logger=TensorBoardLogger(args.log_dir, name="digits_stdp"),
        callbacks=[learner, probe, UpdatePictures(every_n_logs=1), LearningRateMonitor()],
        log_every_n_steps=10,
        enable_model_summary=False,
        enable_progress_bar=False,  # `compare` says when a network has learned
    )
    return *fit_and_read(trainer, model, data, args.batch_size), trainer


def main(argv: Sequence[str] | None = None) -> None:
    results, logs = compare(learn, command_line(__doc__, LR, argv))
    report(*results)
    print(f"look at it with: tensorboard --logdir {logs}")


if __name__ == "__main__":
    main()

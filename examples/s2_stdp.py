"""A spiking layer learns digits from labels: of its neurons, the first to spike decides.

After Goupy et al. (2024, doi:10.3389/fnins.2024.1401690 and arXiv:2410.17066), on features that do
not learn: patches of images as filters, whose stronger answers spike earlier. Each digit has five
neurons, of which the first to spike learns. It should spike before the mean of all digits' first
spikes if it is of the image's digit, and after it otherwise. The error is how much too late it is:
inputs that spiked by then change in proportion, those that spike later by the opposite. Thresholds
of neurons that win for their digit rise while it learns, so that the others get their turn.

Controls know the labels too: neurons whose weights are random or five centres of k-means of each
digit, each with the threshold that is best on a fifth of the images to train on, the nearest of
these centres, and the span of five vectors of each digit. Simple methods on the same features do
better: a linear readout, which is ten neurons, and the nearest of all images. The picture shows how
early each neuron, a row, spikes for each image, a column, by its digit.

    python examples/s2_stdp.py [--seeds 5] [--picture s2_stdp.png] [--short]
"""

from __future__ import annotations

import time
from functools import partial

import lightning.pytorch as pl
import torch
from _controls import (
    best,
    by_classes,
    linear,
    nearest_sample,
    nearest_subspace,
    of_each_class,
    repeated,
    ridge,
    share,
)
from _data import Split, load_mnist5k
from _experiment import arguments, report, spread
from _local import Local, see
from _quiet import quiet
from conv_wta import Layer
from matplotlib.image import imsave
from torch import Tensor
from torch.nn.functional import normalize, one_hot
from torch.optim.lr_scheduler import ExponentialLR

from lightning_accum import CellSpec, Clamp, DeltaRule, Normalize, attach_updater
from lightning_accum.nn import LIF, Linear, WinnerTakeAll

STEPS, GAP = 40, 1.0  # of an image, and by how many the right digit should come first
EACH, EPOCHS = 5, 10  # neurons for each digit, and how often each image is seen


def first_spikes(features: Tensor) -> Tensor:
    """The step in which each feature spikes; STEPS: never."""
    weaker = 1 - features / features.amax(1, keepdim=True)
    return (weaker * STEPS / 0.9).long().clamp(max=STEPS)  # the weakest tenth: never


def seen(filters: Layer, images: Tensor) -> Tensor:
    """When the features of images ``[N, H, W]`` spike."""
    return first_spikes(filters.features(images[:, None]))


class FirstOfEachDigit:
    """Inhibition: the first neuron of a digit to spike silences the others of that digit."""

    def select(self, excess: Tensor, spikes: Tensor) -> None:
        excess, spikes = (x.view(-1, EACH) for x in (excess, spikes))
        best, winner = excess.max(1, keepdim=True)
        spikes.zero_().scatter_(1, winner, (best >= 0).float())

    def suppress(self, spikes: Tensor, v: Tensor, hold: Tensor) -> None:
        fired = spikes.view(-1, EACH).amax(1, keepdim=True).expand(-1, EACH)
        torch.maximum(hold, STEPS * fired.reshape(v.shape), out=hold)


class Decision(Local):
    """Spikes of features → plastic connection → neurons, of which the first to spike decides."""

    def __init__(self, times: Tensor, weight: Tensor, share: float = 0.4) -> None:
        super().__init__()
        neurons, inputs = weight.shape
        self.fc = Linear(inputs, neurons, bias=False).requires_grad_(False)
        self.fc.weight.copy_(weight)
        spikes = (times < STEPS).sum(1).float().mean()  # of an image
        threshold = share * (spikes * weight.mean()).item()
        self.lif = LIF(neurons, 1e6, threshold, refractory=STEPS, time_dim=0)
        self.lif.inhibition = WinnerTakeAll(STEPS)
        self.register_buffer("rise", torch.zeros(10, EACH))  # of thresholds, for their digit
        updater = attach_updater(self.fc, "weight")
        updater.register_constraint(Clamp(0.0, 1.0))
        updater.register_constraint(Normalize(norm=0.5 * inputs, order=1))

    def forward(self, times: Tensor, rise: Tensor | float = 0.0) -> Tensor:
        """Spikes ``[T, B, neurons]``; the last step drives all neurons, so that each can spike."""
        self.lif.reset()
        currents = self.fc(times == torch.arange(STEPS).view(-1, 1, 1))
        currents[0] -= rise  # without a leak as good as a higher threshold
        currents[-1] += 100 * self.lif.v_threshold
        return self.lif(currents)

    def training_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> dict[str, Tensor]:
        times, digit = batch[0], one_hot(batch[1], 10).float()
        spikes = self(times, (self.rise * digit[:, :, None]).flatten(1))
        won = spikes.sum(0).view(-1, 10, EACH) * digit[:, :, None]
        rise = 0.003 * self.lif.v_threshold * (won - won.mean(2, keepdim=True)).sum(0)
        self.rise.add_(rise).clamp_(min=0)
        when = spikes.argmax(0).view(-1, 10, EACH).sum(2).float()
        desired = when.mean(1, keepdim=True) - GAP * (digit - 0.1)
        late = ((when - desired) / STEPS).repeat_interleave(EACH, 1)
        # The rule multiplies an error by the inputs' spikes up to its step. Those by the neuron's
        # own spike count twice, and all once with the opposite sign: so 1 by then and -1 after it.
        error = -2 * late * spikes
        error[-1] += late * spikes.sum(0)
        return {"error": error}

    def on_train_epoch_start(self) -> None:
        self.rise.zero_()

    def learn(self, times: Tensor, labels: Tensor, lr: float = 0.2) -> None:
        """Sees each image ten times, at rates that fall to an eighth."""
        slower = {"lr_scheduler": partial(ExponentialLR, gamma=0.8), "lr_interval": "epoch"}
        options = {"batch_size": 10, "epochs": EPOCHS, "input_keys": ["error"], **slower}
        self.lif.inhibition = FirstOfEachDigit()
        options |= {"time_dim": 0, "batch_reduction": "sum"}
        see(self, DeltaRule(lr), CellSpec("fc", "lif"), times, labels, **options)
        self.lif.inhibition = WinnerTakeAll(STEPS)

    def accuracy(self, times: Tensor, labels: Tensor) -> float:
        """Share in percent of images whose first spike is of a neuron of their digit."""
        first = torch.cat([self(part).sum(0).argmax(1) for part in times.split(100)])
        return share(first * 10 // len(self.fc.weight), labels)


def as_weights(early: Split, seed: int, spherical: bool) -> float:
    """Neurons whose weights are five centres of each digit, with the best of some thresholds."""

    def reached(part: Split, weight: Tensor, level: float) -> float:
        times = part.map(lambda found: STEPS - found.long())
        layer = Decision(times.train_images, normalize(weight), level)
        return layer.accuracy(times.test_images, times.test_labels)

    inner = early.inner()
    some = of_each_class(inner, EACH, seed, spherical)
    level = best((0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0), lambda level: reached(inner, some, level))
    return reached(early, of_each_class(early, EACH, seed, spherical), level)


def without_learning(early: Split, seed: int) -> dict[str, float]:
    """Test accuracies of what does not learn by the rule."""
    found = {"span of five vectors of each digit": nearest_subspace(early, EACH)}
    for kind in ("k-means", "spherical k-means"):
        spherical = kind == "spherical k-means"
        found[f"centres of {kind} as weights"] = as_weights(early, seed, spherical)
        found[f"nearest centre of {kind}"] = by_classes(early, EACH, seed, spherical)
    return found


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, 200 images", fold=0)
    quiet()
    torch.set_num_threads(1)
    data = load_mnist5k(args.fold)
    data = data.first(200) if args.short else data
    learned, untrained, seconds = list[float](), list[float](), 0.0
    for seed in range(args.seeds):
        pl.seed_everything(seed, verbose=False)
        filters = Layer(data.train_images[:, None], 128, 7)
        times = data.map(partial(seen, filters))
        (train, test), labels = times[::2], data.test_labels
        net = Decision(train, 0.5 + 0.01 * torch.randn(10 * EACH, train.shape[1]))
        untrained.append(net.accuracy(test, labels))
        seconds -= time.process_time()
        net.learn(train, data.train_labels)
        seconds += time.process_time()
        learned.append(net.accuracy(test, labels))
        if seed == 0:  # what is fitted once counts for each seed
            early = times.map(lambda when: (STEPS - when).float())
            once = without_learning(early, seed)
            simple = {"linear readout": linear(early), "ridge regression": ridge(early)}
            simple["nearest image"] = nearest_sample(early)
    controls = {"untrained": spread(untrained), **repeated(once, args.seeds)}
    speed = args.seeds * EPOCHS * len(train) / seconds
    report(spread(learned), speed, controls, repeated(simple, args.seeds))
    net.lif.inhibition = None
    when = net(test[data.test_labels.argsort()]).argmax(0).float()
    early = (when.mean(1, keepdim=True) - when)[:: max(1, len(when) // 250)]
    imsave(args.picture, early.T.repeat_interleave(3, 0).numpy(), cmap="Greys_r", vmin=-4, vmax=4)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()

"""A spiking layer learns digits from labels: of its neurons, the first to spike decides.

After Goupy et al. (2024, doi:10.3389/fnins.2024.1401690 and arXiv:2410.17066), on features that do
not learn: patches of images as filters, whose stronger answers spike earlier. Each digit has five
neurons, of which the first to spike learns. It should spike before the mean of all digits' first
spikes if it is of the image's digit, and after it otherwise. The error is how much too late it is:
inputs that spiked by then change in proportion, those that spike later by the opposite. Thresholds
of neurons that win for their digit rise while it learns, so that the others get their turn.

What does not learn is beside it: neurons whose weights are random, the mean of a digit, or centres
of k-means, five of each digit, with the threshold that suits them best, and the nearest of these
centres. Not a control, but what could be reached: a linear readout by backpropagation.

    python examples/s2_stdp.py [--seeds 5] [--picture s2_stdp.png] [--short]
"""

from __future__ import annotations

import time
from functools import partial

import lightning.pytorch as pl
import torch
from _data import Split, load_mnist5k
from _local import Local, see
from _quiet import quiet
from _readout import linear_accuracy
from _result import arguments, report, save, spread
from conv_wta import Layer
from matplotlib.figure import Figure
from sklearn.cluster import KMeans
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot
from torch.optim.lr_scheduler import ExponentialLR

from lightning_accum import CellSpec, Clamp, DeltaRule, Normalize, attach_updater
from lightning_accum.nn import LIF, Linear, WinnerTakeAll

STEPS, EACH, EPOCHS = 20, 5, 15  # of an image, neurons for each digit, and sights of each image
GAP = 0.5  # by how many steps a digit should come before the others


def first_spikes(features: Tensor) -> Tensor:
    """The step in which each feature spikes; STEPS: never."""
    weaker = 1 - features / features.amax(1, keepdim=True)
    return (weaker * STEPS / 0.8).long().clamp(max=STEPS)  # the weakest fifth: never


def steps_of(spikes: Tensor) -> Tensor:
    """The step in which the first neuron of each digit spikes, ``[B, 10]``."""
    return spikes.argmax(0).view(-1, 10, EACH).sum(2).float()


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

    def __init__(self, times: Tensor, share: float = 0.4, weight: Tensor | None = None) -> None:
        super().__init__()
        inputs = times.shape[1]
        spikes = (times < STEPS).sum(1).float().mean().item()  # of an image
        neurons = 10 * EACH if weight is None else len(weight)
        self.fc = Linear(inputs, neurons, bias=False).requires_grad_(False)
        nn.init.normal_(self.fc.weight, 0.5, 0.01)
        if weight is not None:
            self.fc.weight.copy_(weight)
        threshold = share * spikes * self.fc.weight.mean().item()
        self.lif = LIF(neurons, 1e6, threshold, refractory=STEPS, time_dim=0)
        self.lif.inhibition = WinnerTakeAll(STEPS)
        self.register_buffer("rise", torch.zeros(10, EACH))  # of thresholds, for their digit
        updater = attach_updater(self.fc, "weight")
        updater.register_constraint(Clamp(0.0, 1.0))
        updater.register_constraint(Normalize(norm=0.5 * inputs, order=1))

    def forward(self, times: Tensor, rise: Tensor | None = None) -> Tensor:
        """Spikes ``[T, B, neurons]``; the last step drives all neurons, so that each can spike."""
        self.lif.reset()
        currents = self.fc(times == torch.arange(STEPS).view(-1, 1, 1))
        if rise is not None:
            currents[0] -= rise  # without a leak as good as a higher threshold
        currents[-1] += 100 * self.lif.v_threshold
        return self.lif(currents)

    def training_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> dict[str, Tensor]:
        times, digit = batch[0], one_hot(batch[1], 10).float()
        spikes = self(times, (self.rise * digit[:, :, None]).flatten(1))
        fired = spikes.sum(0)
        won = fired.view(-1, 10, EACH) * digit[:, :, None]
        rise = 0.003 * self.lif.v_threshold * (won - won.mean(2, keepdim=True)).sum(0)
        self.rise.add_(rise).clamp_(min=0)
        when = steps_of(spikes)
        late = (when - when.mean(1, keepdim=True) + GAP * (digit - 0.1)) / STEPS
        late = late.repeat_interleave(EACH, 1)
        # The rule sums errors times what spiked until then: twice by then, less all, which leaves
        # what spiked by then less what spikes later.
        error = -2 * late * spikes
        error[-1] += late * fired
        return {"error": error}

    def on_train_epoch_start(self) -> None:
        self.rise.zero_()

    def learn(self, times: Tensor, labels: Tensor, lr: float = 0.2) -> None:
        """Sees each image fifteen times, at rates that fall to a tenth."""
        rule = DeltaRule(lr, batch_reduction="sum", time_dim=0)
        slower = {"lr_scheduler": partial(ExponentialLR, gamma=0.85), "lr_interval": "epoch"}
        options = {"batch_size": 10, "epochs": EPOCHS, "input_keys": ["error"], **slower}
        self.lif.inhibition = FirstOfEachDigit()
        see(self, rule, CellSpec("fc", "lif"), times, labels, **options)
        self.lif.inhibition = WinnerTakeAll(STEPS)

    def accuracy(self, times: Tensor, labels: Tensor) -> float:
        """Share in percent of images whose first spike is of a neuron of their digit."""
        first = torch.cat([self(part).sum(0).argmax(1) for part in times.split(100)])
        return 100 * (first * 10 // len(self.fc.weight) == labels).float().mean().item()


def centres(times: Tensor, labels: Tensor, each: int, seed: int) -> Tensor:
    """Centres of k-means of how early features spike, so many for each digit."""
    early = (STEPS - times).float()
    found = [KMeans(each, n_init=3, random_state=seed).fit(early[labels == d]) for d in range(10)]
    return torch.cat([torch.as_tensor(each.cluster_centers_).float() for each in found])


def without_learning(data: Split, train: Tensor, test: Tensor, seed: int) -> dict[str, float]:
    """Test accuracies of neurons that do not learn, with the best of some thresholds."""
    means, middle = (centres(train, data.train_labels, each, seed) for each in (1, EACH))
    weights = {"random weights": torch.rand(len(middle), train.shape[1])}
    weights |= {"means of digits as weights": means, "centres of k-means as weights": middle}
    found = {}
    for name, weight in weights.items():
        layers = (Decision(train, share, normalize(weight)) for share in (0.2, 0.4, 0.6, 0.8, 1.0))
        found[name] = max(layer.accuracy(test, data.test_labels) for layer in layers)
    nearest = torch.cdist((STEPS - test).float(), middle).argmin(1) // EACH
    right = (nearest == data.test_labels).float().mean().item()
    return {**found, "nearest centre of k-means": 100 * right}


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, 100 images", split=0)
    quiet()
    torch.set_num_threads(1)
    data = load_mnist5k(args.split)
    data = data.first(100) if args.short else data
    learned, linear, seconds = list[float](), list[float](), 0.0
    controls = dict[str, list[float]]()
    for seed in range(args.seeds):
        pl.seed_everything(seed, verbose=False)
        filters = Layer(data.train_images[:, None], 128, 7)
        seen = [filters.features(x[:, None]) for x in (data.train_images, data.test_images)]
        train, test = map(first_spikes, seen)
        net = Decision(train)
        seconds -= time.process_time()
        net.learn(train, data.train_labels)
        seconds += time.process_time()
        learned.append(net.accuracy(test, data.test_labels))
        linear.append(linear_accuracy(data, *((STEPS - times).float() for times in (train, test))))
        for name, value in without_learning(data, train, test, seed).items():
            controls.setdefault(name, []).append(value)
    print(f"a linear readout by backpropagation: {spread(linear)}")
    speed = args.seeds * EPOCHS * len(train) / seconds
    report(spread(learned), speed, {name: spread(each) for name, each in controls.items()})
    net.lif.inhibition = FirstOfEachDigit()
    when, own = steps_of(net(test)), one_hot(data.test_labels, 10) > 0
    figure = Figure(figsize=(5, 2.5), layout="constrained")
    axes = figure.subplots()
    labels = ["the image's digit", "other digits"]
    axes.hist([when[own], when[~own]], range(STEPS + 1), density=True, label=labels)
    axes.set(xlabel="step of the first spike, of test images", ylabel="share")
    axes.legend()
    save(figure, args.picture, dpi=80)


if __name__ == "__main__":
    main()

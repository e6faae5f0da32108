"""Learns the filters of a spiking convolution from MNIST by spike-timing-dependent plasticity.

After Kheradpisheh et al. (2018, doi:10.1016/j.neunet.2017.12.005): the stronger a light or dark
spot, the earlier it spikes, once. At each place the first neuron to spike learns and silences those
of the other maps. Inputs that spiked before it gain weight, those that spike after it lose. Then a
linear readout learns digits from how early each map spiked in 4 × 4 windows, without competition.
The same readout reads maps whose filters did not learn: random ones, patches of the images and
centres of k-means of patches, each with the threshold that is best for it on images to train on.

    python examples/conv_stdp.py [--seeds 5] [--picture conv_stdp.png] [--short]
"""

from __future__ import annotations

import time

import lightning.pytorch as pl
import torch
from _controls import Readouts, best, k_means, linear, simple_methods
from _data import Split, load_mnist5k
from _experiment import arguments, report, save, spread
from _local import Local, see
from _quiet import quiet
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import conv2d, max_pool2d

from lightning_accum import STDP, CellSpec, Clamp, Normalize, attach_updater
from lightning_accum.nn import LIF, Conv2d

STEPS, MAPS, PLACES = 12, 32, 28 * 28


def spots(images: Tensor) -> Tensor:
    """The step in which each light and dark spot of images ``[N, H, W]`` spikes; STEPS: never."""
    square = torch.arange(-3.0, 4.0).square()
    narrow, wide = ((-(square[:, None] + square) / (2 * s * s)).exp() for s in (1.0, 2.0))
    spot = narrow / narrow.sum() - wide / wide.sum()
    found = conv2d(images[:, None], torch.stack([spot, -spot])[:, None], padding=3).relu()
    weaker = 1 - found / found.amax((1, 2, 3), keepdim=True)
    return (weaker * STEPS / 0.8).long().clamp(max=STEPS)  # the weakest fifth: never


class FirstAtEachPlace:
    """Inhibition: the first neuron to spike at a place silences the other maps there."""

    def select(self, excess: Tensor, spikes: Tensor) -> None:
        excess, spikes = (x.view(len(x), MAPS, PLACES) for x in (excess, spikes))
        best, winner = excess.max(1, keepdim=True)
        spikes.zero_().scatter_(1, winner, (best >= 0).float())

    def suppress(self, spikes: Tensor, v: Tensor, hold: Tensor) -> None:
        fired = spikes.view(len(v), MAPS, PLACES).amax(1, keepdim=True)
        torch.maximum(hold, STEPS * fired.expand(-1, MAPS, -1).reshape(v.shape), out=hold)


class Network(Local):
    """Spots → plastic convolution → integrate-and-fire neurons, each of which spikes once."""

    def __init__(self, threshold: float = 2.0) -> None:
        super().__init__()
        self.conv = Conv2d(2, MAPS, 5, padding=2, bias=False).requires_grad_(False)
        self.lif = LIF((MAPS, 28, 28), 1e6, threshold, refractory=STEPS, time_dim=0)
        nn.init.uniform_(self.conv.weight)
        updater = attach_updater(self.conv, "weight")
        for constraint in (Clamp(min=0.0), Normalize(norm=1.0, order=2)):
            constraint(self.conv.weight)
            updater.register_constraint(constraint)

    def forward(self, times: Tensor) -> Tensor:
        """Spikes ``[T, B, MAPS, H, W]`` of spots that spike at ``times``."""
        self.lif.reset()
        return self.lif(self.conv((times == torch.arange(STEPS).view(-1, 1, 1, 1, 1)).float()))

    def learn(self, times: Tensor, lr: float = 8.0) -> None:
        """Sees each image once."""
        # What counts is before or after, not how long. Changes at all places of a map add up.
        rule = STDP(lr / PLACES, -lr / PLACES, tc_pre=1e6, tc_post=1e6)
        self.lif.inhibition = FirstAtEachPlace()
        see(self, rule, CellSpec("conv", "lif"), times, batch_size=5, time_dim=0)
        self.lif.inhibition = None

    def copy(self, times: Tensor, centres: bool = False) -> None:
        """Takes patches of images, or centres of k-means of them, as filters without learning."""
        patches = (STEPS - times).unfold(2, 5, 1).unfold(3, 5, 1).transpose(1, 3).flatten(0, 2)
        full = (patches > 0).sum((1, 2, 3)).float()  # the fuller, the likelier
        some = patches[torch.multinomial(full, 100 * MAPS if centres else MAPS)].float()
        found = k_means(some, MAPS, 0, spherical=True) if centres else some
        self.conv.weight.copy_(found.view_as(self.conv.weight))
        Normalize(norm=1.0, order=2)(self.conv.weight)

    def early(self, times: Tensor, window: int, stride: int) -> Tensor:
        """How many steps before the end each map first spikes in windows, without inhibition."""
        found = []
        for part in times.split(50):
            early = torch.zeros(())
            for step in range(STEPS):  # without a leak, all that came until then adds up
                early = early + (self.conv((part <= step).float()) >= self.lif.v_threshold)
            found.append(max_pool2d(early, window, stride).flatten(1))
        return torch.cat(found)

    def features(self, times: Tensor) -> Tensor:
        """How early each map first spikes in 4 × 4 windows of 10 × 10."""
        return self.early(times, 10, 6)


def fixed(start: str, seen: Split) -> Network:
    """A network that does not learn."""
    net = Network()
    if start != "random":
        net.copy(seen.train_images[:500], start == "centres of k-means")
    return net


def threshold_for(net: Network, seen: Split) -> float:
    """The threshold with which a linear readout reads most of a fifth of 1,000 images."""
    some = seen._replace(
        train_images=seen.train_images[:1000], train_labels=seen.train_labels[:1000]
    ).inner()

    def reached(threshold: float) -> float:
        net.lif.v_threshold = threshold
        return linear(some.map(net.features))

    return best((1.0, 2.0, 3.0, 4.0), reached)


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, 200 images", fold=0)
    quiet()
    torch.set_num_threads(1)
    data = load_mnist5k(args.fold)
    data = data.first(200) if args.short else data
    seen = data.map(spots)
    readouts, thresholds, seconds = Readouts(), dict[str, float](), 0.0
    for seed in range(args.seeds):
        for start in ("random", "patches", "centres of k-means"):
            pl.seed_everything(seed, verbose=False)
            net = fixed(start, seen)
            if start not in thresholds:
                thresholds[start] = threshold_for(net, seen)
            net.lif.v_threshold = thresholds[start]
            readouts.add(f"{start} as filters", seen.map(net.features))
        pl.seed_everything(seed, verbose=False)
        net = Network()
        some = seen.train_images[:1000]
        seconds -= time.process_time()
        net.learn(some)
        seconds += time.process_time()
        readouts.add("learned", seen.map(net.features))
    print(f"thresholds: {thresholds}, of the filters that learn {net.lif.v_threshold}")
    result = spread(readouts.reached.pop("learned"))
    controls = {kind: spread(reached) for kind, reached in readouts.reached.items()}
    report(result, args.seeds * len(some) / seconds, controls, simple_methods(data, args.seeds))
    figure = Figure(figsize=(6, 3), layout="constrained")
    for axes, (light, dark) in zip(figure.subplots(4, 8).flat, net.conv.weight, strict=True):
        axes.imshow(light - dark, cmap="Greys_r")
        axes.axis("off")
    save(figure, args.picture, dpi=80)


if __name__ == "__main__":
    main()

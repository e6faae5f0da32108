"""Learns filters from MNIST without labels, by competition at each place of a convolution.

The filter that answers most moves towards what it sees (Rumelhart & Zipser 1985,
doi:10.1207/s15516709cog0901_5). Weights keep a sum of zero and a length of one, so that neither
brightness nor contrast decides. Then a linear readout learns digits from each filter's largest
answers in windows that overlap. The same readout reads filters that did not learn: noise, patches
of the images, and centres of k-means of patches. With `--pooling 0`, it reads the answers in the
middle of each window.

    python examples/conv_wta.py [--seeds 5] [--pooling 0] [--picture conv_wta.png] [--short]
"""

from __future__ import annotations

import time

import lightning.pytorch as pl
import torch
from _controls import Readouts, k_means, simple_methods
from _data import load_mnist5k
from _experiment import arguments, report, spread
from _local import Local, see
from _quiet import quiet
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, unfold

from lightning_accum import CellSpec, Normalize, WTAHebb, attach_updater


def centre(filters: Tensor) -> None:
    """A constraint: the weights of each filter sum to zero."""
    filters -= filters.mean((1, 2, 3), keepdim=True)


def patches(images: Tensor, side: int, number: int) -> Tensor:
    """Patches of up to 500 images, ``[number, side * side]``, the more varied the likelier."""
    some = images[torch.randperm(len(images))[:500]]
    every = unfold(some, side).transpose(1, 2).flatten(0, 1)
    return every[torch.multinomial(every.var(1), number)]  # none that is empty


class Layer(Local):
    """A convolution whose filters compete; they start with patches of the images, or noise."""

    def __init__(self, images: Tensor, filters: int, side: int, start: str = "patches") -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, filters, side, padding=side // 2, bias=False).requires_grad_(False)
        self.answers = nn.Identity()
        some = torch.randn(filters, side * side)
        if start != "noise":
            some = patches(images, side, filters if start == "patches" else 100 * filters)
        if start == "centres of k-means":
            some = k_means(some - some.mean(1, keepdim=True), filters, 0, spherical=True)
        self.conv.weight.copy_(some.view_as(self.conv.weight))
        updater = attach_updater(self.conv, "weight")
        for constraint in (centre, Normalize(norm=1.0, order=2)):
            constraint(self.conv.weight)
            updater.register_constraint(constraint)

    def forward(self, images: Tensor) -> Tensor:
        """The answers of all filters at all places."""
        return self.answers(self.conv(images))

    def learn(self, images: Tensor) -> None:
        """Sees each image once; changes add up over its places and are averaged over a batch."""
        rule = WTAHebb(lr=4 / images[0].numel())
        see(self, rule, CellSpec("conv", "answers"), images, batch_size=10)

    @torch.no_grad()
    def features(self, images: Tensor, pooling: bool = True) -> Tensor:
        """The largest answer of each filter in 4 × 4 windows of 10 × 10 places, or the middle's."""
        found = []
        for part in images.split(100):
            answers = self(part)
            read = max_pool2d(answers, 10, 6) if pooling else answers[..., 5::6, 5::6]
            found.append(read.relu().flatten(1))
        return torch.cat(found)


def main() -> None:
    options = {"filters": 128, "fold": 0, "pooling": 1}
    args = arguments(__doc__, __file__, short="one seed, 200 images", **options)
    quiet()
    torch.set_num_threads(1)
    data = load_mnist5k(args.fold)
    data = (data.first(200) if args.short else data).map(lambda images: images[:, None])
    readouts, seconds = Readouts(), 0.0

    def read(kind: str, layer: Layer) -> None:
        readouts.add(kind, data.map(lambda images: layer.features(images, bool(args.pooling))))

    for seed in range(args.seeds):
        for start in ("noise", "centres of k-means", "patches"):
            pl.seed_everything(seed, verbose=False)
            layer = Layer(data.train_images, args.filters, 7, start)
            read(f"{start} as filters", layer)
        seconds -= time.process_time()
        layer.learn(data.train_images)
        seconds += time.process_time()
        read("learned", layer)
    result = spread(readouts.reached.pop("learned"))
    controls = {kind: spread(reached) for kind, reached in readouts.reached.items()}
    speed = args.seeds * len(data.train_images) / seconds
    report(result, speed, controls, simple_methods(data, args.seeds))
    figure = Figure(figsize=(5, 5), layout="constrained")
    for axes, weights in zip(figure.subplots(8, 8).flat, layer.conv.weight, strict=False):
        axes.imshow(weights[0].numpy(), cmap="Greys_r")
        axes.axis("off")
    figure.savefig(args.picture, dpi=80)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()

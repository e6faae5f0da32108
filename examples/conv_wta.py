"""Learns filters from MNIST without labels, by competition at each place of a convolution.

The filter that answers most moves towards what it sees (Rumelhart & Zipser 1985,
doi:10.1207/s15516709cog0901_5). Weights keep a sum of zero and a length of one, so that neither
brightness nor contrast decides. Then a linear readout learns digits from each filter's largest
answers in windows that overlap, of the images and of the images shifted by one pixel. Beside it are
readouts of the pixels, and of filters that did not learn: patches of the images, and noise.

    python examples/conv_wta.py [--seeds 5] [--picture conv_wta.png] [--short]
"""

from __future__ import annotations

import time

import lightning.pytorch as pl
import torch
from _data import load_mnist5k
from _linear_readout import linear_accuracy
from _local import Local, see
from _quiet import quiet
from _result import arguments, report, spread
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, unfold

from lightning_accum import CellSpec, Normalize, WTAHebb, attach_updater


def centre(filters: Tensor) -> None:
    """A constraint: the weights of each filter sum to zero."""
    filters -= filters.mean((1, 2, 3), keepdim=True)


class Layer(Local):
    """A convolution whose filters compete; they start with patches of the images, or noise."""

    def __init__(self, images: Tensor, filters: int, side: int, noise: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, filters, side, padding=side // 2, bias=False).requires_grad_(False)
        self.answers = nn.Identity()
        some = images[torch.randperm(len(images))[:100]]
        patches = unfold(some, side).transpose(1, 2).flatten(0, 1)
        chosen = torch.multinomial(patches.var(1), filters)  # none that is empty
        start = torch.randn(filters, side * side) if noise else patches[chosen]
        self.conv.weight.copy_(start.view_as(self.conv.weight))
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
    def features(self, images: Tensor) -> Tensor:
        """The largest answer of each filter in 4 × 4 windows of 10 × 10 places."""
        parts = (max_pool2d(self(part), 10, 6).relu() for part in images.split(100))
        return torch.cat([part.flatten(1) for part in parts])


def shifted(images: Tensor) -> Tensor:
    """Images as they are, and shifted by one pixel to the right, left, below and above."""
    # What leaves on one side comes in on the other: at the edges of these images there is nothing.
    copies = [images.roll(by, dim) for dim in (-1, -2) for by in (1, -1)]
    return torch.cat([images, *copies])


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, 100 images", filters=128, fold=0)
    quiet()
    torch.set_num_threads(1)
    data = load_mnist5k(args.fold)
    data = data.first(100) if args.short else data
    train, test = data.train_images[:, None], data.test_images[:, None]
    more = shifted(train)
    pixels = linear_accuracy(data, more.flatten(1), test.flatten(1))
    rows, seconds = dict[str, list[float]](), 0.0

    def read(title: str, layer: Layer, images: Tensor) -> None:
        found = layer.features(images), layer.features(test)
        rows.setdefault(title, []).append(linear_accuracy(data, *found))

    for seed in range(args.seeds):
        for title in ("noise", "patches"):
            pl.seed_everything(seed, verbose=False)
            layer = Layer(train, args.filters, 7, noise=title == "noise")
            read(title, layer, more)
        seconds -= time.process_time()
        layer.learn(train)
        seconds += time.process_time()
        read("learned", layer, more)
        read("learned, no shifts", layer, train)
    print(f"test accuracy of a linear readout: pixels {pixels:.1f} %")
    for title, values in rows.items():
        print(f"  {title:19s} {spread(values)}")
    controls = {f"{title} as filters": spread(rows[title]) for title in ("noise", "patches")}
    report(spread(rows["learned"]), args.seeds * len(train) / seconds, controls)
    figure = Figure(figsize=(5, 5), layout="constrained")
    for axes, weights in zip(figure.subplots(8, 8).flat, layer.conv.weight, strict=False):
        axes.imshow(weights[0].numpy(), cmap="Greys_r")
        axes.axis("off")
    figure.savefig(args.picture, dpi=80)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()

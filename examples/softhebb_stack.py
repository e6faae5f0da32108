"""Learns two layers of convolutions from MNIST by soft competition, one after the other.

After Journé et al. (2022, arXiv:2209.11883), at a small size. Filters approach patches, each by its
share of a softmax. The next layer sees by how much they exceed the mean answer at a place, pooled.
A linear readout learns digits from both layers. The same readout reads filters that did not learn:
noise, patches of what a layer sees, with which learning starts, and centres of k-means of patches.

    python examples/softhebb_stack.py [--seeds 5] [--picture softhebb_stack.png] [--short]
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
from torch.nn.functional import conv2d, max_pool2d, normalize, unfold

from lightning_accum import CellSpec, SoftHebb

SIZES = ((64, 5), (128, 5))  # of each layer: filters, and their side


def patches(images: Tensor, side: int) -> Tensor:
    """Five patches of each image, with a mean of zero and a length of one."""
    found = []
    for part in images.split(100):
        every = unfold(part, side).transpose(1, 2)
        chosen = every.var(2).multinomial(5)  # none that is empty
        found.append(every.take_along_dim(chosen[..., None], 1).flatten(0, 1))
    some = torch.cat(found)
    return normalize(some - some.mean(1, keepdim=True))


class Layer(Local):
    """Filters of a convolution, which see patches to learn and whole images to answer."""

    def __init__(self, images: Tensor, filters: int, side: int, start: str = "patches") -> None:
        super().__init__()
        self.side = side
        number = filters if start == "patches" else 1000  # of images, of which are patches
        some = patches(images[torch.randperm(len(images))[:number]], side)
        if start == "centres of k-means":
            some = k_means(some, filters, 0, spherical=True)
        some = some[torch.randperm(len(some))[:filters]]
        self.filters = nn.Linear(some.shape[1], filters, bias=False).requires_grad_(False)
        noise = normalize(torch.randn_like(some))
        self.filters.weight.copy_(noise if start == "noise" else some)
        self.answers = nn.Identity()

    def forward(self, seen: Tensor) -> Tensor:
        """The answers of all filters to patches."""
        return self.answers(self.filters(seen))

    def learn(self, images: Tensor) -> None:
        """Sees five patches of each image, once."""
        rule = SoftHebb(lr=5.0, temperature=0.03)  # shares are small, and averaged over the batch
        see(self, rule, CellSpec("filters", "answers"), patches(images, self.side), batch_size=50)

    @torch.no_grad()
    def answer(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The largest answers in 4 × 4 windows, for the readout, and in 2 × 2 places, to go on."""
        weight = self.filters.weight.view(-1, images.shape[1], self.side, self.side)
        window, step = 10 * images.shape[-1] // 28, 6 * images.shape[-1] // 28
        windows, places = [], []
        for part in images.split(200):
            answers = conv2d(part, weight, padding=self.side // 2)
            answers = (answers - answers.mean(1, keepdim=True)).relu()
            windows.append(max_pool2d(answers, window, step).flatten(1))
            places.append(max_pool2d(answers, 2))
        return torch.cat(windows), torch.cat(places)


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, 200 images", fold=0)
    quiet()
    torch.set_num_threads(1)
    data = load_mnist5k(args.fold)
    data = (data.first(200) if args.short else data).map(lambda images: images[:, None])
    readouts, seconds = Readouts(), 0.0
    for seed in range(args.seeds):
        for start in ("noise", "centres of k-means", "patches", "learned"):
            pl.seed_everything(seed, verbose=False)
            seen, layers, found = data, list[Layer](), []
            for filters, side in SIZES:
                begin = "patches" if start == "learned" else start
                layers.append(Layer(seen.train_images, filters, side, begin))
                if start == "learned":
                    seconds -= time.process_time()
                    layers[-1].learn(seen.train_images)
                    seconds += time.process_time()
                (to_train, train), (to_test, test) = map(layers[-1].answer, seen[::2])
                found.append((to_train, to_test))
                seen = seen._replace(train_images=train, test_images=test)
            train, test = (torch.cat(part, 1) for part in zip(*found, strict=True))
            readouts.add(start, data._replace(train_images=train, test_images=test))
    result = spread(readouts.reached.pop("learned"))
    controls = {f"{kind} as filters": spread(x) for kind, x in readouts.reached.items()}
    speed = args.seeds * len(data.train_images) / seconds
    report(result, speed, controls, simple_methods(data, args.seeds))
    figure = Figure(figsize=(5, 5), layout="constrained")
    for axes, weights in zip(figure.subplots(8, 8).flat, layers[0].filters.weight, strict=True):
        axes.imshow(weights.view(SIZES[0][1], -1).numpy(), cmap="Greys_r")
        axes.axis("off")
    figure.savefig(args.picture, dpi=80)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()

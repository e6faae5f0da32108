"""Learns filters from MNIST without labels, by competition at each place of a convolution.

The filter that answers most moves towards what it sees (Rumelhart & Zipser 1985,
doi:10.1207/s15516709cog0901_5). Weights keep a sum of zero and a length of one, so that neither
brightness nor contrast decides. A second layer learns from the first one's pooled answers. Then a
linear readout learns the digits from the answers of both, pooled to 4 × 4 places. Beside it are
readouts of the pixels, and of filters that stayed what they start with, patches of their input.

    python examples/conv_wta.py [--seeds 5] [--picture conv_wta.png] [--short]
"""

from __future__ import annotations

import argparse
import time

import lightning.pytorch as pl
import torch
from _data import Split, load_mnist5k
from _quiet import quiet
from _readout import linear_accuracy
from _result import report, spread
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.functional import adaptive_max_pool2d, unfold
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import CellSpec, Normalize, WTAHebb, attach_updater
from lightning_accum.callbacks import CellTrainerCallback

MUTED = dict.fromkeys(
    ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
)


def centre(filters: Tensor) -> None:
    """A constraint: the weights of each filter sum to zero."""
    filters -= filters.mean((1, 2, 3), keepdim=True)


class Layer(pl.LightningModule):
    """A convolution whose filters compete; they start with patches of its input."""

    def __init__(self, maps: Tensor, filters: int, side: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.conv = nn.Conv2d(maps.shape[1], filters, side, padding=side // 2, bias=False)
        self.conv.requires_grad_(False)
        self.answers = nn.Identity()
        patches = unfold(maps[torch.randperm(len(maps))[:100]], side).transpose(1, 2).flatten(0, 1)
        chosen = torch.multinomial(patches.var(1), filters)  # none that is empty
        self.conv.weight.copy_(patches[chosen].view_as(self.conv.weight))
        updater = attach_updater(self.conv, "weight")
        for constraint in (centre, Normalize(norm=1.0, order=2)):
            constraint(self.conv.weight)
            updater.register_constraint(constraint)

    def training_step(self, batch: tuple[Tensor], batch_idx: int) -> None:
        self.answers(self.conv(batch[0]))

    def configure_optimizers(self) -> None:
        return None

    def forward(self, maps: Tensor, size: int) -> Tensor:
        """The largest answer of each filter in each of ``size × size`` parts of the maps."""
        return torch.cat([adaptive_max_pool2d(self.conv(m), size).relu() for m in maps.split(100)])


def learn(maps: Tensor, filters: int, side: int, epochs: int) -> Layer:
    """A layer that learned from maps ``[N, C, H, W]``; as it starts, if there are no epochs."""
    layer = Layer(maps, filters, side)
    # The changes at all places of a map add up; those of a batch are averaged.
    rule = WTAHebb(lr=4 / maps[0, 0].numel())
    local = CellTrainerCallback(rule, {"layer": CellSpec("conv", "answers")}, log=False)
    trainer = pl.Trainer(max_epochs=epochs, accelerator="cpu", callbacks=[local], **MUTED)
    trainer.fit(layer, DataLoader(TensorDataset(maps), batch_size=10, shuffle=True))
    return layer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", default="conv_wta.png", help="where to draw to")
    parser.add_argument("--short", action="store_true", help="one seed, 100 images")
    args = parser.parse_args()
    quiet()
    torch.set_num_threads(1)
    data = load_mnist5k()
    if args.short:
        args.seeds, data = 1, Split(*(part[:100] for part in data))
    train, test = data.train_images[:, None], data.test_images[:, None]
    pixels = linear_accuracy(data, train.flatten(1), test.flatten(1))
    rows, seconds = {}, 0.0
    for epochs in (0, 1):
        for seed in range(args.seeds):
            pl.seed_everything(seed, verbose=False)
            start = time.process_time()
            one = learn(train, 64, 7, epochs)
            two = learn(one(train, 14), 128, 5, epochs)
            seconds += epochs * (time.process_time() - start)
            first = [one(images, 4).flatten(1) for images in (train, test)]
            second = [two(one(images, 14), 4).flatten(1) for images in (train, test)]
            both = [torch.cat(pair, 1) for pair in zip(first, second, strict=True)]
            for layers, found in (("one layer", first), ("both layers", both)):
                title = f"{layers}, {'learned' if epochs else 'patches'}"
                rows.setdefault(title, []).append(linear_accuracy(data, *found))
    print(f"test accuracy of a linear readout: pixels {pixels:.1f} %")
    for title, values in rows.items():
        print(f"  {title:22s} {spread(values)}")
    report(spread(rows["both layers, learned"]), args.seeds * len(train) / seconds)
    figure = Figure(figsize=(5, 5), layout="constrained")
    for axes, weights in zip(figure.subplots(8, 8).flat, one.conv.weight, strict=True):
        axes.imshow(weights[0].numpy(), cmap="Greys_r")
        axes.axis("off")
    figure.savefig(args.picture, dpi=80)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()

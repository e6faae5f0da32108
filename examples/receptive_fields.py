"""Learns oriented receptive fields from photographs, by Hebb's rule under competition.

Neurons look at small, whitened patches of two photographs. The neuron whose field is most like the
patch, or its negative, is the only one to answer, and learns by Hebb's rule; fields keep their
length. They turn into edges and gratings, as those of simple cells in visual cortex are (Olshausen
& Field 1996, doi:10.1038/381607a0). Two controls tell where that comes from: the fields before
learning, and those learned in the same way from the same photographs with their Fourier phases at
random, which have the same spectrum, but no edges.

    python examples/receptive_fields.py [--picture receptive_fields.png] [--short]
"""

from __future__ import annotations

import argparse
import math
from typing import NamedTuple

import lightning.pytorch as pl
import torch
from _experiment import Short
from _quiet import quiet
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import CellSpec, Hebb, Normalize, attach_updater
from lightning_accum.callbacks import CellTrainerCallback

SIDE = 16  # of a patch, in pixels
APERTURE = 5.0  # standard deviation of the window through which a patch is seen, in pixels
KEPT = 80  # principal components of a patch
ORIENTED = 0.5  # the selectivity from which on a field counts as oriented


def photographs() -> list[Tensor]:
    """The logarithm of the grey values of scikit-learn's two photographs, ``[427, 640]`` each."""
    from sklearn.datasets import load_sample_images  # type: ignore[import-untyped]

    grey = [torch.tensor(image.mean(2)).log1p() for image in load_sample_images().images]
    return [(image - image.mean()) / image.std() for image in grey]


def scrambled(image: Tensor, generator: torch.Generator) -> Tensor:
    """An image of the same power at every spatial frequency, and of the phases of white noise."""
    noise = torch.randn(image.shape, dtype=image.dtype, generator=generator)
    phases = torch.fft.rfft2(noise).angle()
    return torch.fft.irfft2(torch.polar(torch.fft.rfft2(image).abs(), phases), s=image.shape)


class Patches(NamedTuple):
    """Whitened patches ``[N, SIDE * SIDE]``, and the directions ``[KEPT, SIDE * SIDE]`` in them."""

    patches: Tensor
    directions: Tensor


def patches(images: list[Tensor], count: int, generator: torch.Generator) -> Patches:
    """Takes patches at random places, and makes their leading components equally strong.

    After that the components have no second-order structure left: what a field learns is not in how
    strong they are, nor in the correlation of two.
    """
    taken = []
    for image in images:
        views = image.unfold(0, SIDE, 1).unfold(1, SIDE, 1)
        rows, columns = (
            torch.randint(size, (count // len(images),), generator=generator)
            for size in views.shape[:2]
        )
        taken.append(views[rows, columns].flatten(1))
    found = torch.cat(taken)
    offset = torch.arange(SIDE) - (SIDE - 1) / 2
    seen = torch.exp(-(offset[:, None] ** 2 + offset**2) / (2 * APERTURE**2)).flatten()
    found = (found - found.mean(1, keepdim=True)) * seen
    contrast = found.norm(dim=1, keepdim=True)
    found /= contrast + 0.1 * contrast.mean()  # of what is nearly empty the contrast stays low
    found -= found.mean(0)
    variances, components = torch.linalg.eigh(found.T @ found / len(found))
    directions = components[:, -KEPT:].T
    white = found @ directions.T * (KEPT * variances[-KEPT:]).rsqrt() @ directions
    return Patches(white.float(), directions.float())


class Winner(nn.Module):
    """Neurons that inhibit each other until the strongest, of either sign, is the only one left."""

    def forward(self, currents: Tensor) -> Tensor:
        strongest = currents.abs().argmax(1, keepdim=True)
        return torch.zeros_like(currents).scatter(1, strongest, currents.gather(1, strongest))


class Cortex(pl.LightningModule):
    """Patches → plastic connection → neurons of which one wins."""

    def __init__(self, neurons: int, directions: Tensor) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.fc = nn.Linear(SIDE * SIDE, neurons, bias=False)
        self.winner = Winner()
        keep = Normalize(norm=1.0, order=2)
        with torch.no_grad():
            self.fc.weight.copy_(torch.randn(neurons, len(directions)) @ directions)
        keep(self.fc.weight)
        attach_updater(self.fc, "weight").register_constraint(keep)

    def training_step(self, batch: tuple[Tensor], batch_idx: int) -> None:
        self.winner(self.fc(batch[0]))

    def configure_optimizers(self) -> None:
        return None


def learn(seen: Patches, neurons: int, epochs: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The fields ``[neurons, SIDE, SIDE]`` before learning and after it."""
    pl.seed_everything(seed, verbose=False)
    model = Cortex(neurons, seen.directions)
    before = model.fc.weight.detach().clone()
    # Each neuron wins one patch in as many as there are neurons.
    local = CellTrainerCallback(Hebb(lr=0.2 * neurons), cells={"v1": CellSpec("fc", "winner")})
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[local],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(seen.patches), batch_size=100, shuffle=True))
    after = model.fc.weight.detach()
    return before.view(-1, SIDE, SIDE), after.view(-1, SIDE, SIDE)


def orientation(fields: Tensor) -> tuple[Tensor, Tensor]:
    """Selectivity, from 0 to 1, and preferred orientation, in degrees, of each field.

    Both come from where the power spectrum lies around the origin, θ: they are the length and half
    the angle of the mean Σ P exp(2iθ) / Σ P. A grating has a selectivity of one, a blob of zero;
    the orientation is that in which brightness changes, across an edge.

    Args:
        fields: ``[N, height, width]``.
    """
    size = 64
    power = torch.fft.fft2(fields - fields.mean((1, 2), keepdim=True), s=(size, size)).abs() ** 2
    frequency = torch.fft.fftfreq(size)
    down, right = frequency[:, None].expand(size, size), frequency.expand(size, size)
    power = power * (torch.hypot(down, right) < 0.5)  # a disc, that the corners count for nothing
    turns = torch.polar(torch.ones(size, size), 2 * torch.atan2(down, right))
    mean = (power * turns).sum((1, 2)) / power.sum((1, 2))
    return mean.abs(), torch.rad2deg(mean.angle() / 2)


def share_oriented(fields: Tensor) -> float:
    """The share of fields that are oriented."""
    return (orientation(fields)[0] > ORIENTED).float().mean().item()


def orientations_covered(fields: Tensor, parts: int = 8) -> int:
    """In how many equal parts of the half circle there is the preference of an oriented field."""
    selectivity, preferred = orientation(fields)
    part = torch.floor((preferred[selectivity > ORIENTED] + 90) / (180 / parts)) % parts
    return len(part.unique())


def draw(fields: dict[str, Tensor], path: str) -> None:
    """The fields in grids, the most selective first."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    for axes, (title, found) in zip(figure.subplots(1, len(fields)), fields.items(), strict=True):
        columns = math.isqrt(len(found))
        order = orientation(found)[0].argsort(descending=True)[: columns**2]
        tiles = found[order] / found[order].abs().amax((1, 2), keepdim=True)
        tiles = nn.functional.pad(tiles.view(columns, columns, SIDE, SIDE), (1, 1, 1, 1), value=1.0)
        grid = tiles.transpose(1, 2).reshape(columns * (SIDE + 2), -1)
        # Few levels of grey, for a small file.
        axes.imshow((7 * grid).round().numpy(), cmap="gray", interpolation="nearest")
        axes.set_title(f"{title}: {100 * share_oriented(found):.0f} % oriented", fontsize=10)
        axes.axis("off")
    figure.savefig(path, dpi=100, pil_kwargs={"optimize": True})


def experiment(neurons: int, count: int, epochs: int, seed: int = 0) -> dict[str, Tensor]:
    """The fields of neurons untrained, and trained on each kind of images."""
    generator = torch.Generator().manual_seed(seed)
    images = photographs()
    noise = [scrambled(image, generator) for image in images]
    before, learned = learn(patches(images, count, generator), neurons, epochs, seed)
    _, control = learn(patches(noise, count, generator), neurons, epochs, seed)
    return {"untrained": before, "photographs": learned, "scrambled phases": control}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--neurons", type=int, default=64)
    parser.add_argument("--patches", type=int, default=40_000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", default="receptive_fields.png", help="where to draw to")
    parser.add_argument("--short", action=Short, help="one seed, 10,000 patches, 3 epochs")
    args = parser.parse_args()
    if args.short:
        args.seeds, args.patches, args.epochs = 1, 10_000, 3
    quiet()
    torch.set_num_threads(1)

    size = (args.neurons, args.patches, args.epochs)
    runs = [experiment(*size, seed) for seed in range(args.seeds)]
    print(f"{args.neurons} fields, {args.epochs} epochs of {args.patches} patches, share oriented:")
    for name in runs[0]:
        shares = ", ".join(f"{100 * share_oriented(run[name]):.0f} %" for run in runs)
        median = torch.stack([orientation(run[name])[0].median() for run in runs]).mean()
        print(f"  {name:16s} {shares}; median selectivity {median:.2f}")
    covered = ", ".join(str(orientations_covered(run["photographs"])) for run in runs)
    print(f"of 8 orientations, fields learned from photographs prefer {covered}")
    draw(runs[0], args.picture)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()

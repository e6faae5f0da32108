"""Principal components of handwritten digits, learned by the rules of Oja and of Sanger.

A linear neuron under Oja's rule (1982, doi:10.1007/BF00275687) turns towards the first principal
component of its input; under Sanger's (1989, doi:10.1016/0893-6080(89)90044-0) several neurons find
the first ones, in order. Both see the digits in small batches, in a Lightning Trainer, at a rate
that falls; nothing tells them what the components are, which come from a singular value
decomposition of all digits at once and are compared with after every epoch.

    python examples/oja_pca.py [--picture oja_pca.png] [--short]
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import lightning.pytorch as pl
import torch
from _quiet import quiet
from _result import report
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import CellSpec, Oja, Rule, Sanger
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.optim import UpdateOptimizer

SIDE = 8  # of a digit, in pixels
BATCH = 20


def digits() -> Tensor:
    """scikit-learn's digits, less their mean, ``[1797, 64]``."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    images = torch.tensor(load_digits().data, dtype=torch.float32) / 16
    return images - images.mean(0)


def principal_components(data: Tensor, count: int) -> Tensor:
    """The leading components of centred data ``[N, pixels]``, each of length 1, by SVD."""
    found: Tensor = torch.linalg.svd(data, full_matrices=False).Vh
    return found[:count]


class Components(pl.LightningModule):
    """Linear neurons, whose weights are compared with the true components after every epoch.

    Args:
        truth: components ``[neurons, pixels]``.
        epochs: over which the rate falls to a thirtieth.
    """

    def __init__(self, truth: Tensor, epochs: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.fc = nn.Linear(truth.shape[1], len(truth), bias=False)
        self.neuron = nn.Identity()
        self.truth = truth
        self.epochs = epochs
        self.cosines = [self.cosine()]

    def cosine(self) -> Tensor:
        """Between each neuron's weights and its component, ``[neurons]``; the sign is free."""
        return nn.functional.cosine_similarity(self.fc.weight.detach(), self.truth).abs()

    def training_step(self, batch: tuple[Tensor], batch_idx: int) -> None:
        self.neuron(self.fc(batch[0]))
        self.optimizers().step()

    def on_train_epoch_end(self) -> None:
        self.lr_schedulers().step()
        self.cosines.append(self.cosine())

    def configure_optimizers(self):
        optimizer = UpdateOptimizer(self.fc.parameters(), lr=0.5)
        decay = (1 / 30) ** (1 / self.epochs)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)]


class Learned(NamedTuple):
    """Draws the learned weights next to the principal components."""

    truth: Tensor  # [neurons, pixels]
    weights: Tensor  # [neurons, pixels]
    cosines: Tensor  # before learning and after each epoch, [epochs + 1, neurons]


def learn(rule: Rule, data: Tensor, neurons: int, epochs: int, seed: int = 0) -> Learned:
    """Trains neurons by a rule.

    Args:
        rule: ``Oja(lr=1.0)`` or ``Sanger(lr=1.0)``: the optimizer scales what it changes.
        data: centred, ``[N, pixels]``.
        neurons: how many.
        epochs: how many.
        seed: of the weights and the order of the data.
    """
    pl.seed_everything(seed, verbose=False)
    model = Components(principal_components(data, neurons), epochs)
    local = CellTrainerCallback(rule, cells={"components": CellSpec("fc", "neuron")})
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[local],
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, DataLoader(TensorDataset(data), batch_size=BATCH, shuffle=True))
    return Learned(model.truth, model.fc.weight.detach(), torch.stack(model.cosines))


def draw(oja: Learned, sanger: Learned, path: str) -> None:
    """Components as images, those of SVD above those learned, and how they were approached."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(3, 2))
    rows = {"SVD": sanger.truth, "Sanger": sanger.weights, "Oja": oja.weights}
    grid = left.subplots(len(rows), len(sanger.truth), squeeze=False)
    for line, (title, components) in zip(grid, rows.items(), strict=True):
        for at, axes in enumerate(line):
            axes.set(xticks=[], yticks=[])
            if at >= len(components):
                axes.axis("off")
                continue
            sign = (components[at] * sanger.truth[at]).sum().sign()
            image = (sign * components[at]).view(SIDE, SIDE).numpy()
            axes.imshow(image, cmap="RdBu", vmin=-0.4, vmax=0.4)
        line[0].set_ylabel(title)
    axes = right.subplots()
    colours = [f"C{i}" for i in range(len(sanger.truth))]
    for i, colour in enumerate(colours):
        axes.semilogy(1 - sanger.cosines[:, i], color=colour, lw=1, label=f"Sanger {i + 1}")
    axes.semilogy(1 - oja.cosines[:, 0], "k--", lw=1, label="Oja")
    axes.axhline(0.01, color="0.8", lw=0.8, zorder=0)
    axes.set(xlabel="epoch", ylabel="1 − |cosine|", ylim=(1e-6, 1))
    axes.legend(frameon=False, fontsize=7, ncols=2)
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--neurons", type=int, default=8, help="for Sanger's rule")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--picture", default="oja_pca.png", help="where to draw to")
    parser.add_argument("--short", action="store_true", help="four neurons, 8 epochs")
    args = parser.parse_args()
    if args.short:
        args.neurons, args.epochs = 4, 8
    quiet()
    torch.set_num_threads(1)

    data = digits()
    start = time.process_time()
    oja = learn(Oja(lr=1.0), data, 1, args.epochs)
    sanger = learn(Sanger(lr=1.0), data, args.neurons, args.epochs)
    speed = 2 * args.epochs * len(data) / (time.process_time() - start)
    print(f"|cosine| with the principal components after {args.epochs} epochs, untrained before:")
    for name, found in (("Oja", oja), ("Sanger", sanger)):
        now, before = (" ".join(f"{c:.4f}" for c in found.cosines[at]) for at in (-1, 0))
        print(f"  {name:7s}{now}\n  {'':7s}{before} untrained")
        length = found.weights.norm(dim=1)
        print(f"  {'':7s}lengths of the weights {length.min():.3f} to {length.max():.3f}")
    least = [found.cosines[-1].min() for found in (oja, sanger)]
    report("Oja {:.4f}, Sanger {:.4f}, one seed".format(*least), speed)
    draw(oja, sanger, args.picture)
    print(f"drawn to {args.picture}")


if __name__ == "__main__":
    main()

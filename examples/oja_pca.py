"""Principal components of handwritten digits, learned by the rules of Oja and of Sanger.

A linear neuron under Oja's rule (1982, doi:10.1007/BF00275687) turns towards the first principal
component of its input; under Sanger's (1989, doi:10.1016/0893-6080(89)90044-0) several neurons find
the first ones, in order. Both see the digits in small batches, at a rate that falls. The components
to compare with come from a singular value decomposition of all digits at once. The controls are as
many neurons under Oja's rule, which all find the first, and no learning; the simple method is one
epoch of incremental PCA.

    python examples/oja_pca.py [--picture oja_pca.png] [--short]
"""

from __future__ import annotations

import time

import lightning.pytorch as pl
import torch
from _data import load_digits
from _experiment import arguments, report, save, spread
from _quiet import SILENT, quiet
from matplotlib.figure import Figure
from sklearn.decomposition import IncrementalPCA  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import CellSpec, Oja, Rule, Sanger
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.optim import UpdateOptimizer


def principal_components(data: Tensor, count: int) -> Tensor:
    """The leading components of centred data ``[N, pixels]``, each of length 1, by SVD."""
    return torch.linalg.svd(data, full_matrices=False).Vh[:count]


class Components(pl.LightningModule):
    """Linear neurons, whose weights are compared with the true components after every epoch."""

    def __init__(self, truth: Tensor, epochs: int) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.fc = nn.Linear(truth.shape[1], len(truth), bias=False)
        self.neuron = nn.Identity()
        self.truth, self.epochs = truth, epochs
        self.weights = self.fc.weight.detach()
        self.cosines = self.cosine()

    def cosine(self) -> Tensor:
        """Between each neuron's weights and its component, ``[1, neurons]``; the sign is free."""
        return nn.functional.cosine_similarity(self.weights, self.truth).abs()[None]

    def training_step(self, batch: tuple[Tensor], batch_idx: int) -> None:
        self.neuron(self.fc(batch[0]))
        self.optimizers().step()

    def on_train_epoch_end(self) -> None:
        self.lr_schedulers().step()
        self.cosines = torch.cat([self.cosines, self.cosine()])

    def configure_optimizers(self):
        optimizer = UpdateOptimizer(self.fc.parameters(), lr=0.5)
        decay = (1 / 30) ** (1 / self.epochs)  # to a thirtieth in the end
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, decay)]


def learn(rule: Rule, data: Tensor, neurons: int, epochs: int, seed: int = 0) -> Components:
    """Trains neurons by a rule with ``lr=1.0`` on data ``[N, pixels]``, less its mean."""
    pl.seed_everything(seed, verbose=False)
    data = data - data.mean(0)
    model = Components(principal_components(data, neurons), epochs)
    local = CellTrainerCallback(rule, cells={"components": CellSpec("fc", "neuron")})
    trainer = pl.Trainer(max_epochs=epochs, accelerator="cpu", callbacks=[local], **SILENT)
    trainer.fit(model, DataLoader(TensorDataset(data), batch_size=20, shuffle=True))
    return model


def draw(oja: Components, sanger: Components, path: str) -> None:
    """Components as images, those of SVD above those learned, and how they were approached."""
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(3, 2))
    rows = {"SVD": sanger.truth, "Sanger": sanger.weights, "Oja": oja.weights}
    grid = left.subplots(3, len(sanger.truth), subplot_kw={"xticks": [], "yticks": []})
    for line, (title, components) in zip(grid, rows.items(), strict=True):
        line[0].set_ylabel(title)
        for axes, component, truth in zip(line, components, sanger.truth, strict=False):
            image = (component @ truth).sign() * component.view(8, 8)
            axes.imshow(image, cmap="RdBu", vmin=-0.4, vmax=0.4)
        for axes in line[len(components) :]:
            axes.axis("off")
    axes = right.subplots()
    for i, cosines in enumerate(sanger.cosines.T):
        axes.semilogy(1 - cosines, color=f"C{i}", lw=1, label=f"Sanger {i + 1}")
    axes.semilogy(1 - oja.cosines[:, 0], "k--", lw=1, label="Oja")
    axes.axhline(0.01, color="0.8", lw=0.8, zorder=0)
    axes.set(xlabel="epoch", ylabel="1 − |cosine|", ylim=(1e-6, 1))
    axes.legend(frameon=False, fontsize=7, ncols=2)
    save(figure, path, dpi=100)


def main() -> None:
    args = arguments(__doc__, __file__, short="one seed, four neurons, 8 epochs")
    neurons, epochs = (4, 8) if args.short else (8, 40)
    quiet()
    torch.set_num_threads(1)
    data = load_digits()[0].flatten(1)
    start = time.process_time()
    oja = learn(Oja(lr=1.0), data, 1, epochs)
    runs = [learn(Sanger(lr=1.0), data, neurons, epochs, seed) for seed in range(args.seeds)]
    alike = [learn(Oja(lr=1.0), data, neurons, epochs, seed) for seed in range(args.seeds)]
    speed = (1 + 2 * args.seeds) * epochs * len(data) / (time.process_time() - start)
    sanger = runs[0]
    print(f"|cosine| with the principal components after {epochs} epochs, untrained before:")
    for name, found in (("Oja", oja), ("Sanger", sanger)):
        now, before = (" ".join(f"{c:.4f}" for c in found.cosines[at]) for at in (-1, 0))
        print(f"  {name:7s}{now}\n  {'':7s}{before} untrained")
        length = found.weights.norm(dim=1)
        print(f"  {'':7s}lengths of the weights {length.min():.3f} to {length.max():.3f}")
    least = [[run.cosines[-1].min().item() for run in each] for each in (runs, alike)]
    before = [run.cosines[0].min().item() for run in runs]
    pca = torch.as_tensor(IncrementalPCA(neurons, batch_size=20).fit(data).components_)
    exact = nn.functional.cosine_similarity(pca, sanger.truth).abs().min().item()
    report(
        spread(least[0], "", 4),
        speed,
        {"Oja's rule": spread(least[1], "", 4), "untrained": spread(before, "", 4)},
        {"incremental PCA, one epoch": spread([exact] * args.seeds, "", 4)},
    )
    draw(oja, sanger, args.picture)


if __name__ == "__main__":
    main()

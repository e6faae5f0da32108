"""Compares the package's optimizers with `torch.optim.AdamW` on handwritten digits.

The CNN of `cnn_optimizers.py` learns scikit-learn's digits, scaled to MNIST's size, from several
seeds. A seed is a split, initial weights and an order of batches, the same for all optimizers. What
is printed and drawn is the mean and the standard deviation over seeds, after each epoch.

    python examples/compare_optimizers.py [--seeds 5] [--epochs 10] [--picture PATH] [--short]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from _data import load_digits_split
from _experiment import Short
from cnn_optimizers import make_cnn
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from lightning_accum.optim import (
    AdaBelief,
    Adam,
    AdamWarmup,
    AdamWarmupCosineDecay,
    AMSGrad,
    Noam,
    RAdam,
)

Recipe = Callable[..., Optimizer]
BATCH_SIZE = 64
# The highest rate in a run of each. Of 0.0003, 0.001, 0.003 and 0.01 it had the lowest
# training loss in the end, on seeds other than those that are compared.
RATES: dict[str, tuple[type[Optimizer], float]] = {
    "AdamW of torch": (AdamW, 0.003),
    "Adam": (Adam, 0.003),
    "AMSGrad": (AMSGrad, 0.003),
    "AdamWarmup": (AdamWarmup, 0.003),
    "Noam": (Noam, 0.003),
    "RAdam": (RAdam, 0.01),
    "AdaBelief": (AdaBelief, 0.003),
    "AdamWarmupCosineDecay": (AdamWarmupCosineDecay, 0.01),
}


def recipe(name: str, rate: float, steps: int) -> Recipe:
    """Returns a factory of optimizers with this rate, whose first tenth of the steps warms up."""
    kind, warmup, width = RATES[name][0], max(1, steps // 10), 500
    if kind is AdamWarmup:
        return partial(kind, lr=rate, warmup=warmup)
    if kind is AdamWarmupCosineDecay:
        return partial(kind, lr=rate, warmup=warmup, total_steps=steps)
    if kind is Noam:
        # its lr is a factor of its schedule, which is highest where the warm-up ends
        factor = rate * (width * warmup) ** 0.5
        return partial(kind, lr=factor, warmup=warmup, d_model=width)
    return partial(kind, lr=rate)


def learn(make: Recipe, seed: int, epochs: int) -> Tensor:
    """Training loss and test accuracy of each epoch, ``[epochs, 2]``, from one seed."""
    torch.manual_seed(seed)
    data = load_digits_split(seed % 5, size=28)
    images, test_images = data.train_images.unsqueeze(1), data.test_images.unsqueeze(1)
    model = make_cnn()
    optimizer = make(model.parameters())
    found = []
    for _ in range(epochs):
        total = torch.zeros(())
        for batch in torch.randperm(len(images)).split(BATCH_SIZE):
            loss = nn.functional.cross_entropy(model(images[batch]), data.train_labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += len(batch) * loss.detach()
        with torch.no_grad():
            hits = model(test_images).argmax(1) == data.test_labels
        found.append(torch.stack([total / len(images), 100 * hits.float().mean()]))
    return torch.stack(found)


def draw(found: dict[str, Tensor], path: str) -> None:
    """Draws results ``[seeds, epochs, 2]`` into a file, each beside the first, in grey."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    first, *others = found
    others = others or [first]
    plt.rc("font", size=7)
    figure, axes = plt.subplots(
        *(2, len(others)),
        figsize=(1.0 + 1.25 * len(others), 3.4),
        sharex=True,
        sharey="row",
        squeeze=False,
        layout="constrained",
    )
    for column, name in zip(axes.T, others, strict=True):
        for key, color in ((first, "0.55"), (name, "C0")):
            means, deviations = (part.T for part in spread(found[key]))
            for ax, mean, deviation in zip(column, means, deviations, strict=True):
                epochs = range(1, len(mean) + 1)
                ax.plot(epochs, mean, color=color, lw=1.2)
                # a logarithmic axis ends above zero
                low, high = (mean - deviation).clamp(min=1e-4), mean + deviation
                ax.fill_between(epochs, low, high, color=color, alpha=0.25, lw=0)
        column[0].set_title(name, fontsize=6.5)
        column[1].set_xlabel("epoch")
    axes[0, 0].set(ylabel="training loss", yscale="log", ylim=(1e-3, 3))
    axes[1, 0].set(ylabel="test accuracy in %", ylim=(90, 100))
    figure.suptitle(f"mean and standard deviation; in grey {first}", fontsize=8)
    figure.savefig(path, dpi=80)


def spread(results: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation over seeds, the first axis; of one seed, zero."""
    return results.mean(0), results.std(0, correction=min(1, len(results) - 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--rate", type=float, help="the highest rate of all, for their own")
    parser.add_argument("--optimizers", nargs="+", choices=RATES)
    parser.add_argument("--picture", help="where to; compare_optimizers.png, unless --short")
    parser.add_argument("--short", action=Short, help="two optimizers, one seed, one epoch")
    args = parser.parse_args()
    if args.short:
        args.seeds, args.epochs = 1, 1
    names = args.optimizers or (["AdamW of torch", "AdaBelief"] if args.short else RATES)
    picture = args.picture or (None if args.short else "compare_optimizers.png")
    torch.set_num_threads(1)

    batches = -(-len(load_digits_split().train_labels) // BATCH_SIZE)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    found = {}
    start = time.process_time()
    print(f"mean ± standard deviation over {args.seeds} seeds, after epoch 1 and {args.epochs}\n")
    print("| optimizer | highest rate | training loss | | test accuracy in % | |")
    print("|---|---|---|---|---|---|")
    for name in names:
        rate = args.rate or RATES[name][1]
        make = recipe(name, rate, args.epochs * batches)
        found[name] = torch.stack([learn(make, seed, args.epochs) for seed in seeds])
        mean, deviation = (part[[0, -1]].T.tolist() for part in spread(found[name]))
        cells = [f"{m:.4f} ± {d:.4f}" for m, d in zip(mean[0], deviation[0], strict=True)]
        cells += [f"{m:.1f} ± {d:.1f}" for m, d in zip(mean[1], deviation[1], strict=True)]
        print(f"| {name} | {rate:g} | {' | '.join(cells)} |", flush=True)
    print(f"\n{time.process_time() - start:.0f} s of one core")
    if picture:
        draw(found, picture)
        print(f"drawn in {picture}")


if __name__ == "__main__":
    main()

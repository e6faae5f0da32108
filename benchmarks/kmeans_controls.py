"""STDP beside k-means where pixels, labels or neurons are few, or the digits come in order.

The network of `examples/digits_stdp.py` with 100 neurons, on MNIST-5k. Its weights are learned, or
are the centres of k-means of images of one norm, plain or spherical, images drawn at random or
random numbers, with the same readout of the same labels. *nearest* is the digit of the nearest
image with a label. In the last row, digits from 0 to 4 come first, then the others: the rate of
learning is then constant, and k-means is online. Figures are means in percent of the test images
over five folds, which test each image once, and deviations over folds; *gain* is STDP's over the
best fixed weights, with its standard error, and is tested as in the zoo.

    python benchmarks/kmeans_controls.py [--smoke]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from _measure import ROOT, table
from torch import Tensor
from torch.nn.functional import normalize

sys.path.insert(0, str(ROOT / "examples"))
sys.path.insert(0, str(ROOT / "scripts"))
from _controls import k_means
from _data import FOLDS, blurred, load
from _local import see
from _quiet import quiet
from digits_stdp import LR, OPTIONS, DiehlCook, learning_rule
from zoo import Gain, gain, significant

from lightning_accum import CellSpec
from lightning_accum.metrics import MaxRateClassifier

BATCH, EPOCHS = 64, 6
KINDS = ("STDP", "k-means", "spherical k-means", "images", "random weights", "nearest")
FIXED = KINDS[1:5]
Reader = Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]
HIDDEN, NOISE = 10, 0.5  # a square's side in pixels, and the deviation of what is added to each


class Steady(DiehlCook):
    """The network at a constant rate: it does not know how long it will learn."""

    def configure_optimizers(self) -> Any:
        optimizers, _ = super().configure_optimizers()
        return optimizers, [torch.optim.lr_scheduler.LambdaLR(optimizers[0], lambda _: 0.03)]


def learned(start: Tensor, images: Tensor, neurons: int, ordered: bool = False) -> DiehlCook:
    """A network that starts with some images and sees others, six times or once in their order."""
    model = (Steady if ordered else DiehlCook)(start, neurons, BATCH)
    rule, cell, epochs = learning_rule(LR, model), CellSpec("fc", "lif"), 1 if ordered else EPOCHS
    how = {"batch_size": BATCH, "epochs": epochs, "shuffle": not ordered, **OPTIONS}
    see(model, rule, cell, images, **how)
    return model


def readers(learner: DiehlCook, images: Tensor, *centres: Tensor) -> dict[str, Reader]:
    """Readers of networks with each kind of weights; all but the learner's are fixed."""
    some = images[torch.randperm(len(images))[: len(centres[0])]].flatten(1)
    models = [learner]
    for weights in (*centres, some, torch.rand_like(some)):
        models.append(DiehlCook(images, len(weights), BATCH, weights=weights))
        models[-1].on_train_end()
    return {k: partial(bayes, model.eval()) for k, model in zip(KINDS, models, strict=False)}


@torch.no_grad()
def counts(model: DiehlCook, images: Tensor) -> Tensor:
    """Spikes of every neuron for every image."""
    return torch.cat([model(part).sum(0) for part in images.split(250)])


def bayes(model: DiehlCook, seen: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
    """Reads digits from counts, by Bayes' rule, given those of images with labels."""
    readout = MaxRateClassifier(model.fc.out_features, 10, vote="bayes")
    readout.update(counts(model, seen), labels)
    return lambda images: readout.predict(counts(model, images))


def nearest(seen: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor]:
    """Reads the digit of the image with a label at the least angle."""
    known = normalize(seen.flatten(1))
    return lambda images: labels[(normalize(images.flatten(1)) @ known.T).argmax(1)]


def shifted(images: Tensor, early: Tensor, seed: int) -> tuple[DiehlCook, Tensor]:
    """A network and centres that saw some images first, then the others, each three times."""
    from sklearn.cluster import MiniBatchKMeans

    halves = [half for half in (images[early], images[~early]) for _ in range(EPOCHS // 2)]
    stream = torch.cat([half[torch.randperm(len(half))] for half in halves])
    flat = stream.flatten(1).numpy()
    online = MiniBatchKMeans(100, init=flat[:100], n_init=1, random_state=seed)
    for i in range(0, len(flat) - 99, 100):  # no fewer than there are centres
        online.partial_fit(flat[i : i + 100])
    return learned(images[early], stream, 100, True), torch.as_tensor(online.cluster_centers_)


def harder(images: Tensor) -> dict[str, Tensor]:
    """Images with a square of them hidden somewhere, and with noise."""
    noisy = (images + NOISE * torch.randn_like(images)).clamp(0, 1)
    at = torch.arange(28) - torch.randint(29 - HIDDEN, (len(images), 2, 1))
    inside = (at >= 0) & (at < HIDDEN)
    hidden = images.masked_fill(inside[:, 0, :, None] & inside[:, 1, None], 0)
    square, noise = f"{HIDDEN} × {HIDDEN} pixels hidden", f"noise of {NOISE} in each pixel"
    return {square: blurred(hidden, 1.0), noise: blurred(noisy, 1.0)}


def accuracies(fold: int, size: int) -> dict[str, dict[str, float]]:
    """Test accuracies in percent, by condition and by reader; each fold has a seed of its own."""
    pl.seed_everything(fold, verbose=False)
    raw, data = (load("mnist5k", blur=blur, fold=fold).first(size) for blur in (0, 1))
    images, labels = data.train_images, data.train_labels
    answers = data.test_labels[: size // 4]
    order = torch.randperm(len(labels))
    of_each = torch.stack([order[labels[order] == digit][:10] for digit in range(10)])
    found: dict[str, dict[str, float]] = {}

    def add(which: dict[str, Reader], tests: dict[str, Tensor], some: Any = slice(None)) -> None:
        for kind, reader in which.items():
            read = reader(images[some], labels[some])
            for name, test in tests.items():
                right = (read(test) == answers).float().mean().item()
                found.setdefault(name, {})[kind] = 100 * right

    def networks(neurons: int) -> dict[str, Reader]:
        learner = learned(images, images, neurons)
        seen = normalize(images.flatten(1))
        centres = (k_means(seen, neurons, fold, spherical) for spherical in (False, True))
        return readers(learner, images, *centres)

    plain, unblurred = (each.test_images[: len(answers)] for each in (data, raw))
    many = {**networks(100), "nearest": nearest}
    add(many, {"100 neurons": plain, **harder(unblurred)})
    for n in (10, 3, 1):
        add(many, {f"{10 * n} labels": plain}, of_each[:, :n].flatten())
    add(networks(50), {"50 neurons": plain})
    add(networks(25), {"25 neurons": plain})
    learner, online = shifted(images, labels < 5, fold)
    after = readers(learner, images, online, normalize(online))
    add(after, {"digits 0–4, then 5–9": plain})
    return found


def row(name: str, runs: list[dict[str, float]]) -> tuple[Gain, list[str]]:
    """By how much STDP is ahead in a condition, and the condition's row."""
    found = {kind: [run[kind] for run in runs] for kind in KINDS if kind in runs[0]}
    best = max(FIXED, key=lambda kind: statistics.mean(found[kind]))
    above = gain(*([[x] for x in found[kind]] for kind in ("STDP", best)))
    cells = [f"{statistics.mean(x):.1f} ± {statistics.stdev(x):.1f}" for x in found.values()]
    cells += ["–"] * (len(KINDS) - len(cells))
    return above, [name, *cells, f"{above.mean:+.1f} ± {above.error:.1f}, {above}"]


def report(runs: list[dict[str, dict[str, float]]]) -> None:
    """Prints the table of all conditions, and in which of them learning is worth it."""
    rows = [row(name, [run[name] for run in runs]) for name in runs[0]]
    table(("", *KINDS, "gain"), (cells for _, cells in rows))
    gains = {cells[0]: above for above, cells in rows}
    clear = significant({name: above.p for name, above in gains.items()}, len(gains))
    for title, sign in (("ahead of", 1), ("behind", -1)):
        named = "; ".join(name for name in gains if name in clear and sign * gains[name].mean > 0)
        print(f"\nSTDP is {title} the best fixed weights: {named or 'nowhere'}.")
    print(
        f"\nNo difference is clear: {'; '.join(x for x in gains if x not in clear) or 'nowhere'}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="two folds, 200 images")
    smoke = parser.parse_args().smoke
    quiet()
    torch.set_num_threads(1)
    folds, size = (2, 200) if smoke else (FOLDS, 4000)
    runs = []
    for fold in range(folds):
        runs.append(accuracies(fold, size))
        print(f"{fold + 1} of {folds} folds", file=sys.stderr, flush=True)
    report(runs)


if __name__ == "__main__":
    main()

"""Controls: what is reached without a rule, fitted until it converges, with settings of its own.

Each takes features in the images' place of a `Split` and returns the share in percent of test
samples that it reads right. Settings are chosen on a fifth of what is there to train on, and then
all of it is fitted; test samples choose nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from _data import Split
from _experiment import spread
from sklearn.cluster import KMeans  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression, RidgeClassifier  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from torch import Tensor
from torch.nn.functional import normalize, one_hot

Setting = TypeVar("Setting")
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of squared weights, by sample
UNTRAINED = "untrained, linear readout"  # what `linear_behind` is called
SCALES = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0)  # of the input of a network that does not learn


def best(settings: Iterable[Setting], score: Callable[[Setting], float]) -> Setting:
    """The setting of the highest score, which should be of validation data."""
    return max(settings, key=score)


def share(found: Tensor, labels: Tensor) -> float:
    """The share in percent of labels that were found."""
    return 100 * (found == labels).float().mean().item()


def linear(split: Split) -> float:
    """A linear readout by logistic regression, fitted until it converges."""
    return _logistic(split, _penalty(split.inner()))


class Readouts:
    """Linear readouts of several kinds of features, for several seeds.

    Each is fitted as `linear` is; the first seed chooses the penalty of a kind for all.
    """

    def __init__(self) -> None:
        self.reached = dict[str, list[float]]()
        self._penalties = dict[str, float]()

    def add(self, kind: str, split: Split) -> None:
        """Reads features, and keeps the share of test samples under the name of their kind."""
        if kind not in self._penalties:
            self._penalties[kind] = _penalty(split.inner())
        self.reached.setdefault(kind, []).append(_logistic(split, self._penalties[kind]))


def ridge(split: Split) -> float:
    """A linear readout by least squares."""
    inner = split.inner()
    return _least_squares(split, best(PENALTIES, lambda penalty: _least_squares(inner, penalty)))


def seen_by(split: Split, see: Callable[[Tensor], Tensor], scale: float = 1.0) -> Split:
    """What a network makes of samples times a scale, in their place."""
    return split.map(lambda samples: see(scale * samples))


def linear_behind(split: Split, see: Callable[[Tensor], Tensor]) -> float:
    """A linear readout of a network that does not learn, at the scale of its input that suits it.

    Args:
        split: what the network gets.
        see: returns the features of samples, those that its own readout has.
    """
    seen = (seen_by(split, see, scale) for scale in SCALES)
    return linear(best(seen, lambda features: linear(features.inner())))


def _penalty(inner: Split) -> float:
    return best(PENALTIES, lambda penalty: _logistic(inner, penalty))


def _logistic(split: Split, penalty: float) -> float:
    inverse = 1 / (penalty * len(split.train_labels))
    return _fitted(split, LogisticRegression(C=inverse, max_iter=10_000))


def _least_squares(split: Split, penalty: float) -> float:
    return _fitted(split, RidgeClassifier(penalty * len(split.train_labels)))


def _fitted(split: Split, reader: Any) -> float:
    """Test accuracy of a reader of scikit-learn's after all features are scaled alike."""
    train, test = (part.flatten(1).double().numpy() for part in split[::2])
    pipe = make_pipeline(StandardScaler(), reader).fit(train, split.train_labels.numpy())
    return share(torch.as_tensor(pipe.predict(test)), split.test_labels)


def k_means(features: Tensor, centres: int, seed: int, spherical: bool = False) -> Tensor:
    """Centres of k-means, ``[centres, features]``; spherical: by angle, of length one.

    Args:
        features: of shape ``[N, ...]``.
        centres: how many.
        seed: of the first centres; the best of three starts counts.
        spherical: whether samples and centres have length one.
    """
    flat = features.flatten(1)
    points = normalize(flat) if spherical else flat
    found = KMeans(centres, n_init=3, random_state=seed).fit(points.numpy())
    centre = torch.as_tensor(found.cluster_centers_, dtype=flat.dtype)
    if not spherical:
        return centre
    for _ in range(100):  # from there on by angle
        nearest = (points @ centre.T).argmax(1)
        sums = one_hot(nearest, centres).to(points).T @ points
        moved = normalize(torch.where(sums.any(1, keepdim=True), sums, centre))
        if torch.equal(moved, centre):
            break
        centre = moved
    return centre


def by_centres(split: Split, centres: Tensor, spherical: bool = False) -> float:
    """Each centre reads the label of the most training samples that are nearest to it."""
    seen, unseen = (nearest(part, centres, spherical) for part in split[::2])
    classes = int(split.train_labels.max()) + 1
    votes = one_hot(seen, len(centres)).float().T @ one_hot(split.train_labels, classes).float()
    return share(votes.argmax(1)[unseen], split.test_labels)


def of_each_class(split: Split, each: int, seed: int, spherical: bool = False) -> Tensor:
    """Centres of k-means of every class, one class after the other."""
    classes = range(int(split.train_labels.max()) + 1)
    parts = (split.train_images[split.train_labels == label] for label in classes)
    return torch.cat([k_means(part, each, seed, spherical) for part in parts])


def by_classes(split: Split, each: int, seed: int, spherical: bool = False) -> float:
    """The class of the nearest of some centres of each class."""
    centres = of_each_class(split, each, seed, spherical)
    return share(nearest(split.test_images, centres, spherical) // each, split.test_labels)


def nearest_subspace(split: Split, vectors: int) -> float:
    """The class in the span of whose leading singular vectors most of a sample lies."""
    train, test = (part.flatten(1) for part in split[::2])
    lengths = []
    for label in range(int(split.train_labels.max()) + 1):
        _, _, basis = torch.linalg.svd(train[split.train_labels == label], full_matrices=False)
        lengths.append((test @ basis[:vectors].T).norm(dim=1))
    return share(torch.stack(lengths).argmax(0), split.test_labels)


def nearest_sample(split: Split, spherical: bool = False) -> float:
    """The label of the nearest training sample."""
    found = nearest(split.test_images, split.train_images.flatten(1), spherical)
    return share(split.train_labels[found], split.test_labels)


def simple_methods(split: Split, seeds: int) -> dict[str, str]:
    """What a linear readout of images and the nearest image reach."""
    found = {"linear readout of pixels": linear(split), "nearest image": nearest_sample(split)}
    return repeated(found, seeds)


def repeated(found: Mapping[str, float], seeds: int) -> dict[str, str]:
    """Values that are the same for each seed."""
    return {name: spread([value] * seeds) for name, value in found.items()}


def nearest(features: Tensor, centres: Tensor, spherical: bool) -> Tensor:
    """Which centre is the nearest, or has the least angle."""
    found = []
    for part in features.flatten(1).split(1000):
        if spherical:
            found.append((part @ normalize(centres).T).argmax(1))
        else:
            found.append(torch.cdist(part, centres).argmin(1))
    return torch.cat(found)

"""Controls: what is reached without a rule, fitted until it converges, with settings of its own.

Each takes features in the images' place of a `Split` and returns the share in percent of test
samples that it reads right. Settings are chosen on a fifth of what is there to train on, and then
all of it is fitted; test samples choose nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from _data import Split
from sklearn.cluster import KMeans  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression, RidgeClassifier  # type: ignore[import-untyped]
from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
from sklearn.preprocessing import StandardScaler  # type: ignore[import-untyped]
from torch import Tensor
from torch.nn.functional import normalize, one_hot

Setting = TypeVar("Setting")
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of squared weights, by sample


def best(settings: Iterable[Setting], score: Callable[[Setting], float]) -> Setting:
    """The setting of the highest score, which should be of validation data."""
    return max(settings, key=score)


def share(found: Tensor, labels: Tensor) -> float:
    """The share in percent of labels that were found."""
    return 100 * (found == labels).float().mean().item()


def linear(split: Split) -> float:
    """A linear readout by logistic regression, fitted until it converges."""
    inner = split.inner()
    return _logistic(split, best(PENALTIES, lambda penalty: _logistic(inner, penalty)))


def ridge(split: Split) -> float:
    """A linear readout by least squares."""
    inner = split.inner()
    return _least_squares(split, best(PENALTIES, lambda penalty: _least_squares(inner, penalty)))


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
    seen, unseen = (_nearest(part, centres, spherical) for part in split[::2])
    classes = int(split.train_labels.max()) + 1
    votes = one_hot(seen, len(centres)).float().T @ one_hot(split.train_labels, classes).float()
    return share(votes.argmax(1)[unseen], split.test_labels)


def of_each_class(split: Split, each: int, seed: int, spherical: bool = False) -> Tensor:
    """Centres of k-means of every class, one class after the other."""
    classes = range(int(split.train_labels.max()) + 1)
    parts = (split.train_images[split.train_labels == label] for label in classes)
    return torch.cat([k_means(part, each, seed, spherical) for part in parts])


def nearest_sample(split: Split, spherical: bool = False) -> float:
    """The label of the nearest training sample."""
    found = _nearest(split.test_images, split.train_images.flatten(1), spherical)
    return share(split.train_labels[found], split.test_labels)


def _nearest(features: Tensor, centres: Tensor, spherical: bool) -> Tensor:
    """Which centre is the nearest, or has the least angle."""
    flat = features.flatten(1)
    if spherical:
        return (normalize(flat) @ normalize(centres).T).argmax(1)
    return torch.cdist(flat, centres).argmin(1)

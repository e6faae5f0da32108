"""Controls: fitted until they converge, with settings that test samples do not choose."""

import pytest

pytest.importorskip("sklearn")
import _controls as controls
import _data as data
import torch
from torch.nn.functional import cross_entropy, normalize


@pytest.fixture
def split():
    """Three classes on rays of their own, far apart by angle; lengths say nothing."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 3
    rays = torch.eye(3)[labels] + 0.1 * torch.randn(300, 3, generator=generator)
    return data.split_at_random(rays * (0.05 + torch.rand(300, 1, generator=generator)), labels)


def test_the_readouts_read_what_is_linearly_separable(split):
    by_length = split._replace(
        train_images=normalize(split.train_images), test_images=normalize(split.test_images)
    )
    assert controls.linear(by_length) == controls.ridge(by_length) == 100


def test_the_logistic_readout_has_converged(monkeypatch):
    fits = []
    fitted = controls._fitted
    monkeypatch.setattr(controls, "_fitted", lambda s, r: fits.append((s, r)) or fitted(s, r))
    split = data.load_digits_split()
    controls.linear(split)
    (inner, _), (whole, reader) = fits[0], fits[-1]
    assert len(inner.train_labels) + len(inner.test_labels) == len(split.train_labels)
    assert whole is split
    x = split.train_images.flatten(1).double()
    x = torch.nan_to_num((x - x.mean(0)) / x.std(0, correction=0))
    weight, bias = (torch.tensor(p, requires_grad=True) for p in (reader.coef_, reader.intercept_))
    loss = cross_entropy(x @ weight.T + bias, split.train_labels, reduction="sum")
    (loss + weight.square().sum() / (2 * reader.C)).backward()
    assert weight.grad.abs().max() < 1e-3 * len(x)


def test_a_setting_is_chosen_without_the_test_samples(split):
    spoilt = split._replace(test_labels=(split.test_labels + 1) % 3)
    assert controls.linear(split) + controls.linear(spoilt) <= 100
    assert controls.best((3, 1, 2), lambda x: -abs(x - 2)) == 2


def test_centres_by_angle_are_of_length_one_and_the_best_for_their_samples(split):
    centres = controls.k_means(split.train_images, 3, 0, spherical=True)
    assert torch.allclose(centres.norm(dim=1), torch.ones(3))
    points = normalize(split.train_images)
    nearest = (points @ centres.T).argmax(1)
    for i, centre in enumerate(centres):
        torch.testing.assert_close(centre, normalize(points[nearest == i].sum(0), dim=0))
    assert controls.by_centres(split, centres, spherical=True) == 100
    assert controls.nearest_sample(split, spherical=True) == 100
    each = controls.of_each_class(split, 1, 0, spherical=True)
    assert (each.argmax(1) == torch.arange(3)).all()
    plain = controls.k_means(split.train_images, 3, 0)
    assert torch.isin(torch.cdist(split.train_images, plain).argmin(1), torch.arange(3)).all()
    assert controls.by_centres(split, plain) < 100  # lengths mislead it


def test_a_network_that_does_not_learn_gets_its_input_at_the_scale_that_suits_it(split):
    scales = []

    def see(samples, suits=4.0):
        """Reads nothing of the samples unless they come at one scale."""
        scales.append(float(samples.abs().max() / split.train_images.abs().max()))
        return normalize(samples) * (abs(scales[-1] - suits) < 0.1)

    train_only = split._replace(test_images=split.train_images, test_labels=split.train_labels)
    assert controls.linear_behind(train_only, see) == 100
    assert len(scales) == 2 * len(controls.SCALES)
    assert controls.linear_behind(train_only, lambda x: see(x, suits=5.0)) < 60
    spoilt = train_only._replace(test_labels=(split.train_labels + 1) % 3)
    assert controls.linear_behind(spoilt, see) == 0  # test labels choose nothing


def test_centres_and_spans_of_each_class_read_it(split):
    assert controls.by_classes(split, 2, 0, spherical=True) == 100
    assert controls.nearest_subspace(split, 1) == 100
    spoilt = split._replace(test_labels=(split.test_labels + 1) % 3)
    assert controls.by_classes(spoilt, 2, 0, spherical=True) == 0
    assert controls.nearest_subspace(spoilt, 1) == 0


def test_a_span_is_of_the_vectors_that_hold_most_of_a_class():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 2
    planes = torch.diag(torch.tensor([3.0, 1.0, 1.0]))[torch.tensor([[0, 1], [0, 2]])[labels]]
    samples = (torch.randn(200, 1, 2, generator=generator) @ planes).squeeze(1)
    split = data.split_at_random(samples, labels)
    assert controls.nearest_subspace(split, 2) == 100
    assert controls.nearest_subspace(split, 1) < 100  # what most of both classes is in


def test_the_first_seed_chooses_the_penalty_of_its_kind_of_features(monkeypatch):
    split, chosen = data.load_digits_split(), []
    penalty = controls._penalty
    monkeypatch.setattr(controls, "_penalty", lambda s: chosen.append(len(s[1])) or penalty(s))
    readouts = controls.Readouts()
    for kind in ("pixels", "pixels", "half of them"):
        readouts.add(kind, split if kind == "pixels" else split.map(lambda x: x[:, ::2]))
    assert len(chosen) == 2
    assert max(chosen) < len(split.train_labels)
    assert readouts.reached["pixels"] == [controls.linear(split)] * 2
    assert len(readouts.reached["half of them"]) == 1

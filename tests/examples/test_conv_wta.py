"""Filters that compete at each place of a convolution approach what they win."""

import _data as data
import _readout
import conv_wta as example
import pytest
import torch
from torch.nn.functional import normalize, one_hot, unfold


@pytest.fixture(scope="module")
def images():
    return data.load_digits_split(size=28).train_images[:300, None]


def alike(layer, images):
    """Mean cosine of each filter with the mean of the centred patches that it wins."""
    patches = unfold(images, 7, padding=3).transpose(1, 2).flatten(0, 1)
    patches = patches - patches.mean(1, keepdim=True)
    filters = layer.conv.weight.flatten(1)
    won = one_hot((patches @ filters.T).argmax(1), len(filters)).float()
    return (normalize(won.T @ patches) * filters).sum(1).mean().item()


def test_filters_approach_what_they_win(images):
    torch.manual_seed(0)
    layer = example.Layer(images, 32, 7)
    before = alike(layer, images)
    layer.learn(images)
    filters = layer.conv.weight.flatten(1)
    torch.testing.assert_close(filters.norm(dim=1), torch.ones(32))
    torch.testing.assert_close(filters.sum(1), torch.zeros(32), atol=1e-5, rtol=0)
    assert 1 - alike(layer, images) < 0.2 * (1 - before)


def test_noise_has_the_mean_and_length_of_patches_but_not_their_shape(images):
    torch.manual_seed(0)
    patches, noise = (
        example.Layer(images, 64, 7, noise=noise).conv.weight for noise in (False, True)
    )
    for filters in (patches, noise):
        torch.testing.assert_close(filters.flatten(1).norm(dim=1), torch.ones(64))
        torch.testing.assert_close(filters.sum((1, 2, 3)), torch.zeros(64), atol=1e-5, rtol=0)
    smooth, rough = ((f[..., 1:] * f[..., :-1]).sum((1, 2, 3)).mean() for f in (patches, noise))
    assert smooth > 0.5 > 0.1 > abs(rough)  # neighbouring pixels of patches are alike


def test_features_are_the_largest_answers_in_windows_that_overlap(images):
    layer = example.Layer(images, 8, 7)
    found = layer.features(images[:150]).view(150, 8, 4, 4)
    answers = layer.conv(images[:150])
    for row, column in ((0, 0), (1, 2), (3, 3)):
        window = answers[..., 6 * row : 6 * row + 10, 6 * column : 6 * column + 10]
        expected = window.amax((2, 3)).clamp(min=0)
        torch.testing.assert_close(found[..., row, column], expected)


def test_shifted_images_keep_their_labels(images):
    train = torch.zeros(20, 1, 28, 28)
    train[..., 1:-1, 1:-1] = images[:20, :, 1:-1, 1:-1]
    more = example.shifted(train)
    assert torch.equal(more[:20], train)
    moved = ((0, 1), (0, -1), (1, 0), (-1, 0))  # down and to the right, in pixels
    for (down, right), copy in zip(moved, more[20:].split(20), strict=True):
        inner = copy[..., 1 + down : 27 + down, 1 + right : 27 + right]
        assert torch.equal(inner, train[..., 1:27, 1:27])
    labels = torch.arange(20) % 10
    split = data.Split(train[:, 0], labels, train[:, 0], labels)
    assert _readout.linear_accuracy(split, more.flatten(1), train.flatten(1)) == 100

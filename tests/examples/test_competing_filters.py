"""Filters that compete approach what they win: at each place of a convolution, and in a stack."""

import _data as data
import conv_wta as wta
import pytest
import softhebb_stack as stack
import torch
from torch.nn.functional import normalize, one_hot, unfold


@pytest.fixture(scope="module")
def images():
    return data.load_digits_split(size=28).train_images[:300, None]


def alike(filters, patches):
    """Mean cosine of each filter with the mean of the patches that it answers most."""
    filters = filters.flatten(1)
    won = one_hot((patches @ filters.T).argmax(1), len(filters)).float()
    return (normalize(won.T @ patches) * normalize(filters)).sum(1).mean().item()


def test_filters_approach_what_they_win(images):
    torch.manual_seed(0)
    layer = wta.Layer(images, 32, 7)
    patches = unfold(images, 7, padding=3).transpose(1, 2).flatten(0, 1)
    patches = patches - patches.mean(1, keepdim=True)
    before = alike(layer.conv.weight, patches)
    layer.learn(images)
    filters = layer.conv.weight.flatten(1)
    torch.testing.assert_close(filters.norm(dim=1), torch.ones(32))
    torch.testing.assert_close(filters.sum(1), torch.zeros(32), atol=1e-5, rtol=0)
    assert 1 - alike(layer.conv.weight, patches) < 0.2 * (1 - before)


def test_noise_has_the_mean_and_length_of_patches_but_not_their_shape(images):
    torch.manual_seed(0)
    patches, noise = (wta.Layer(images, 64, 7, s).conv.weight for s in ("patches", "noise"))
    for filters in (patches, noise):
        torch.testing.assert_close(filters.flatten(1).norm(dim=1), torch.ones(64))
        torch.testing.assert_close(filters.sum((1, 2, 3)), torch.zeros(64), atol=1e-5, rtol=0)
    smooth, rough = ((f[..., 1:] * f[..., :-1]).sum((1, 2, 3)).mean() for f in (patches, noise))
    assert smooth > 0.5 > 0.1 > abs(rough)  # neighbouring pixels of patches are alike


def test_features_are_the_largest_answers_in_windows_that_overlap_or_the_middle_ones(images):
    layer = wta.Layer(images, 8, 7)
    largest, middle = (
        layer.features(images[:150], pooling=pooling).view(150, 8, 4, 4)
        for pooling in (True, False)
    )
    answers = layer.conv(images[:150]).clamp(min=0)
    for row, column in ((0, 0), (1, 2), (3, 3)):
        window = answers[..., 6 * row : 6 * row + 10, 6 * column : 6 * column + 10]
        torch.testing.assert_close(largest[..., row, column], window.amax((2, 3)))
        torch.testing.assert_close(middle[..., row, column], window[..., 5, 5])


def closest(filters, patches):
    """Mean cosine of patches with the filter that answers them most."""
    return (normalize(patches) @ normalize(filters.flatten(1)).T).amax(1).mean().item()


@pytest.mark.parametrize("example", [wta, stack])
def test_centres_of_k_means_are_closer_to_patches_than_patches_and_noise_are(images, example):
    torch.manual_seed(0)
    seen = wta.patches(images, 5, 2000)
    seen = seen - seen.mean(1, keepdim=True)
    kinds = ("centres of k-means", "patches", "noise")
    layers = [example.Layer(images, 32, 5, kind) for kind in kinds]
    weights = [(each.conv if example is wta else each.filters).weight for each in layers]
    found = [closest(weight, seen) for weight in weights]
    assert found == sorted(found, reverse=True)
    assert found[0] - found[1] > 0.01
    assert found[1] - found[2] > 0.1


# ---------------------------------------------------------------------------- a stack
def test_patches_are_of_the_images_without_their_mean_and_length(images):
    torch.manual_seed(0)
    some = images[:7]
    found = stack.patches(some, 5)
    assert found.shape == (35, 25)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(35))
    torch.testing.assert_close(found.sum(1), torch.zeros(35), atol=1e-5, rtol=0)
    for number, patch in enumerate(found):
        every = some[number // 5, 0].unfold(0, 5, 1).unfold(1, 5, 1).reshape(-1, 25)
        every = normalize(every - every.mean(1, keepdim=True))
        assert (every @ patch).max() > 1 - 1e-5


def test_filters_of_a_stack_approach_what_they_win(images):
    torch.manual_seed(0)
    layer = stack.Layer(images, 32, 5)
    patches = stack.patches(images, 5)
    before = alike(layer.filters.weight, patches)
    layer.learn(images)
    torch.testing.assert_close(layer.filters.weight.norm(dim=1), torch.ones(32), atol=0.05, rtol=0)
    assert 1 - alike(layer.filters.weight, patches) < 0.4 * (1 - before)


def test_a_layer_answers_as_its_filters_do_to_the_patches_of_an_image(images):
    torch.manual_seed(0)
    below = stack.Layer(images, 8, 5)
    for layer, seen in (
        (below, images[:250]),
        (stack.Layer(below.answer(images)[1], 6, 5), below.answer(images[:250])[1]),
    ):
        size = seen.shape[-1]
        at_each = unfold(seen, 5, padding=2).transpose(1, 2)
        answers = layer(at_each)
        excess = (answers - answers.mean(2, keepdim=True)).clamp(min=0)
        excess = excess.transpose(1, 2).reshape(250, -1, size, size)
        windows, places = layer.answer(seen)
        windows = windows.view(250, -1, 4, 4)
        assert places.shape == (250, excess.shape[1], size // 2, size // 2)
        torch.testing.assert_close(places[..., 3, 1], excess[..., 6:8, 2:4].amax((2, 3)))
        step, side = (6, 10) if size == 28 else (3, 5)
        for row, column in ((0, 0), (1, 2), (3, 3)):
            top, left = step * row, step * column
            window = excess[..., top : top + side, left : left + side]
            torch.testing.assert_close(windows[..., row, column], window.amax((2, 3)))

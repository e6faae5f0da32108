"""Filters that share each patch learn, and what they answer goes to the readout and further up."""

import _data as data
import pytest
import softhebb_stack as example
import torch
from torch.nn.functional import normalize, one_hot, unfold


@pytest.fixture(scope="module")
def images():
    return data.load_digits_split(size=28).train_images[:300, None]


def alike(layer, patches):
    """Mean cosine of each filter with the mean of the patches that it answers most."""
    filters = layer.filters.weight
    won = one_hot((patches @ filters.T).argmax(1), len(filters)).float()
    return (normalize(won.T @ patches) * normalize(filters)).sum(1).mean().item()


def test_patches_are_of_the_images_without_their_mean_and_length(images):
    torch.manual_seed(0)
    some = images[:7]
    found = example.patches(some, 5)
    assert found.shape == (35, 25)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(35))
    torch.testing.assert_close(found.sum(1), torch.zeros(35), atol=1e-5, rtol=0)
    for number, patch in enumerate(found):
        every = some[number // 5, 0].unfold(0, 5, 1).unfold(1, 5, 1).reshape(-1, 25)
        every = normalize(every - every.mean(1, keepdim=True))
        assert (every @ patch).max() > 1 - 1e-5


def test_filters_approach_what_they_win(images):
    torch.manual_seed(0)
    layer = example.Layer(images, 32, 5, noise=False)
    patches = example.patches(images, 5)
    before = alike(layer, patches)
    layer.learn(images)
    torch.testing.assert_close(layer.filters.weight.norm(dim=1), torch.ones(32), atol=0.05, rtol=0)
    assert 1 - alike(layer, patches) < 0.4 * (1 - before)


def test_a_layer_answers_as_its_filters_do_to_the_patches_of_an_image(images):
    torch.manual_seed(0)
    below = example.Layer(images, 8, 5, noise=False)
    for layer, seen in (
        (below, images[:250]),
        (example.Layer(below.answer(images)[1], 6, 5, noise=False), below.answer(images[:250])[1]),
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

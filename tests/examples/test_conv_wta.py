"""Filters that compete at each place of a convolution approach what they win."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize, one_hot, unfold

sys.path.append(str(Path(__file__).parents[2] / "examples"))
example = importlib.import_module("conv_wta")
data = importlib.import_module("_data")


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
    found = {}
    for epochs in (0, 1):
        torch.manual_seed(0)
        layer = example.learn(images, 32, 7, epochs)
        filters = layer.conv.weight.flatten(1)
        torch.testing.assert_close(filters.norm(dim=1), torch.ones(32))
        torch.testing.assert_close(filters.sum(1), torch.zeros(32), atol=1e-5, rtol=0)
        found[epochs] = alike(layer, images)
    assert 1 - found[1] < 0.2 * (1 - found[0])


def test_a_second_layer_learns_from_the_first(images):
    torch.manual_seed(0)
    one = example.learn(images, 16, 7, 0)
    maps = one(images, 14)
    assert maps.shape == (300, 16, 14, 14)
    assert (maps >= 0).all()
    two = example.learn(maps, 24, 5, 1)
    assert two.conv.weight.shape == (24, 16, 5, 5)
    assert two(maps, 4).amax((2, 3)).std(0).min() > 0  # no filter that answers all alike

"""Oja's neuron finds the first principal component in a Lightning Trainer, Sanger's the first k."""

import logging

import oja_pca as science
import pytest
import torch

from lightning_accum import Oja, RuleTrainer, Sanger

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


@pytest.fixture(scope="module")
def data():
    """Data whose components are known: random directions, of variance 1, 0.6, 0.36, and so on."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.linalg.qr(torch.randn(12, 12, generator=generator)).Q
    scaled = torch.randn(1000, 12, generator=generator) * 0.6 ** (torch.arange(12) / 2)
    scaled = scaled - scaled.mean(0)
    return scaled @ directions


def test_oja_finds_the_first(data):
    found = science.learn(RuleTrainer(Oja(lr=1.0)), data, 1, epochs=8)
    assert found.cosines.shape == (9, 1)
    assert found.cosines[0] < 0.9
    assert found.cosines[-1] > 0.995
    assert found.weights.norm() == pytest.approx(1, abs=0.02)


def test_all_of_ojas_neurons_find_the_same(data):
    found = science.learn(RuleTrainer(Oja(lr=1.0)), data, 3, epochs=8)
    first = found.weights @ found.truth[0]
    assert first.abs().min() > 0.99
    assert found.cosines[-1, 1:].max() < 0.15


def test_sanger_finds_the_first_three_in_order(data):
    found = science.learn(RuleTrainer(Sanger(lr=1.0)), data, 3, epochs=12)
    assert found.cosines[-1].min() > 0.99
    gram = found.weights @ found.weights.T
    torch.testing.assert_close(gram, torch.eye(3), rtol=0, atol=0.05)


def test_the_mean_does_not_matter(data):
    shifted = science.learn(RuleTrainer(Oja(lr=1.0)), data + 1, 1, epochs=8)
    assert shifted.cosines[-1] > 0.995

"""BCM makes neurons selective, for one pattern in K with K, and Hebb's rule does not."""

import bcm_selectivity as science
import pytest
import torch


@pytest.fixture(scope="module")
def found():
    return science.experiment(updates=3000, seed=1)


def test_neurons_become_selective(found):
    history = found["BCM"]
    assert science.selectivity(history[0]).max() < 0.3
    after = science.selectivity(history[-1])
    assert after.mean() > 0.85
    assert after.min() > 0.75


def test_the_response_is_one_over_the_share(found):
    best, second, third, *rest = found["BCM"][-1].sort(dim=0, descending=True).values
    selective = second < 1  # some still have to leave a neighbour
    assert selective.float().mean() > 0.5
    assert ((best[selective] - science.PATTERNS).abs() < 2).all()
    assert max(third.max(), *(r.max() for r in rest)) < 2.5


def test_neurons_choose_different_patterns(found):
    assert len(found["BCM"][-1].argmax(0).unique()) >= 5


def test_hebb_makes_all_neurons_alike(found):
    history = found["Hebb, constant length"]
    assert torch.equal(history[0], found["BCM"][0])
    assert science.selectivity(history[-1]).max() < science.selectivity(history[0]).mean()
    spread = history[-1].std(dim=1) / history[-1].mean(dim=1)
    assert spread.max() < 0.05

"""Reward alone teaches a spiking network XOR; its sign decides, and dealt at random it does not."""

import _xor as xor
import pytest
import reward_xor as science
import torch

EPOCHS = 30


@pytest.fixture(scope="module")
def rates():
    return science.learn(science.RULES["MSTDPET"](), EPOCHS, seed=0)


def test_learns(rates):
    zero, right, left, both = xor.final(rates).tolist()
    assert zero == 0  # no input, no spikes
    assert min(right, left) > 2 * both
    assert xor.learned(rates)


def test_knew_nothing_before(rates):
    _, right, left, both = rates[:3].mean(0).tolist()
    assert max(right, left) < both  # two inputs drive more than one


def test_the_sign_of_the_reward_decides(rates):
    other = science.learn(science.RULES["MSTDPET"](), EPOCHS, seed=0, rewards=-science.XOR)
    _, right, left, both = xor.final(other).tolist()
    assert both > 1.5 * max(right, left)
    assert both > 4 * xor.final(rates)[3]


def test_shuffled_rewards_teach_nothing():
    rates = science.learn(science.RULES["MSTDPET"](), EPOCHS, seed=0, shuffled=True)
    assert not xor.learned(rates)


@pytest.mark.filterwarnings("ignore:(No|Each) value of `reward`")
@pytest.mark.parametrize("name", science.RULES)
def test_rewarded_spikes_increase_and_punished_ones_decrease(name):
    first, *_, last = science.learn(science.RULES[name](), 12, seed=1, rewards=torch.ones(4))
    assert last.sum() > 1.5 * first.sum()
    first, *_, last = science.learn(science.RULES[name](), 12, seed=1, rewards=-torch.ones(4))
    assert last.sum() < 0.2 * first.sum()

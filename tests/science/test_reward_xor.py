"""Reward alone teaches a spiking network XOR; its sign decides, and dealt at random it does not."""

import _xor as xor
import pytest
import reward_xor as science
import reward_xor_temporal as temporal
import torch

EPOCHS = 30


@pytest.fixture(scope="module")
def rates():
    return science.learn(science.RULES["MSTDPET"], EPOCHS, seed=0)


def test_learns(rates):
    zero, right, left, both = xor.final(rates).tolist()
    assert zero == 0  # no input, no spikes
    assert min(right, left) > 2 * both
    assert xor.learned(rates)


def test_knew_nothing_before(rates):
    _, right, left, both = rates[:3].mean(0).tolist()
    assert max(right, left) < both  # two inputs drive more than one


def test_the_sign_of_the_reward_decides(rates):
    other = science.learn(science.RULES["MSTDPET"], EPOCHS, seed=0, rewards=-science.XOR)
    _, right, left, both = xor.final(other).tolist()
    assert both > 1.5 * max(right, left)
    assert both > 4 * xor.final(rates)[3]


def test_shuffled_rewards_teach_nothing():
    rates = science.learn(science.RULES["MSTDPET"], EPOCHS, seed=0, shuffled=True)
    assert not xor.learned(rates)


@pytest.mark.filterwarnings("ignore:(No|Each) value of `reward`")
@pytest.mark.parametrize("name", science.RULES)
@pytest.mark.parametrize(
    ("example", "epochs", "seed", "more", "less"),
    [(science, 12, 1, 1.5, 0.2), (temporal, 8, 0, 1.1, 0.7)],
)
def test_rewarded_spikes_increase_and_punished_ones_decrease(
    example, epochs, seed, more, less, name
):
    rule = example.RULES[name]
    first, *_, last = example.learn(rule, epochs, seed=seed, rewards=torch.ones(4))
    assert last.sum() > more * first.sum()
    first, *_, last = example.learn(rule, epochs, seed=seed, rewards=-torch.ones(4))
    assert last.sum() < less * first.sum()

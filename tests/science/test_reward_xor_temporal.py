"""Reward decides what a network answers to pairs of spike trains that no rate tells apart."""

import pytest
import reward_xor_temporal as science
import torch


@pytest.mark.filterwarnings("ignore:(No|Each) value of `reward`")
def test_rewarded_spikes_increase_and_punished_ones_decrease():
    for name, make in science.RULES.items():
        first, *_, last = science.learn(make(), 8, seed=0, rewards=torch.ones(4))
        assert last.sum() > 1.1 * first.sum(), name
        first, *_, last = science.learn(make(), 8, seed=0, rewards=-torch.ones(4))
        assert last.sum() < 0.7 * first.sum(), name
